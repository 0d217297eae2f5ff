/**
 * The memory of the learner's networks, which the learner's threads share, and the initial contents of this memory. A critic is a network of
 * its own, or one more head of the policy's network. In the second case the policy's memory is the first part of the critic's memory.
 */
import { baseOf, differingKey, type ModelConfig } from "../../model/policy/model-config.ts";
import { initialize, layParameters, type Parameters, parameterCount } from "../../model/policy/parameters.ts";
import { sequence, type Uniform } from "../../model/rng.ts";
import { type Checkpoint, loadCheckpoint, type NetworkMemory, weightsElsewhere } from "../checkpoint/checkpoint.ts";
import { nextTurn } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import { messageOf, RunError } from "../errors.ts";
import { criticHead, loadPretrained, policyOf, shareBody } from "../policy/pretrained.ts";
import { needsCritic } from "../training/update-settings.ts";

export interface LearnerMemory {
  /** The policy that samplers play with. */
  readonly policy: NetworkMemory;
  /** null if the run has no critic. */
  readonly critic: { readonly model: ModelConfig; readonly memory: NetworkMemory } | null;
}

export interface Networks extends LearnerMemory {
  readonly model: ModelConfig;
  /** Parameters of the base model, which training does not change, if the run trains adapters; null otherwise. */
  readonly frozen: Float32Array | null;
  /** Name of the policy's saved state at the server of engine tinker; null for other engines, and in a new run. */
  readonly served: string | null;
}

const EMPTY = new Float32Array(0);
/** The empty memory of a policy that a server keeps. */
const EMPTY_MEMORY: NetworkMemory = { parameters: EMPTY, moment: EMPTY, variance: EMPTY, step: 0 };

/**
 * The parameters come from the run's checkpoint. In a new run the parameters come from another run's policy or a pretrained model, or are
 * fresh.
 */
export async function startingNetworks(
  config: RunConfig,
  model: ModelConfig,
  saved: Checkpoint | null,
): Promise<Networks> {
  if (config.engine.name === "tinker") {
    const policy = saved?.policy ?? EMPTY_MEMORY;
    return { policy, critic: null, model, frozen: null, served: saved?.served ?? null };
  }
  const { backbone } = config.learner.critic;
  const memory = learnerMemory(model, needsCritic(config.learner) ? backbone : "none", saved);
  const frozen = model.lora === null ? null : await frozenBase(config.model.path!, baseOf(model));
  const networks = { ...memory, model, frozen, served: null };
  if (saved === null) {
    await fillFirst(config, networks);
    const { checkpoint } = config.model;
    if (checkpoint !== null) await fillPolicy(checkpoint, policyOf(config).dialogue.digest, networks);
  }
  return networks;
}

/** Fills in the policy of another run. @throws {RunError} if that policy is damaged, is at a server, or has another shape or tokenizer */
async function fillPolicy(path: string, tokenizer: string, { policy, model }: Networks): Promise<void> {
  const {
    model: otherModel,
    policy: from,
    tokenizer: otherTokenizer,
    served = null,
  } = await loadCheckpoint(path).catch((error: unknown) => {
    throw new RunError(`cannot start from ${path}: ${messageOf(error)}`, { cause: error });
  });
  if (served !== null) throw new RunError(`cannot start from the policy of ${path}: ${weightsElsewhere(served)}`);
  const key = differingKey(otherModel, model);
  if (key !== undefined) {
    const values = `its ${key} is ${JSON.stringify(otherModel[key])}, and this run's is ${JSON.stringify(model[key])}`;
    throw new RunError(
      `cannot start from the policy of ${path}: ${values}; give the section model the values of that run`,
    );
  }
  if (otherTokenizer !== tokenizer) {
    throw new RunError(
      `cannot start from the policy of ${path}: it was trained with another tokenizer; use that run's model.path and its version of Bunraku`,
    );
  }
  policy.parameters.set(from.parameters);
}

/** Fills the critic, and the policy unless `fillPolicy` fills it. */
async function fillFirst(
  { seed, model: { path, checkpoint } }: RunConfig,
  { policy, critic, model, frozen }: Networks,
) {
  const parameters = layParameters(model, policy.parameters);
  const pretrained = path !== null && frozen === null;
  const valued = critic === null ? null : layParameters(critic.model, critic.memory.parameters);
  // Fill the critic first, because the policy may be a part of the critic's memory. A separate critic gets a copy of a pretrained body.
  if (valued !== null) await begin(pretrained ? criticHead(parameters, valued) : valued, sequence(seed, "critic"));
  if (pretrained) await loadPretrained(path, model, parameters);
  else if (checkpoint === null) await begin(parameters, sequence(seed, "initial weights"));
  if (pretrained && valued !== null && critic!.model.head === "value") shareBody(parameters, valued);
}

/** Makes fresh weights. A large model takes longer than the deadline of heartbeats, so this function pauses after each tensor for heartbeats. */
async function begin({ flat, views }: Parameters, uniform: Uniform): Promise<void> {
  for (const [name, tensor] of views) {
    initialize({ flat, views: new Map([[name, tensor]]) }, uniform);
    await nextTurn();
  }
}

/** The base model's parameters, in memory that the learner shares with the trainer thread. */
async function frozenBase(folder: string, base: ModelConfig): Promise<Float32Array> {
  const values = new Float32Array(new SharedArrayBuffer(4 * parameterCount(base)));
  await loadPretrained(folder, base, layParameters(base, values));
  return values;
}

/**
 * @param critic  "none", or `learner.critic.backbone`
 * @param saved   the contents of the memory; null: zeros
 */
export function learnerMemory(
  model: ModelConfig,
  critic: "none" | "separate" | "shared",
  saved: Pick<Checkpoint, "policy" | "critic"> | null,
): LearnerMemory {
  if (critic === "none") return { policy: memoryOf(model, saved?.policy ?? null), critic: null };
  const criticModel: ModelConfig = { ...model, head: critic === "shared" ? "both" : "value" };
  const memory = memoryOf(criticModel, saved?.critic ?? null);
  const policy =
    critic === "shared" ? beginning(memory, parameterCount(model)) : memoryOf(model, saved?.policy ?? null);
  return { policy, critic: { model: criticModel, memory } };
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

/** Overwrites the memory in place, because the trainer thread uses the same arrays. */
export function fill({ parameters, moment, variance }: NetworkMemory, saved: NetworkMemory): void {
  parameters.set(saved.parameters);
  moment.set(saved.moment);
  variance.set(saved.variance);
}
