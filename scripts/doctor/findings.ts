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

/** What one check of doctor found, and what that means for a run. */
interface Finding {
  /** low: a run works, but may be slow or run out of space. absent: a run works without this part. broken: a run fails, or computes wrong numbers. */
  readonly state: "ok" | "low" | "absent" | "broken";
  readonly found: string;
  readonly means: string;
}

type NamedFinding = { readonly name: string } & Finding;

const inState =
  (state: Finding["state"]) =>
  (found: string, means: string): Finding => ({ state, found, means });
const [ok, low, absent, broken] = [inState("ok"), inState("low"), inState("absent"), inState("broken")];

/** All checks. @param runs  folder of new runs, which need not exist. @param port  port of a run's page */
export async function findings(root: string, runs: string, port: number): Promise<NamedFinding[]> {
  const checks: Record<string, () => Finding | Promise<Finding>> = {
    bun: () => bun(root),
    packages: () => packages(root),
    cpu,
    memory,
    disk: () => disk(runs),
    "shared memory": sharedMemory,
    [`port ${port}`]: () => pagePort(port),
    clock,
    sandbox,
    "engine compiled": compiled,
    "engine compiled, webgpu": () => device("webgpu", "--device webgpu"),
    "engine compiled, cuda": () => device("cuda", "--engine compiled --device cuda"),
    "engine tensorflow": libtensorflow,
    "engine eager": eager,
    "NVIDIA GPU": nvidia,
  };
  const all: NamedFinding[] = [];
  for (const [name, check] of Object.entries(checks)) all.push({ name, ...(await check()) });
  return all;
}

const GIB = 2 ** 30;
const gib = (bytes: number) => `${(bytes / GIB).toFixed(1)} GiB`;

/** The default run needs no more memory and disk than this. */
const MEMORY_BYTES_MIN = 4 * GIB;
const DISK_BYTES_MIN = 2 * GIB;
/** Shared memory of this size holds a few versions of the built-in policy's weights. A container has 64 MiB by default. */
const SHARED_BYTES_MIN = 128 * 2 ** 20;

const SIMD = ["avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve"];

function cpu(): Finding {
  const all = cpus();
  const simd = simdFlags();
  const found = `${all.length} x ${all[0]?.model ?? "unknown"}, ${simd === null ? "SIMD unknown" : `SIMD ${simd.join(" ") || "none"}`}`;
  if (all.length < 2) return low(found, "one core: samplers and learner share it");
  const isSlow = simd !== null && !simd.includes("avx2") && !simd.includes("asimd");
  return isSlow ? low(found, "without AVX2 a run is several times slower") : ok(found, "good");
}

function simdFlags(): string[] | null {
  try {
    const flags = /^(?:flags|Features)\s*:(.*)$/m.exec(readFileSync("/proc/cpuinfo", "utf8"))?.[1]?.split(" ") ?? [];
    return SIMD.filter((flag) => flags.includes(flag));
  } catch {
    return null;
  }
}

function memory(): Finding {
  const limit = process.constrainedMemory();
  const total = limit > 0 && limit < totalmem() ? limit : totalmem();
  const found = `${gib(total)}, ${gib(Math.min(freemem(), total))} free now`;
  return total >= MEMORY_BYTES_MIN
    ? ok(found, "enough for the default run")
    : low(found, `${gib(MEMORY_BYTES_MIN)} are surely enough for the default run; less may be too little`);
}

const freeBytes = (folder: string): number => {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
};

function disk(runs: string): Finding {
  let folder = resolve(runs);
  while (!existsSync(folder)) folder = dirname(folder);
  const probe = join(folder, `.doctor-${process.pid}`);
  try {
    writeFileSync(probe, "x");
    unlinkSync(probe);
  } catch (error) {
    const found = `cannot write to ${folder}: ${messageOf(error)}`;
    return broken(found, "runs are stored there; choose another place with --run-dir");
  }
  const free = freeBytes(folder);
  return free >= DISK_BYTES_MIN
    ? ok(`${gib(free)} free`, "enough for many runs")
    : low(`${gib(free)} free`, "a long run may fill the disk; choose another place with --run-dir");
}

function sharedMemory(): Finding {
  try {
    const free = freeBytes("/dev/shm");
    const found = `/dev/shm, ${gib(free)} free`;
    return free >= SHARED_BYTES_MIN
      ? ok(found, "samplers map the learner's weights without a copy")
      : low(found, "too little for large policies; raise --shm-size of the container");
  } catch {
    return absent("no /dev/shm", "weights go through files in the run's folder");
  }
}

async function pagePort(port: number): Promise<Finding> {
  try {
    await checkPort("127.0.0.1", port);
    return ok("free", "a run can serve its page on this port");
  } catch (error) {
    return broken("not free", messageOf(error));
  }
}

/** Deadlines and leases need a monotonic clock with steps below a millisecond. */
function clock(): Finding {
  let last = performance.now();
  let finest = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 100_000; i++) {
    const now = performance.now();
    if (now < last) {
      return broken(`went back by ${(last - now).toFixed(3)} ms`, "deadlines and leases do not work on this machine");
    }
    if (now > last) finest = Math.min(finest, now - last);
    last = now;
  }
  const found = `monotonic, steps of ${(finest * 1e6).toFixed(0)} ns`;
  return finest < 1 ? ok(found, "good") : broken(found, "too coarse for deadlines");
}

