/** What `bun run doctor` checks: the machine, Bun and its packages, and the compute engines. */
import { existsSync, readFileSync, statfsSync, unlinkSync, writeFileSync } from "node:fs";
import { cpus, freemem, totalmem } from "node:os";
import { dirname, join, resolve } from "node:path";
import { checkPort } from "../../actors/dashboard/port.ts";
import { nvidiaGpus } from "../../actors/engine/choice.ts";
import { messageOf } from "../../actors/errors.ts";
import { missingForSandbox } from "../../envs/deep-coder/sandbox.ts";
import type { Engine } from "../../model/engine/engine.ts";
import { installedDigest, isPackage, lockDigest } from "../cli/install.ts";

/** One check of doctor: what it found, and what that means for a run. */
export interface Finding {
  readonly name: string;
  /**
   * low: a run works, but may be slow or run out of space. absent: a run works without this part. broken: a run fails, or computes wrong
   * numbers.
   */
  readonly state: "ok" | "low" | "absent" | "broken";
  readonly found: string;
  readonly means: string;
}

/**
 * All checks.
 *
 * @param runs  folder of new runs, which need not exist
 * @param port  port of a run's page
 */
export async function findings(root: string, runs: string, port: number): Promise<Finding[]> {
  return [
    bunFinding(root),
    packagesFinding(root),
    cpuFinding(),
    memoryFinding(),
    diskFinding(runs),
    sharedMemoryFinding(),
    await portFinding(port),
    clockFinding(),
    sandboxFinding(),
    await compiledFinding(),
    await deviceFinding("webgpu"),
    await deviceFinding("cuda"),
    await libtensorflowFinding(),
    await eagerFinding(),
    nvidiaFinding(),
  ];
}

const GIB = 2 ** 30;
const gib = (bytes: number) => `${(bytes / GIB).toFixed(1)} GiB`;

/** The default run needs no more memory and disk than this. */
const MEMORY_BYTES_MIN = 4 * GIB;
const DISK_BYTES_MIN = 2 * GIB;
/** Shared memory of this size holds a few versions of the built-in policy's weights. A container has 64 MiB by default. */
const SHARED_BYTES_MIN = 128 * 2 ** 20;

const SIMD = ["avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve"];

