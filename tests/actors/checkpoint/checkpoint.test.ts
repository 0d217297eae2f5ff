/** A checkpoint loads bit for bit. A damaged checkpoint is refused. A failed save damages no earlier checkpoint. */
import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync, truncateSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import {
  CheckpointError,
  keepCheckpoints,
  latestCheckpoint,
  loadCheckpoint,
  rollBackTo,
  saveCheckpoint,
} from "../../../actors/checkpoint/checkpoint.ts";
import { type Disk, realDisk } from "../../../actors/checkpoint/disk.ts";
import { readSafetensors } from "../../../model/checkpoint/safetensors.ts";
import { ModelConfig } from "../../../model/policy/model-config.ts";
import { parameterCount } from "../../../model/policy/parameters.ts";
import { figure } from "../../figure.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { checkpointOf, type Fault, faultyDisk, model } from "./faulty-disk.ts";

let folder: string;
beforeEach(() => {
  folder = temporaryFolder();
});

const FILES = ["SHA256SUMS", "critic.safetensors", "optimizer.safetensors", "policy.safetensors", "state.json"];
const bits = (values: Float32Array) => new Uint32Array(values.buffer, values.byteOffset, values.length);

describe("a checkpoint", () => {
  test("comes back as it was: parameters, both moments, steps, critic, state", async () => {
    const path = await saveCheckpoint(folder, checkpointOf(120));
    expect(path).toBe(join(folder, "u000120"));
    expect(readdirSync(path).sort()).toEqual(FILES);
    expect(await loadCheckpoint(path)).toEqual(checkpointOf(120));
    expect(await latestCheckpoint(folder)).toEqual({ found: path, skipped: [] });
  });

  test("needs no critic", async () => {
    const saved = { ...checkpointOf(1), critic: null };
    expect(await loadCheckpoint(await saveCheckpoint(folder, saved))).toEqual(saved);
  });

  test("keeps every float32, bit for bit: zeros with a sign, subnormals, infinities", async () => {
    const { policy, ...rest } = checkpointOf(1);
    const count = policy.parameters.length;
    const anyFloats = fc
      .float32Array({ minLength: count, maxLength: count, noNaN: true })
      .map((values) => Float32Array.from(values));
    await fc.assert(
      fc.asyncProperty(anyFloats, anyFloats, async (parameters, variance) => {
        const path = await saveCheckpoint(folder, { ...rest, policy: { ...policy, parameters, variance } });
        const loaded = (await loadCheckpoint(path)).policy;
        expect(bits(loaded.parameters)).toEqual(bits(parameters));
        expect(bits(loaded.variance)).toEqual(bits(variance));
      }),
      { numRuns: 10 },
    );
  });

  test("has the policy under the names that Hugging Face's Qwen2 has", async () => {
    const path = await saveCheckpoint(folder, checkpointOf(1));
    const { tensors, metadata } = readSafetensors(readFileSync(join(path, "policy.safetensors")), "policy");
    expect(metadata["format"]).toBe("pt");
    expect(tensors.get("model.layers.0.self_attn.k_proj.weight")!.shape).toEqual([4, 8]);
    expect([...tensors.keys()].filter((name) => name.includes("qkv"))).toEqual([]);
  });

  test.skipIf(Bun.which("sha256sum") === null)("can be checked by anybody with sha256sum", async () => {
    const path = await saveCheckpoint(folder, checkpointOf(1));
    const check = () => Bun.spawnSync(["sha256sum", "--check", "--strict", "SHA256SUMS"], { cwd: path });
    expect(check().stdout.toString().split("\n").filter(Boolean)).toEqual(
      ["policy.safetensors", "critic.safetensors", "optimizer.safetensors", "state.json"].map((name) => `${name}: OK`),
    );
    flip(join(path, "state.json"), 90);
    expect(check().exitCode).toBe(1);
  });

  test("of gigabytes is neither copied nor written in pieces that keep the event loop from answering", async () => {
    const large = ModelConfig.parse({ ...model, vocabulary: 2 ** 20 });
    const values = () => new Float32Array(parameterCount(large)).fill(1);
    const policy = { parameters: values(), moment: values(), variance: values(), step: 1 };
    const pieces: Uint8Array[] = [];
    const disk: Disk = {
      ...realDisk,
      write: (file, all) =>
        realDisk.write(
          file,
          Iterator.from(all).map((piece) => pieces[pieces.push(piece) - 1]!),
        ),
    };
    const saved = { ...checkpointOf(1), model: large, policy, critic: null };
    const path = await saveCheckpoint(folder, saved, disk);
    expect(Math.max(...pieces.map((piece) => piece.length))).toBeLessThanOrEqual(2 ** 24);
    const own = new Set([policy.parameters, policy.moment, policy.variance].map(({ buffer }) => buffer));
    const copied = pieces.filter(({ buffer }) => !own.has(buffer as ArrayBuffer));
    expect(copied.reduce((bytes, { length }) => bytes + length, 0)).toBeLessThan(10_000);
    const sums = await Bun.file(join(path, "SHA256SUMS")).text();
    const optimizer = await Bun.file(join(path, "optimizer.safetensors")).bytes();
    expect(sums).toContain(new Bun.CryptoHasher("sha256").update(optimizer).digest("hex"));
    const loaded = await loadCheckpoint(path);
    expect(loaded.policy.moment.every((value) => value === 1)).toBeTrue();
  });

  test("is never replaced: a second one of the same update is beside it, and newer", async () => {
    const first = await saveCheckpoint(folder, checkpointOf(5));
    const again = { ...checkpointOf(5), state: "again" };
    const second = await saveCheckpoint(folder, again);
    expect([first, second]).toEqual([join(folder, "u000005"), join(folder, "u000005-2")]);
    expect((await latestCheckpoint(folder)).found).toBe(second);
    expect([await loadCheckpoint(first), await loadCheckpoint(second)]).toEqual([checkpointOf(5), again]);
  });

  test.each([
    [{ lr: Number.NaN }, "state.lr cannot be saved as JSON: it is NaN"],
    [{ seen: [1, undefined] }, "state.seen[1] cannot be saved as JSON: it is undefined"],
    [{ rewards: Float32Array.of(1) }, "state.rewards cannot be saved as JSON: it is Float32Array"],
    [{ env: Object.create(null) }, "state.env cannot be saved as JSON: it is an object without a prototype"],
  ])("refuses a state that JSON would change: %p", async (state, message) => {
    await expect(saveCheckpoint(folder, { ...checkpointOf(1), state })).rejects.toThrow(new TypeError(message));
    expect(readdirSync(folder)).toEqual([]);
  });

  test("refuses arrays that are not as long as the model", async () => {
    const { policy, ...rest } = checkpointOf(1);
    const short = { ...policy, moment: policy.moment.subarray(1) };
    await expect(saveCheckpoint(folder, { ...rest, policy: short })).rejects.toThrow(
      `the policy has ${policy.parameters.length} parameters, but its optimizer's array moment has ${policy.moment.length - 1} numbers`,
    );
    const other = { ...rest, policy, model: { ...model, layers: 2 } };
    await expect(saveCheckpoint(folder, other)).rejects.toThrow(/the model has \d+ parameters/);
  });
});