/** Runs an empty program in a sandbox. */
function sandbox(): Finding {
  const lack = missingForSandbox();
  return lack === null
    ? ok("bubblewrap runs python3", "the env DeepCoder can judge programs")
    : absent(lack, "only the env DeepCoder needs the sandbox");
}

interface Package {
  readonly version: string;
  readonly engines?: { readonly bun?: string };
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

const readPackage = (folder: string) => JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Package;

function bun(root: string): Finding {
  const needed = readPackage(root).engines?.bun ?? "*";
  const found = `Bun ${Bun.version}`;
  return Bun.semver.satisfies(Bun.version, needed)
    ? ok(found, "the tested version, or newer")
    : broken(found, `this project needs ${needed}`);
}

/** The finding is ok if every direct dependency is installed in the version that package.json names, and the last install used this lock file. */
export function packages(root: string): Finding {
  const { dependencies, devDependencies } = readPackage(root);
  const wanted = Object.entries({ ...dependencies, ...devDependencies });
  const wrong = wanted.flatMap(([name, version]) => {
    const found = installedVersion(root, name);
    return found === version ? [] : [`${name} is ${found ?? "missing"}, wanted ${version}`];
  });
  if (!isPackage && wrong.length === 0 && installedDigest(root) !== lockDigest(root))
    wrong.push("bun.lock has changed since the last install");
  if (wrong.length > 0) return broken(wrong.join("; "), "run `bun run setup --again`");
  const source = isPackage ? "package.json" : "bun.lock";
  return ok(`all ${wanted.length} have the versions of ${source}`, "nothing to install");
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

async function compiled(): Promise<Finding> {
  const means = "the default without an NVIDIA GPU";
  try {
    const { compiledEngine } = await import("../../model/engine/compiled.ts");
    return await multiplies(compiledEngine({ threads: 1 }), means);
  } catch (error) {
    const found = `onnxruntime does not run: ${messageOf(error)}`;
    return broken(found, `${means}; --engine eager works without onnxruntime, far slower`);
  }
}

/** @param flags  the flags of a run on this device */
async function device(device: "webgpu" | "cuda", flags: string): Promise<Finding> {
  const { compiledEngine } = await import("../../model/engine/compiled.ts");
  const { deviceCheck } = await import("../../model/engine/device-check.ts");
  let engine: ReturnType<typeof compiledEngine>;
  try {
    engine = compiledEngine({ threads: 1, device });
  } catch (error) {
    return absent(messageOf(error), `a run refuses ${flags}; runs on the CPU do not need this device`);
  }
  try {
    const fallbacks = await deviceCheck(engine);
    return ok(`${engine.device}: its gradient and its decoding step agree with the CPU's; ${fallbacks}`, flags);
  } catch (error) {
    return broken(messageOf(error), `do not use ${flags}`);
  }
}

async function eager(): Promise<Finding> {
  try {
    const { eagerEngine } = await import("../../model/engine/eager.ts");
    return await multiplies(eagerEngine(), "--engine eager: slow, for checks");
  } catch (error) {
    const found = `TensorFlow.js does not run: ${messageOf(error)}`;
    return broken(found, "no engine works without TensorFlow.js; run `bun run setup --again`");
  }
}

async function libtensorflow(): Promise<Finding> {
  const { findLibtensorflow, PLACES_IN_WORDS, placesOf } = await import("../../model/engine/tensorflow/find.ts");
  const needless = "engine compiled does not need libtensorflow";
  try {
    const path = findLibtensorflow(placesOf(process.env));
    if (path === null) {
      const found = `no libtensorflow in ${PLACES_IN_WORDS}`;
      return absent(found, `${needless}; for engine tensorflow: bun run setup tensorflow`);
    }
    const { tensorflowEngine } = await import("../../model/engine/tensorflow.ts");
    return await multiplies(tensorflowEngine(path, { threads: 1, device: "auto" }), "--engine tensorflow", `${path}: `);
  } catch (error) {
    return broken(messageOf(error), needless);
  }
}

async function multiplies(engine: Engine, means: string, prefix = ""): Promise<Finding> {
  const { matMul } = await import("@tensorflow/tfjs-core");
  const matrix = { shape: [2, 2], dtype: "float32" } as const;
  const compiled = await engine.compile("doctor", ({ a, b }) => ({ c: matMul(a!, b!) }), { a: matrix, b: matrix });
  const a = engine.array(matrix, Float32Array.of(1, 2, 3, 4));
  const b = engine.array(matrix, Float32Array.of(5, 6, 7, 8));
  const c = engine.array(matrix);
  await compiled.run({ a, b }, { c });
  const got = Array.from(c.read(), Number);
  await compiled.dispose();
  const place = `${prefix}${engine.device}`;
  return got.join() === PRODUCT.join()
    ? ok(`${place}: multiplies two matrices correctly`, means)
    : broken(`${place}: computes ${got}, not ${PRODUCT}`, "its numbers are wrong; do not use this engine");
}

function nvidia(): Finding {
  const gpus = nvidiaGpus().map(({ name, memory, driver }) => `${name}, ${memory}, driver ${driver}`);
  return gpus.length > 0
    ? ok(gpus.join("; "), "engines with device cuda or webgpu can use it")
    : absent("nvidia-smi is missing or lists no GPU", "everything runs on the CPU");
}
