/**
 * Which engine and device a run computes with. What was asked for is never replaced by something else; `auto` says why it took
 * what it took.
 *
 * | engine.name | auto, cpu | cuda                                 | webgpu      |
 * | ----------- | --------- | ------------------------------------ | ----------- |
 * | compiled    | the CPU   | onnxruntime's CUDA provider          | the adapter |
 * | tensorflow  | the GPU where TensorFlow finds one, else or if asked for the CPU | the GPU | refused |
 * | eager       | the CPU   | refused                              | refused     |
 * | auto        | below     | tensorflow if installed, else compiled | compiled  |
 *
 * `auto` on device auto: the NVIDIA GPU, through what is installed for it, tensorflow first; without one, compiled on the CPU.
 */
import { deviceInWords } from "../../model/engine/compiled.ts";
import { HOW_TO_GET_CUDA, hasCudaProvider } from "../../model/engine/cuda.ts";
import { findLibtensorflow, PLACES_IN_WORDS, type Places, placesOf } from "../../model/engine/tensorflow/find.ts";
import type { RunConfig } from "../config/config.ts";
import { RunError } from "../errors.ts";
import { nvidiaGpus } from "./nvidia.ts";
import type { EngineSettings } from "./start-engine.ts";

type CompiledSettings = Extract<EngineSettings, { name: "compiled" }>;

/** What a choice depends on beside the config. */
export interface Machine {
  /** Name of the NVIDIA GPU that is listed first; null if there is none. */
  readonly gpu: () => string | null;
  readonly places: Places;
  /** Whether onnxruntime's CUDA provider is installed. */
  readonly cudaProvider: () => boolean;
  /** @throws {Error} in one line, if engine compiled cannot compute on the device that it is set to. */
  readonly expectDevice: (settings: CompiledSettings) => void;
}

/** This machine, as it is. */
export const thisMachine: Machine = {
  gpu: () => nvidiaGpus()[0]?.name ?? null,
  places: placesOf(process.env),
  cudaProvider: () => hasCudaProvider(),
  expectDevice: (settings) => void deviceInWords(settings.device ?? "cpu", settings),
};

/** An engine, and a sentence for people where the choice needs one. */
export interface Choice {
  readonly engine: EngineSettings;
  readonly reason: string | null;
}

const GET_TENSORFLOW = "get one: bun run setup tensorflow";

/**
 * The learner's engine.
 *
 * @throws {RunError} if libtensorflow is asked for and not to be found, or nothing is installed for a GPU that is asked for.
 */
export function learnerEngine({ engine }: RunConfig, threads: number, machine: Machine): Choice {
  const { name, device, softwareAdapter } = engine;
  const cpu = { name: "compiled", threads } as const;
  if (name === "eager") return { engine: { name, threads }, reason: null };
  const compiled = (settings: CompiledSettings, reason: string | null) => ({
    engine: there(settings, machine),
    reason,
  });
  if (device === "webgpu") return compiled({ ...cpu, device, softwareAdapter }, null);
  if (name === "compiled") return compiled(device === "cuda" ? { ...cpu, device } : cpu, null);
  const library = findLibtensorflow(machine.places);
  if (name === "tensorflow") {
    if (library !== null) return { engine: { name, threads, library, device }, reason: null };
    throw new RunError(`engine tensorflow needs libtensorflow, which is not in ${PLACES_IN_WORDS}; ${GET_TENSORFLOW}`);
  }
  const gpu = device === "auto" ? machine.gpu() : null;
  if (device === "cpu" || (device === "auto" && gpu === null)) return { engine: cpu, reason: null };
  const reason = gpu === null ? null : `the learner takes ${gpu}`;
  if (library !== null) return { engine: { name: "tensorflow", threads, library, device: "cuda" }, reason };
  if (machine.cudaProvider()) return compiled({ ...cpu, device: "cuda" }, reason);
  const lack = `neither a libtensorflow (${GET_TENSORFLOW}) nor onnxruntime's CUDA libraries (${HOW_TO_GET_CUDA}) are there`;
  if (gpu === null) throw new RunError(`device cuda: ${lack}`);
  return { engine: cpu, reason: `${gpu} is not used: ${lack}` };
}

/** The same settings. @throws {RunError} if their device is not there, which starting again does not mend. */
function there(settings: CompiledSettings, { expectDevice }: Pick<Machine, "expectDevice">): CompiledSettings {
  try {
    expectDevice(settings);
  } catch (error) {
    throw new RunError((error as Error).message);
  }
  return settings;
}

/**
 * A sampler's engine. Many share a host, and the learner owns its GPU: only what is asked for of engine compiled is theirs too.
 *
 * @param guest  it is on another machine, whose devices the config does not know.
 * @throws {RunError} if the device that was asked for is not there.
 */
export function samplerEngine(
  { engine }: RunConfig,
  threads: number,
  { expectDevice }: Pick<Machine, "expectDevice">,
  guest = false,
): EngineSettings {
  const { name, device, softwareAdapter } = engine;
  if (name === "eager") return { name, threads };
  const own = { name: "compiled", threads } as const;
  if (guest) return own;
  if (device === "webgpu") return there({ ...own, device, softwareAdapter }, { expectDevice });
  return name === "compiled" && device === "cuda" ? there({ ...own, device }, { expectDevice }) : own;
}
