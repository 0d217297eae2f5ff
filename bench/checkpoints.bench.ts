/**
 * Speed of reading a pretrained model: a safetensors file of 1 GB into the learner's memory, compared with the page cache and the disk.
 * Run: bun run bench checkpoints [--checkpoints.megabytes=1000]
 * Goal: at least half of the read speed of the disk, and extra memory below 10 % of the parameters' memory. Page faults of new
 * memory take longer than reading from the page cache, so `freshShare` compares with one thread that does both. Bfloat16 becomes
 * float32: the loader writes twice the bytes that it reads.
 */
import { cpSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeModelConfig } from "../model/checkpoint/config.ts";
import { huggingFaceShapes } from "../model/checkpoint/hugging-face.ts";
import { ModelConfig } from "../model/policy/model-config.ts";
import { type Comparison, numbersOf, round } from "./shared.ts";

export const summary =
  "read a pretrained model of 1 GB, compared with disk and page cache; memory in addition to the parameters";

interface Row {
  readonly dtype: string;
  readonly gigabytesPerSecond: number;
  readonly pageCacheGigabytesPerSecond: number;
  /** Share of the page cache's speed. */
  readonly share: number;
  readonly diskGigabytesPerSecond: number;
  /** Share of the disk's speed, with a file that is not in the page cache. */
  readonly diskShare: number;
  /** Share of the speed of one thread that reads the file and touches new memory for the parameters. */
  readonly freshShare: number;
  /** Memory in addition to the parameters' memory, as a share of the parameters' memory. */
  readonly extraMemoryShare: number;
}

export async function run(options: Readonly<Record<string, string>>) {
  const { megabytes } = numbersOf("checkpoints", { megabytes: 1000 }, options);
  const rows: Row[] = [];
  for (const [dtype, byteCount] of [
    ["F32", 4],
    ["BF16", 2],
    ["F16", 2],
  ] as const) {
    const folder = mkdtempSync(join(tmpdir(), "bunraku-checkpoints-"));
    try {
      writeModel(folder, dtype, byteCount, megabytes * 1e6);
      const child = Bun.spawn([process.execPath, join(import.meta.dir, "checkpoints-loader.ts"), folder]);
      const text = await child.stdout.text();
      if ((await child.exited) !== 0) throw new Error(`loading ${dtype} failed`);
      const { bytes, seconds, cacheSeconds, freshSeconds, diskSeconds, fromDiskSeconds, extraBytes, memoryBytes } =
        JSON.parse(text) as Record<string, number>;
      const row = {
        dtype,
        gigabytesPerSecond: round(bytes! / seconds! / 1e9),
        pageCacheGigabytesPerSecond: round(bytes! / cacheSeconds! / 1e9),
        share: round(cacheSeconds! / seconds!, 2),
        diskGigabytesPerSecond: round(bytes! / diskSeconds! / 1e9),
        diskShare: round(diskSeconds! / fromDiskSeconds!, 2),
        freshShare: round(freshSeconds! / seconds!, 2),
        extraMemoryShare: round(extraBytes! / memoryBytes!, 3),
      };
      rows.push(row);
      console.log(
        `${dtype}: ${row.gigabytesPerSecond} GB/s; speed divided by the page cache's (${row.pageCacheGigabytesPerSecond} GB/s) ${row.share}, ` +
          `by one thread's into new memory ${row.freshShare}, by the disk's (${row.diskGigabytesPerSecond} GB/s) ${row.diskShare}; ` +
          `${(100 * row.extraMemoryShare).toFixed(1)} % more memory than the parameters`,
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  }
  const comparisons = rows.map(({ dtype, diskShare, diskGigabytesPerSecond }): Comparison => {
    const ours = `${round(diskShare * diskGigabytesPerSecond)} GB/s`;
    const reference = `the disk's ${diskGigabytesPerSecond} GB/s`;
    return { what: `read ${megabytes} MB of ${dtype} from the disk`, ours, reference, speed: diskShare, goal: 0.5 };
  });
  return { name: "checkpoints", comparisons, rows };
}

const golden = join(import.meta.dir, "../tests/golden/checkpoints/qwen2");

/** Writes a Qwen2 model of about this many bytes, with arbitrary values. */
function writeModel(folder: string, dtype: string, byteCount: number, bytesWanted: number): void {
  const shape = { vocabulary: 512, width: 1024, heads: 16, kvHeads: 4, headWidth: 64, hidden: 4096 };
  const perLayer = 1024 * (1536 + 1024 + 3 * 4096);
  const model = ModelConfig.parse({ ...shape, layers: Math.max(1, Math.round(bytesWanted / byteCount / perLayer)) });
  for (const file of ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
    cpSync(join(golden, file), join(folder, file));
  writeFileSync(join(folder, "config.json"), JSON.stringify(writeModelConfig(model, 4096)));
  let end = 0;
  const header: Record<string, unknown> = {};
  for (const [name, shape] of huggingFaceShapes(model)) {
    const begin = end;
    end += byteCount * shape.reduce((product, size) => product * size, 1);
    header[name] = { dtype, shape, data_offsets: [begin, end] };
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const file = openSync(join(folder, "model.safetensors"), "wx");
  writeSync(file, new Uint8Array(BigUint64Array.of(BigInt(text.length)).buffer));
  writeSync(file, text);
  const part = new Uint8Array(2 ** 24).fill(0x3c);
  for (let at = 0; at < end; ) at += writeSync(file, part, 0, Math.min(part.length, end - at));
}