/** Turn one bit of a file. */
function flip(file: string, bit: number): void {
  const bytes = readFileSync(file);
  const at = bit % (8 * bytes.length);
  bytes[at >> 3]! ^= 1 << (at & 7);
  writeFileSync(file, bytes);
}

describe("a damaged checkpoint", () => {
  /** The one before is always good, and must be what is found. */
  async function refusedAs(damage: (path: string) => void): Promise<string> {
    const good = await saveCheckpoint(folder, checkpointOf(1));
    const bad = await saveCheckpoint(folder, checkpointOf(2));
    damage(bad);
    const { found, skipped } = await latestCheckpoint(folder);
    expect(found).toBe(good);
    expect(skipped.map(({ path }) => path)).toEqual([bad]);
    const { reason } = skipped[0]!;
    await expect(loadCheckpoint(bad)).rejects.toThrow(`cannot load checkpoint ${bad}: ${reason}`);
    expect(reason).not.toContain("\n");
    return reason;
  }

  test.each(FILES)("is refused without %s, by name", async (name) => {
    expect(await refusedAs((path) => unlinkSync(join(path, name)))).toBe(`${name} is missing`);
  });

  test.each(FILES.slice(1))("is refused if %s was cut, naming it", async (name) => {
    const reason = await refusedAs((path) => truncateSync(join(path, name), 100));
    expect(reason).toMatch(new RegExp(`^${name} is corrupt: its 100 bytes have sha256 [0-9a-f]{64}, and`));
  });

  test.each([0, 1, 70, 200])("is refused if its list of digests was cut to %i bytes", async (length) => {
    expect(await refusedAs((path) => truncateSync(join(path, "SHA256SUMS"), length))).toMatch(
      /SHA256SUMS was cut|is not in SHA256SUMS/,
    );
  });

  test("is refused with a file that was not saved", async () => {
    expect(await refusedAs((path) => writeFileSync(join(path, "extra.bin"), "x"))).toBe(
      "extra.bin is not in SHA256SUMS",
    );
  });

  test("is refused for any flipped bit of any file", async () => {
    const path = await saveCheckpoint(folder, checkpointOf(2));
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...FILES), fc.nat(), async (name, bit) => {
        flip(join(path, name), bit);
        await expect(loadCheckpoint(path)).rejects.toThrow(`cannot load checkpoint ${path}: `);
        flip(join(path, name), bit);
      }),
      { numRuns: 150 },
    );
    expect(await loadCheckpoint(path)).toEqual(checkpointOf(2));
  });

  test("that is no checkpoint at all is one clear line", async () => {
    const path = join(folder, "u000009");
    await expect(loadCheckpoint(path)).rejects.toThrow(
      `cannot load checkpoint ${path}: the folder is empty or missing`,
    );
    expect(await latestCheckpoint(join(folder, "none"))).toEqual({ found: null, skipped: [] });
  });
});

