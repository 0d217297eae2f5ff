/** Checks the machine: cores, memory, disk, shared memory, the page's port, the clock, the sandbox. */
import { existsSync, readFileSync, statfsSync, unlinkSync, writeFileSync } from "node:fs";
import { cpus, freemem, totalmem } from "node:os";
import { dirname, join, resolve } from "node:path";
import { checkPort } from "../../actors/dashboard/port.ts";
import { messageOf } from "../../actors/errors.ts";
import { sandboxLack } from "../../envs/deep-coder/sandbox.ts";
import type { Finding } from "./finding.ts";

const GIB = 2 ** 30;
const gib = (bytes: number) => `${(bytes / GIB).toFixed(1)} GiB`;

/** The default run needs less memory and disk than this. */
const MEMORY_BYTES_MIN = 4 * GIB;
const DISK_BYTES_MIN = 2 * GIB;
/** Holds a few versions of the built-in policy's weights. A container's default is 64 MiB. */
const SHARED_BYTES_MIN = 128 * 2 ** 20;

const SIMD = ["avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve"];

export function cpuFinding(): Finding {
  const all = cpus();
  const simd = simdFlags();
  const found = `${all.length} x ${all[0]?.model ?? "unknown"}, ${simd === null ? "SIMD unknown" : `SIMD ${simd.join(" ") || "none"}`}`;
  if (all.length < 2) return { name: "cpu", state: "low", found, means: "one core: samplers and learner share it" };
  const slow = simd !== null && !simd.includes("avx2") && !simd.includes("asimd");
  const means = slow ? "without AVX2 a run is several times slower" : "good";
  return { name: "cpu", state: slow ? "low" : "ok", found, means };
}

function simdFlags(): string[] | null {
  try {
    const flags = /^(?:flags|Features)\s*:(.*)$/m.exec(readFileSync("/proc/cpuinfo", "utf8"))?.[1]?.split(" ") ?? [];
    return SIMD.filter((flag) => flags.includes(flag));
  } catch {
    return null;
  }
}

export function memoryFinding(): Finding {
  const limit = process.constrainedMemory();
  const total = limit > 0 && limit < totalmem() ? limit : totalmem();
  const free = Math.min(freemem(), total);
  const found = `${gib(total)}, ${gib(free)} free now`;
  const enough = total >= MEMORY_BYTES_MIN;
  const means = enough ? "enough for the default run" : `${gib(MEMORY_BYTES_MIN)} are enough for the default run`;
  return { name: "memory", state: enough ? "ok" : "low", found, means };
}

/** @param runs  folder of new runs, which need not exist */
export function diskFinding(runs: string): Finding {
  let folder = resolve(runs);
  while (!existsSync(folder)) folder = dirname(folder);
  const probe = join(folder, `.doctor-${process.pid}`);
  try {
    writeFileSync(probe, "x");
    unlinkSync(probe);
  } catch (error) {
    const found = `cannot write to ${folder}: ${messageOf(error)}`;
    return {
      name: "disk",
      state: "broken",
      found,
      means: "runs are stored there; choose another place with --run-dir",
    };
  }
  const { bavail, bsize } = statfsSync(folder);
  const free = bavail * bsize;
  const enough = free >= DISK_BYTES_MIN;
  const means = enough ? "enough for many runs" : "a long run may fill it; choose another place with --run-dir";
  return { name: "disk", state: enough ? "ok" : "low", found: `${gib(free)} free`, means };
}

export function sharedMemoryFinding(): Finding {
  const name = "shared memory";
  try {
    const { bavail, bsize } = statfsSync("/dev/shm");
    const free = bavail * bsize;
    const enough = free >= SHARED_BYTES_MIN;
    const means = enough
      ? "samplers map the learner's weights without a copy"
      : "too little for large policies; raise --shm-size of the container";
    return { name, state: enough ? "ok" : "low", found: `/dev/shm, ${gib(free)} free`, means };
  } catch {
    return { name, state: "absent", found: "no /dev/shm", means: "weights go through files in the run's folder" };
  }
}

export async function portFinding(port: number): Promise<Finding> {
  const name = `port ${port}`;
  try {
    await checkPort("127.0.0.1", port);
    return { name, state: "ok", found: "free", means: "the page will be there" };
  } catch (error) {
    return { name, state: "broken", found: "not free", means: messageOf(error) };
  }
}

/** Deadlines and leases need a monotonic clock with steps below a millisecond. */
export function clockFinding(): Finding {
  let last = performance.now();
  let finest = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 100_000; i++) {
    const now = performance.now();
    if (now < last) {
      const found = `went back by ${(last - now).toFixed(3)} ms`;
      return { name: "clock", state: "broken", found, means: "deadlines and leases do not work on this machine" };
    }
    if (now > last) finest = Math.min(finest, now - last);
    last = now;
  }
  const found = `monotonic, steps of ${(finest * 1e6).toFixed(0)} ns`;
  const fine = finest < 1;
  return { name: "clock", state: fine ? "ok" : "broken", found, means: fine ? "good" : "too coarse for deadlines" };
}

/** Runs an empty program in a sandbox. */
export function sandboxFinding(): Finding {
  const lack = sandboxLack();
  if (lack !== null) return { name: "sandbox", state: "absent", found: lack, means: "only env DeepCoder needs it" };
  return { name: "sandbox", state: "ok", found: "bubblewrap runs python3", means: "env DeepCoder can judge programs" };
}
