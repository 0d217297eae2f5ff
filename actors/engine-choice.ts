/**
 * Which engine and device a run computes with. What was asked for is never replaced by something else; `auto` says why it took
 * what it took.
 */
import { findLibtensorflow, PLACES_IN_WORDS, type Places, placesOf } from "../model/engine/tensorflow/find.ts";
import type { RunConfig } from "./config.ts";
import type { EngineSettings } from "./engine.ts";
import { RunError } from "./errors.ts";

/** What a choice depends on beside the config. */
export interface Machine {
  /** Name of the NVIDIA GPU that nvidia-smi lists first; null if there is none. */
  readonly gpu: () => string | null;
  readonly places: Places;
}

/** This machine, as it is. */
export const thisMachine: Machine = {
  gpu() {
    const program = Bun.which("nvidia-smi");
    if (program === null) return null;
    const asked = Bun.spawnSync([program, "--query-gpu=name", "--format=csv,noheader"], { timeout: 10_000 });
    return asked.exitCode === 0 ? asked.stdout.toString().trim().split("\n")[0] || null : null;
  },
  places: placesOf(process.env),
};

/** An engine, and a sentence for people where the choice needs one. */
export interface Choice {
  readonly engine: EngineSettings;
  readonly reason: string | null;
}

/**
 * The learner's engine: the GPU's where there is one, else what is fastest on a CPU.
 *
 * @throws {RunError} if libtensorflow is asked for and not to be found.
 */
export function learnerEngine({ engine: { name, device } }: RunConfig, threads: number, machine: Machine): Choice {
  if (name === "eager" || name === "compiled") return { engine: { name, threads }, reason: null };
  const library = findLibtensorflow(machine.places);
  if (name === "tensorflow" || device === "cuda") {
    if (library === null) {
      const asked = name === "tensorflow" ? "engine tensorflow" : "device cuda";
      throw new RunError(
        `${asked} needs libtensorflow, which is not in ${PLACES_IN_WORDS}; get one: bun run setup tensorflow`,
      );
    }
    return {
      engine: { name: "tensorflow", threads, library, device: device === "webgpu" ? "auto" : device },
      reason: null,
    };
  }
  const gpu = device === "cpu" ? null : machine.gpu();
  if (gpu === null) return { engine: { name: "compiled", threads }, reason: null };
  if (library === null) {
    const reason = `${gpu} is not used: engine tensorflow needs libtensorflow; get one: bun run setup tensorflow`;
    return { engine: { name: "compiled", threads }, reason };
  }
  return { engine: { name: "tensorflow", threads, library, device: "cuda" }, reason: `the learner takes ${gpu}` };
}

/** A sampler's engine: many of them share a host, and the learner owns its GPU. */
export function samplerEngine({ engine: { name } }: RunConfig, threads: number): EngineSettings {
  return { name: name === "eager" ? "eager" : "compiled", threads };
}