/** Calls that one save makes of the disk, in order. */
const CALLS = [
  "list",
  "remove",
  "makeFolder",
  "write",
  "write",
  "write",
  "write",
  "write",
  "syncFolder",
  "rename",
  "syncFolder",
];
/** Before and after each call, and each write cut in twenty places. */
const FAULTS: Fault[] = CALLS.flatMap((name, call) =>
  (name === "write" ? Array.from({ length: 21 }, (_, cut) => cut / 20) : [0, 1]).map((done) => ({ call, done })),
);

/** A save that goes wrong after `u000001` was saved: what is left must be that one, or the new one, whole. */
async function leftAfter(attempt: () => Promise<unknown>): Promise<string[]> {
  await attempt();
  const { found } = await latestCheckpoint(folder);
  const update = found === join(folder, "u000002") ? 2 : 1;
  expect(await loadCheckpoint(join(folder, "u000001"))).toEqual(checkpointOf(1));
  expect(await loadCheckpoint(found!)).toEqual(checkpointOf(update));
  const left = readdirSync(folder);
  // The next save goes through, and tidies up.
  expect(await saveCheckpoint(folder, checkpointOf(2))).toBe(join(folder, update === 2 ? "u000002-2" : "u000002"));
  await keepCheckpoints(folder, 5, []);
  expect(readdirSync(folder).filter((name) => name.startsWith("."))).toEqual([]);
  return left;
}

describe("a save that goes wrong", () => {
  const held = { killed: 0, full: 0 };
  afterAll(() => {
    figure("learner killed during a checkpoint", {
      points: FAULTS.length,
      "the one before, or the new one, whole": held.killed,
    });
    figure("disk full in a checkpoint", { points: held.full, corrupt: 0, "files left": 0 });
  });

  beforeEach(async () => void (await saveCheckpoint(folder, checkpointOf(1))));

  test("makes the calls that the tests below break, in this order", async () => {
    const { disk, calls } = faultyDisk({ call: -1, done: 0 }, () => {
      throw new Error("never");
    });
    await saveCheckpoint(folder, checkpointOf(2), disk);
    expect(calls).toEqual(CALLS);
    expect(FAULTS.length).toBeGreaterThan(100);
  });

  test.each(FAULTS)("keeps the checkpoint before, if the process dies at call $call, $done done", async (fault) => {
    // Dead: no call after this one is made.
    const dead = new Promise<never>(() => {});
    const { promise: died, resolve } = Promise.withResolvers<void>();
    const { disk } = faultyDisk(fault, () => {
      resolve();
      throw dead;
    });
    const gone = new Proxy(disk, {
      get:
        (target, name: keyof typeof disk) =>
        async (...args: never[]) => {
          try {
            return await (target[name] as (...args: never[]) => Promise<unknown>)(...args);
          } catch (thrown) {
            if (thrown === dead) return dead;
            throw thrown;
          }
        },
    });
    await leftAfter(() => Promise.race([saveCheckpoint(folder, checkpointOf(2), gone), died]));
    held.killed++;
  });

  // A full disk is noticed and tidied up wherever it cuts, so three cuts of a write are enough.
  test.each(FAULTS.filter(({ done }) => [0, 0.5, 1].includes(done)))(
    "leaves nothing behind on a full disk at call $call, $done done, with a reason",
    async (fault) => {
      const { disk } = faultyDisk(fault, (call) => {
        throw Object.assign(new Error(`ENOSPC: no space left on device, ${call}`), { code: "ENOSPC" });
      });
      const left = await leftAfter(async () => {
        await expect(saveCheckpoint(folder, checkpointOf(2), disk)).rejects.toThrow(
          /^cannot save \S+u000002, \d+ bytes: the disk is full; earlier checkpoints are intact\. Free disk space, or lower checkpoint\.keep$/,
        );
      });
      expect(left.filter((name) => name.startsWith("."))).toEqual([]);
      held.full++;
    },
  );

  test("names any other failure as the system does", async () => {
    const { disk } = faultyDisk({ call: 3, done: 0 }, () => {
      throw Object.assign(new Error("EIO: i/o error, write"), { code: "EIO" });
    });
    await expect(saveCheckpoint(folder, checkpointOf(2), disk)).rejects.toThrow(/ bytes: EIO: i\/o error, write$/);
  });

  test.each([
    [3, 0.5],
    [7, 0.9],
    [8, 1],
    [9, 0],
    [9, 1],
  ])("keeps the checkpoint before, if a real process is killed at call %i, %p done", async (call, done) => {
    await leftAfter(async () => {
      const script = join(import.meta.dir, "checkpoint-process.ts");
      const child = Bun.spawn([process.execPath, script, folder, "2", String(call), String(done)]);
      await child.exited;
      expect(child.signalCode).toBe("SIGKILL");
    });
  });

  test("is reported when it was cut off, and never taken for a checkpoint", async () => {
    const script = join(import.meta.dir, "checkpoint-process.ts");
    await Bun.spawn([process.execPath, script, folder, "2", "9", "0"]).exited;
    expect(await latestCheckpoint(folder)).toEqual({
      found: join(folder, "u000001"),
      skipped: [
        {
          path: join(folder, ".writing-u000002"),
          reason: "the process ended while it wrote or removed this folder",
        },
      ],
    });
  });
});

