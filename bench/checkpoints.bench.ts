/**
 * What reading a pretrained model costs: a safetensors file of 1 GB into the learner's memory, beside what the page cache gives.
 * Run: bun run bench checkpoints [--checkpoints.megabytes=1000]
 * Budget: at least half of the disk's or page cache's read speed, and less than 10 % of memory besides the parameters'. Out of the page
 * cache the system's handing out of new memory, page by page, takes longer than reading; so speed is also compared with doing
 * both (`freshShare`). Bfloat16 becomes float32: twice as many bytes are written as are read.
 */
import { cpSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeModelConfig } from "../model/checkpoint/config.ts";
import { huggingFaceShapes } from "../model/checkpoint/hugging-face.ts";
import { ModelConfig } from "../model/policy/transformer.ts";
import { numbersOf, round } from "./reference.ts";

export const summary = "read a pretrained model of 1 GB, beside disk and page cache; memory besides the parameters'";

interface Row {
  readonly dtype: string;
  readonly gigabytesPerSecond: number;
  readonly pageCacheGigabytesPerSecond: number;
  /** Of the page cache's speed. */
  readonly share: number;
  readonly diskGigabytesPerSecond: number;
  /** Of the disk's speed, with a file that is only there. */
  readonly diskShare: number;
  /** Of what it takes at least on one thread: to read the file, and to be handed out new memory for the parameters. */
  readonly freshShare: number;
  /** Of the parameters' memory. */
  readonly extraMemoryShare: number;
}

export async function run(options: Readonly<Record<string, string>> = {}): Promise<{ name: string; rows: Row[] }> {
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
        `${dtype}: ${row.gigabytesPerSecond} GB/s of ${row.pageCacheGigabytesPerSecond} (x ${row.share}); ` +
          `into new memory x ${row.freshShare}; from disk x ${row.diskShare} of ${row.diskGigabytesPerSecond} GB/s; ` +
          `${(100 * row.extraMemoryShare).toFixed(1)} % more memory than the parameters`,
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  }
  return { name: "checkpoints", rows };
}

const golden = join(import.meta.dir, "../tests/golden/checkpoints/qwen2");

/** A Qwen2 of about so many bytes, whose values are whatever: reading does not look at them. */
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
