/**
 * What a learner's networks lie in, and what lies there when it starts: memory that its threads share. A critic has a network of
 * its own, or is one more head of the policy's; then the policy's memory is the beginning of the critic's.
 */
import { initialize, layParameters, type Parameters, parameterCount } from "../../model/policy/parameters.ts";
import { baseOf, type ModelConfig } from "../../model/policy/transformer.ts";
import { sequence, type Uniform } from "../../model/rng.ts";
import type { Checkpoint } from "../checkpoint/checkpoint.ts";
import type { RunConfig } from "../config/config.ts";
import { beside, loadPretrained, shareBody } from "../policy/pretrained.ts";
import { needsCritic } from "../training/update-settings.ts";
import type { NetworkMemory } from "./trainer.ts";

export interface LearnerMemory {
  /** What samplers play with. */
  readonly policy: NetworkMemory;
  /** null without a critic. */
  readonly critic: { readonly model: ModelConfig; readonly memory: NetworkMemory } | null;
}

/** A learner's networks as it begins with them. */
export interface Networks extends LearnerMemory {
  readonly model: ModelConfig;
  /** The model that adapters are trained beside, and leave as it is; null without adapters. */
  readonly frozen: Float32Array | null;
}

/** Of a checkpoint; else of a pretrained model, or fresh. @param model  the policy's */
export async function startingNetworks(
  config: RunConfig,
  model: ModelConfig,
  saved: Checkpoint | null,
): Promise<Networks> {
  const { backbone } = config.learner.critic;
  const memory = learnerMemory(model, needsCritic(config.learner) ? backbone : "none", saved);
  const frozen = model.lora === null ? null : await frozenBase(config.model.path!, baseOf(model));
  const networks = { ...memory, model, frozen };
  if (saved === null) await fillFirst(config, networks);
  return networks;
}

async function fillFirst({ seed, model: { path } }: RunConfig, { policy, critic, model, frozen }: Networks) {
  const parameters = layParameters(model, policy.parameters);
  const pretrained = path !== null && frozen === null;
  const valued = critic === null ? null : layParameters(critic.model, critic.memory.parameters);
  // A shared body is the policy's, so its own comes after; a pretrained one is copied.
  if (valued !== null) await begin(pretrained ? beside(parameters, valued) : valued, sequence(seed, "critic"));
  if (pretrained) await loadPretrained(path, model, parameters);
  else await begin(parameters, sequence(seed, "initial weights"));
  if (pretrained && valued !== null && critic!.model.head === "value") shareBody(parameters, valued);
}

/** Fresh weights, tensor by tensor: those of a large model take longer than an actor may be silent. */
async function begin({ flat, views }: Parameters, uniform: Uniform): Promise<void> {
  for (const [name, tensor] of views) {
    initialize({ flat, views: new Map([[name, tensor]]) }, uniform);
    await new Promise((next) => setImmediate(next));
  }
}

/** In memory that the trainer's thread reads as well. */
async function frozenBase(folder: string, base: ModelConfig): Promise<Float32Array> {
  const values = new Float32Array(new SharedArrayBuffer(4 * parameterCount(base)));
  await loadPretrained(folder, base, layParameters(base, values));
  return values;
}

/**
 * @param critic  "none", or where its values come from
 * @param saved   to go on from; zeros if null
 */
export function learnerMemory(
  model: ModelConfig,
  critic: "none" | "separate" | "shared",
  saved: Pick<Checkpoint, "policy" | "critic"> | null,
): LearnerMemory {
  if (critic === "none") return { policy: memoryOf(model, saved?.policy ?? null), critic: null };
  const its: ModelConfig = { ...model, head: critic === "shared" ? "both" : "value" };
  const memory = memoryOf(its, saved?.critic ?? null);
  const policy =
    critic === "shared" ? beginning(memory, parameterCount(model)) : memoryOf(model, saved?.policy ?? null);
  return { policy, critic: { model: its, memory } };
}

function memoryOf(model: ModelConfig, saved: NetworkMemory | null): NetworkMemory {
  const shared = (from: Float32Array | undefined) => {
    const values = new Float32Array(new SharedArrayBuffer(4 * parameterCount(model)));
    if (from !== undefined) values.set(from);
    return values;
  };
  return {
    parameters: shared(saved?.parameters),
    moment: shared(saved?.moment),
    variance: shared(saved?.variance),
    step: saved?.step ?? 0,
  };
}

const beginning = ({ parameters, moment, variance, step }: NetworkMemory, count: number): NetworkMemory => ({
  parameters: parameters.subarray(0, count),
  moment: moment.subarray(0, count),
  variance: variance.subarray(0, count),
  step,
});

/** What the trainer's thread shares is written over, not replaced. */
export function fill({ parameters, moment, variance }: NetworkMemory, saved: NetworkMemory): void {
  parameters.set(saved.parameters);
  moment.set(saved.moment);
  variance.set(saved.variance);
}