function cpuFinding(): Finding {
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

function memoryFinding(): Finding {
  const limit = process.constrainedMemory();
  const total = limit > 0 && limit < totalmem() ? limit : totalmem();
  const free = Math.min(freemem(), total);
  const found = `${gib(total)}, ${gib(free)} free now`;
  const enough = total >= MEMORY_BYTES_MIN;
  const means = enough ? "enough for the default run" : `${gib(MEMORY_BYTES_MIN)} are enough for the default run`;
  return { name: "memory", state: enough ? "ok" : "low", found, means };
}

function diskFinding(runs: string): Finding {
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
  const means = enough ? "enough for many runs" : "a long run may fill the disk; choose another place with --run-dir";
  return { name: "disk", state: enough ? "ok" : "low", found: `${gib(free)} free`, means };
}

function sharedMemoryFinding(): Finding {
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

async function portFinding(port: number): Promise<Finding> {
  const name = `port ${port}`;
  try {
    await checkPort("127.0.0.1", port);
    return { name, state: "ok", found: "free", means: "a run can serve its page on this port" };
  } catch (error) {
    return { name, state: "broken", found: "not free", means: messageOf(error) };
  }
}

/** Deadlines and leases need a monotonic clock with steps below a millisecond. */
function clockFinding(): Finding {
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
function sandboxFinding(): Finding {
  const lack = missingForSandbox();
  if (lack !== null)
    return { name: "sandbox", state: "absent", found: lack, means: "only the env DeepCoder needs the sandbox" };
  return {
    name: "sandbox",
    state: "ok",
    found: "bubblewrap runs python3",
    means: "the env DeepCoder can judge programs",
  };
}

interface Package {
  readonly version: string;
  readonly engines?: { readonly bun?: string };
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

const readPackage = (folder: string) => JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Package;

function bunFinding(root: string): Finding {
  const needed = readPackage(root).engines?.bun ?? "*";
  const good = Bun.semver.satisfies(Bun.version, needed);
  const means = good ? "the tested version, or newer" : `this project needs ${needed}`;
  return { name: "bun", state: good ? "ok" : "broken", found: `Bun ${Bun.version}`, means };
}

/**
 * The finding is ok if every direct dependency is installed in the version that package.json names, and the last install used this lock
 * file.
 */
export function packagesFinding(root: string): Finding {
  const { dependencies = {}, devDependencies = {} } = readPackage(root);
  const wrong = Object.entries({ ...dependencies, ...devDependencies }).flatMap(([name, wanted]) => {
    const found = installedVersion(root, name);
    return found === wanted ? [] : [`${name} is ${found ?? "missing"}, wanted ${wanted}`];
  });
  const count = Object.keys({ ...dependencies, ...devDependencies }).length;
  if (wrong.length > 0) {
    return { name: "packages", state: "broken", found: wrong.join("; "), means: "run `bun run setup --again`" };
  }
  if (!isPackage && installedDigest(root) !== lockDigest(root)) {
    const found = "bun.lock has changed since the last install";
    return { name: "packages", state: "broken", found, means: "run `bun run setup --again`" };
  }
  return {
    name: "packages",
    state: "ok",
    found: `all ${count} have the versions of ${isPackage ? "package.json" : "bun.lock"}`,
    means: "nothing to install",
  };
}

/** The version in the nearest node_modules: a project may share its packages with Bunraku. */
function installedVersion(folder: string, name: string): string | null {
  try {
    return readPackage(join(folder, "node_modules", name)).version;
  } catch {
    return dirname(folder) === folder ? null : installedVersion(dirname(folder), name);
  }
}

/** [[1 2] [3 4]] times [[5 6] [7 8]]. */
const PRODUCT = [19, 22, 43, 50];

async function compiledFinding(): Promise<Finding> {
  const name = "engine compiled";
  try {
    const { compiledEngine } = await import("../../model/engine/compiled.ts");
    return await multiplies(name, compiledEngine({ threads: 1 }), "the default without an NVIDIA GPU");
  } catch (error) {
    const found = `onnxruntime does not run: ${messageOf(error)}`;
    return {
      name,
      state: "broken",
      found,
      means: "the default without an NVIDIA GPU; --engine eager works without onnxruntime, far slower",
    };
  }
}

async function deviceFinding(device: "webgpu" | "cuda"): Promise<Finding> {
  const name = `engine compiled, ${device}`;
  const flags = device === "webgpu" ? "--device webgpu" : "--engine compiled --device cuda";
  const { compiledEngine } = await import("../../model/engine/compiled.ts");
  const { deviceCheck } = await import("../../model/engine/device-check.ts");
  let engine: ReturnType<typeof compiledEngine>;
  try {
    engine = compiledEngine({ threads: 1, device });
  } catch (error) {
    return {
      name,
      state: "absent",
      found: messageOf(error),
      means: `a run refuses ${flags}; runs on the CPU do not need this device`,
    };
  }
  try {
    const fallbacks = await deviceCheck(engine);
    const found = `${engine.device}: its gradient and its decoding step agree with the CPU's; ${fallbacks}`;
    return { name, state: "ok", found, means: flags };
  } catch (error) {
    return { name, state: "broken", found: messageOf(error), means: `do not use ${flags}` };
  }
}

async function eagerFinding(): Promise<Finding> {
  const name = "engine eager";
  try {
    const { eagerEngine } = await import("../../model/engine/eager.ts");
    return await multiplies(name, eagerEngine(), "--engine eager: slow, for checks");
  } catch (error) {
    const found = `TensorFlow.js does not run: ${messageOf(error)}`;
    return {
      name,
      state: "broken",
      found,
      means: "no engine works without TensorFlow.js; run `bun run setup --again`",
    };
  }
}

async function multiplies(name: string, engine: Engine, means: string, prefix = ""): Promise<Finding> {
  const { matMul } = await import("@tensorflow/tfjs-core");
  const matrix = { shape: [2, 2], dtype: "float32" } as const;
  const compiled = await engine.compile("doctor", ({ a, b }) => ({ c: matMul(a!, b!) }), { a: matrix, b: matrix });
  const a = engine.array(matrix, Float32Array.of(1, 2, 3, 4));
  const b = engine.array(matrix, Float32Array.of(5, 6, 7, 8));
  const c = engine.array(matrix);
  await compiled.run({ a, b }, { c });
  const got = Array.from(c.read(), Number);
  await compiled.dispose();
  const right = got.join() === PRODUCT.join();
  const found = `${prefix}${engine.device}: ${right ? "multiplies two matrices correctly" : `computes ${got}, not ${PRODUCT}`}`;
  return {
    name,
    state: right ? "ok" : "broken",
    found,
    means: right ? means : "its numbers are wrong; do not use this engine",
  };
}

async function libtensorflowFinding(): Promise<Finding> {
  const name = "engine tensorflow";
  const { findLibtensorflow, PLACES_IN_WORDS, placesOf } = await import("../../model/engine/tensorflow/find.ts");
  try {
    const path = findLibtensorflow(placesOf(process.env));
    if (path === null) {
      const means = "engine compiled does not need libtensorflow; for engine tensorflow: bun run setup tensorflow";
      return { name, state: "absent", found: `no libtensorflow in ${PLACES_IN_WORDS}`, means };
    }
    const { tensorflowEngine } = await import("../../model/engine/tensorflow.ts");
    const engine = tensorflowEngine(path, { threads: 1, device: "auto" });
    return await multiplies(name, engine, "--engine tensorflow", `${path}: `);
  } catch (error) {
    return { name, state: "broken", found: messageOf(error), means: "engine compiled does not need libtensorflow" };
  }
}

function nvidiaFinding(): Finding {
  const name = "NVIDIA GPU";
  const gpus = nvidiaGpus().map(({ name, memory, driver }) => `${name}, ${memory}, driver ${driver}`);
  if (gpus.length > 0) {
    return { name, state: "ok", found: gpus.join("; "), means: "engines with device cuda or webgpu can use it" };
  }
  return { name, state: "absent", found: "nvidia-smi is missing or lists no GPU", means: "everything runs on the CPU" };
}
