/**
 * Chooses the engine and device of learner and samplers. If the config names an engine or a device, the learner uses it. If engine and device
 * are both `auto` and the machine has an NVIDIA GPU, the log says whether the learner uses this GPU. The table says where the learner computes,
 * by engine.name (rows) and engine.device (columns):
 *
 * | engine.name | auto, cpu | cuda                                  | webgpu             |
 * | ----------- | --------- | ------------------------------------- | ------------------ |
 * | compiled    | the CPU   | the GPU, through onnxruntime's CUDA   | the WebGPU adapter |
 * | tensorflow  | auto: the GPU if TensorFlow finds one, else the CPU; cpu: the CPU | the GPU | refused |
 * | eager       | the CPU   | refused                               | refused            |
 * | auto        | see below | compiled if it works, else tensorflow | compiled           |
 *
 * With engine tinker, a server computes: see ../tinker/.
 *
 * With device cpu, engine `auto` is compiled on the CPU. With device auto, engine `auto` is the first of these that works: compiled on the
 * NVIDIA GPU, tensorflow on that GPU, compiled on the CPU.
 */
import { deviceInWords } from "../../model/engine/device.ts";
import { findLibtensorflow, PLACES_IN_WORDS, type Places, placesOf } from "../../model/engine/tensorflow/find.ts";
import type { RunConfig } from "../config/config.ts";
import { RunError } from "../errors.ts";
import type { EngineSettings } from "./start-engine.ts";

type CompiledSettings = Extract<EngineSettings, { name: "compiled" }>;

/** The facts about the machine that a choice depends on. */
export interface Machine {
  /** Name of the first NVIDIA GPU; null if there is none. */
  readonly gpu: () => string | null;
  readonly places: Places;
  /** Why engine compiled cannot compute on the device of the settings, in one line; null if it can. */
  readonly lackOf: (settings: CompiledSettings) => string | null;
}

export const thisMachine: Machine = {
  gpu: () => nvidiaGpus()[0]?.name ?? null,
  places: placesOf(process.env),
  lackOf(settings) {
    try {
      deviceInWords(settings.device ?? "cpu", settings);
      return null;
    } catch (error) {
      return (error as Error).message;
    }
  },
};

/** `reason` is a text for the log: which GPU the engine uses, or why it uses none; null if there is nothing to log. */
export interface Choice {
  readonly engine: EngineSettings;
  readonly reason: string | null;
}

const AT_SERVER = "engine tinker computes at its server; this command needs an engine of its own";
const GET_TENSORFLOW = "get one: bun run setup tensorflow";

/**
 * The learner's engine.
 *
 * @throws {RunError} if the config names an engine or device that is not installed.
 */
export function learnerEngine({ engine }: RunConfig, threads: number, machine: Machine): Choice {
  const { name, device, softwareAdapter, tf32, bfloat16Products } = engine;
  if (name === "tinker") throw new RunError(AT_SERVER);
  const cpu = { name: "compiled", threads, bfloat16Products } as const;
  if (name === "eager") return { engine: { name, threads }, reason: null };
  const compiled = (settings: CompiledSettings) => ({ engine: checked(settings, machine), reason: null });
  if (device === "webgpu") return compiled({ ...cpu, device, softwareAdapter });
  if (name === "compiled") return compiled(device === "cuda" ? { ...cpu, device, tf32 } : cpu);
  if (name === "tensorflow") {
    const library = libraryOf(machine);
    if (library !== null) return { engine: { name, threads, library, device }, reason: null };
    throw new RunError(`engine tensorflow needs libtensorflow, which is not in ${PLACES_IN_WORDS}; ${GET_TENSORFLOW}`);
  }
  const gpu = device === "auto" ? machine.gpu() : null;
  if (device === "cpu" || (device === "auto" && gpu === null)) return compiled(cpu);
  const reason = gpu === null ? null : `the learner computes on ${gpu}`;
  const cuda = { ...cpu, device: "cuda" } as const;
  const lack = machine.lackOf(cuda);
  if (lack === null) return { engine: cuda, reason };
  const library = libraryOf(machine);
  if (library !== null) return { engine: { name: "tensorflow", threads, library, device: "cuda" }, reason };
  if (gpu === null) throw new RunError(lack);
  return { engine: cpu, reason: `${gpu} is not used: ${lack}` };
}

/** The path of libtensorflow; null if there is none. @throws {RunError} if LIBTENSORFLOW_PATH is wrong */
function libraryOf({ places }: Pick<Machine, "places">): string | null {
  try {
    return findLibtensorflow(places);
  } catch (error) {
    throw new RunError((error as Error).message);
  }
}

/** @returns the settings, unchanged. @throws {RunError} if engine compiled cannot compute on the device of the settings */
function checked(settings: CompiledSettings, { lackOf }: Pick<Machine, "lackOf">): CompiledSettings {
  const lack = lackOf(settings);
  if (lack !== null) throw new RunError(lack);
  return settings;
}

/**
 * A sampler's engine. Many samplers share a host, and the learner may use the host's GPU. So samplers compute on the CPU, unless the config
 * names engine compiled and device cuda. Samplers never use webgpu, because webgpu copies the key-value caches in every step: one CPU core
 * decodes 20 times as many tokens per second as an H200 with webgpu.
 *
 * @param guest  true if the sampler is on another machine, which may lack the device of the config. Such a sampler computes on the CPU
 * @throws {RunError} if the device that the config names is missing.
 */
export function samplerEngine(
  { engine, sampler: { threads } }: RunConfig,
  machine: Pick<Machine, "lackOf">,
  guest = false,
): EngineSettings {
  const { name, device, tf32, bfloat16Products } = engine;
  if (name === "tinker") throw new RunError(AT_SERVER);
  if (name === "eager") return { name, threads };
  const own = { name: "compiled", threads, ...(bfloat16Products === "all" ? { bfloat16Products } : {}) } as const;
  const onGpu = name === "compiled" && device === "cuda" && !guest;
  return checked(onGpu ? { ...own, device, tf32 } : own, machine);
}

interface NvidiaGpu {
  readonly name: string;
  /** The GPU's memory, such as "143771 MiB". */
  readonly memory: string;
  readonly driver: string;
}

const TIMEOUT_MS = 10_000;

/** The NVIDIA GPUs that nvidia-smi lists on this machine; empty if nvidia-smi is missing or fails. */
export function nvidiaGpus(): NvidiaGpu[] {
  const program = Bun.which("nvidia-smi");
  if (program === null) return [];
  const query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"];
  const asked = Bun.spawnSync([program, ...query], { timeout: TIMEOUT_MS });
  if (asked.exitCode !== 0) return [];
  const lines = asked.stdout.toString().trim().split("\n").filter(Boolean);
  return lines.map((line) => {
    const [name = "", memory = "", driver = ""] = line.split(",").map((part) => part.trim());
    return { name, memory, driver };
  });
}