describe("rollBackTo", () => {
  test("sets later checkpoints aside, so that no run resumes from them, and takes the newest of the update", async () => {
    for (const update of [10, 20, 20, 30]) await saveCheckpoint(folder, checkpointOf(update));
    expect(await rollBackTo(folder, 20)).toBe(join(folder, "u000020-2"));
    expect((await latestCheckpoint(folder)).found).toBe(join(folder, "u000020-2"));
    await saveCheckpoint(folder, checkpointOf(30));
    await rollBackTo(folder, 10);
    expect(readdirSync(folder).sort()).toEqual([
      "given-up-1-u000030",
      "given-up-2-u000020",
      "given-up-2-u000020-2",
      "given-up-2-u000030",
      "u000010",
    ]);
  });

  test("says which checkpoints it could not set aside, and why", async () => {
    for (const update of [10, 20]) await saveCheckpoint(folder, checkpointOf(update));
    const disk = { ...realDisk, rename: () => Promise.reject(new Error("EROFS: read-only file system, rename")) };
    const text = `cannot set aside the checkpoints after ${join(folder, "u000010")}: EROFS: read-only file system, rename`;
    await expect(rollBackTo(folder, 10, disk)).rejects.toThrow(new CheckpointError(text));
  });

  test("needs a checkpoint of that update", async () => {
    await saveCheckpoint(folder, checkpointOf(10));
    await expect(rollBackTo(folder, 20)).rejects.toThrow("has no checkpoint of update 20 to go back to");
  });
});

describe("keepCheckpoints", () => {
  test("keeps the newest, and the best besides", async () => {
    for (const update of [10, 20, 30, 40, 1_000_000]) await saveCheckpoint(folder, checkpointOf(update));
    const gone = await keepCheckpoints(folder, 2, [20]);
    expect(gone.map((path) => path.slice(-7))).toEqual(["u000030", "u000010"]);
    expect(readdirSync(folder).sort()).toEqual(["u000020", "u000040", "u1000000"]);
    expect((await latestCheckpoint(folder)).found).toBe(join(folder, "u1000000"));
  });

  test("leaves alone what is no checkpoint", async () => {
    await saveCheckpoint(folder, checkpointOf(1));
    for (const name of ["notes.txt", "u12", ".hidden"]) writeFileSync(join(folder, name), "mine");
    expect(await keepCheckpoints(folder, 1, [])).toEqual([]);
    expect(readdirSync(folder).sort()).toEqual([".hidden", "notes.txt", "u000001", "u12"]);
  });

  test("killed while removing leaves no half a checkpoint to be found", async () => {
    for (const update of [1, 2]) await saveCheckpoint(folder, checkpointOf(update));
    const { disk } = faultyDisk({ call: 2, done: 0 }, () => {
      throw new Error("killed");
    });
    await expect(keepCheckpoints(folder, 1, [], disk)).rejects.toThrow("killed");
    expect((await latestCheckpoint(folder)).found).toBe(join(folder, "u000002"));
    await keepCheckpoints(folder, 1, []);
    expect(readdirSync(folder)).toEqual(["u000002"]);
  });
});
