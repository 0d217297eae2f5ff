/** The trainer holds the networks, and computes imitation and updates. It runs in a thread of its own, or in the learner's thread. */
import { crossScores, type Reasoned } from "../../model/health/cross-score.ts";
import { analyzeGradients } from "../../model/health/gradient-analysis.ts";
import type { BucketRule } from "../../model/health/gradient-buckets.ts";
import type { CrossScores } from "../../model/health/mutual-information.ts";
import type { BatchLimits, Sequence } from "../../model/learn/batch.ts";
import { Network } from "../../model/learn/network.ts";
import { evenWeights, imitation } from "../../model/learn/objective.ts";
import type { OptimizerName, OptimizerSettings, OptimizerState } from "../../model/learn/optimizer.ts";
import type { TrainingEpisode, UpdateResult, UpdateSettings } from "../../model/learn/update/types.ts";
import { update } from "../../model/learn/update/update.ts";
import { baseOf, type ModelConfig } from "../../model/policy/model-config.ts";
import { layFrozen, layParameters } from "../../model/policy/parameters.ts";
import type { NetworkMemory } from "../checkpoint/checkpoint.ts";
import { type EngineSettings, startEngine } from "../engine/start-engine.ts";
import { inOrder, type Thread } from "../process/worker-rpc.ts";
import type { Published } from "../weights/publisher.ts";

export interface TrainerSettings {
  readonly engine: EngineSettings;
  readonly optimizer: OptimizerName;
  /** With the head "both", the policy's network is also the critic. */
  readonly model: ModelConfig;
  readonly policy: NetworkMemory;
  /** Parameters of the base model, if the run trains adapters; null otherwise. */
  readonly frozen: Float32Array | null;
  /** A critic with a network of its own; null if there is no such critic. */
  readonly critic: { readonly model: ModelConfig; readonly memory: NetworkMemory } | null;
}

/** The methods of a trainer. Call `start` first. */
export function trainerMethods(openEngine = startEngine) {
  let networks: { policy: Network; critic: Network | null; reference: Network | null };
  let engine: Awaited<ReturnType<typeof startEngine>>;
  let frozen: Float32Array | null;
  let optimizer: TrainerSettings["optimizer"];

  async function network(model: ModelConfig, { parameters, moment, variance, step }: NetworkMemory): Promise<Network> {
    const state: OptimizerState = { moment, variance, step };
    const kept = frozen === null ? null : layFrozen(model, frozen);
    return Network.create(engine, model, layParameters(model, parameters), { state, frozen: kept, optimizer });
  }

  /** With the head "both" one network is policy and critic. */
  const trained = () => [...new Set([networks.policy, networks.critic])].filter((network) => network !== null);

  return {
    async start({ engine: settings, model, policy, critic, ...rest }: TrainerSettings): Promise<string> {
      ({ frozen, optimizer } = rest);
      engine = await openEngine(settings);
      const own = await network(model, policy);
      const shared = model.head === "both" ? own : null;
      networks = {
        policy: own,
        critic: critic === null ? shared : await network(critic.model, critic.memory),
        reference: null,
      };
      return `${engine.name}, ${engine.device}`;
    },
    /** Sets the reference of KL terms. @param parameters  copied as the reference; null: the base model of the adapters is the reference */
    keepReference(parameters: Float32Array | null): void {
      const config = baseOf(networks.policy.config);
      const before = networks.reference?.parameters.flat;
      if (before !== undefined && before !== frozen) engine.release(before);
      networks.reference = Network.scorer(engine, config, layParameters(config, parameters?.slice() ?? frozen!));
    },
    /** Sets the policy optimizer's moments and step to 0, for a new stage of training. */
    resetOptimizer(): void {
      const { policy } = networks;
      policy.optimizerState.moment.fill(0);
      policy.optimizerState.variance.fill(0);
      policy.optimizerState.step = 0;
      policy.toDevice();
    },
    /**
     * Takes one step of imitation, in which all written tokens have the same weight. Steps run in the order of their calls.
     *
     * @returns the mean cross-entropy in nats
     */
    imitate: inOrder(async (demos: readonly Sequence[], limits: BatchLimits, optimizer: OptimizerSettings) => {
      const { loss } = await networks.policy.accumulate(imitation, demos, { weights: evenWeights(demos) }, limits);
      const { applied, gradientNorm } = await networks.policy.step(optimizer);
      if (!applied)
        throw new Error(
          `imitation diverged: the gradient's norm is ${gradientNorm}; lower learningRate in warmStart.stages`,
        );
      networks.policy.toHost({ moments: false });
      return loss!;
    }),
    async update(played: readonly TrainingEpisode[], settings: UpdateSettings): Promise<UpdateResult> {
      const result = await update(networks, played, settings);
      for (const network of trained()) network.toHost({ moments: false });
      return result;
    },
    /** Measures the policy's gradients on these episodes; changes nothing. */
    analyzeGradients: (played: readonly TrainingEpisode[], settings: UpdateSettings, rule: BucketRule) =>
      analyzeGradients(networks, played, settings, rule),
    /** The current policy's log-probabilities of each thought, after the thought's own prompt and after the prompts of the other thoughts. */
    crossScore: (turns: readonly Reasoned[], limits: BatchLimits, temperature: number): Promise<CrossScores> =>
      crossScores(networks.policy, turns, limits, temperature),
    /** Call this after you have copied a checkpoint to the memory of the networks (`NetworkMemory`). @param steps  numbers of optimizer steps in the checkpoint */
    resumeFrom(steps: { policy: number; critic: number | null; served?: string | null }): void {
      networks.policy.optimizerState.step = steps.policy;
      if (networks.critic !== null) networks.critic.optimizerState.step = steps.critic!;
      for (const network of trained()) network.toDevice();
    },
    /** Copies parameters and moments to the memory of the networks, for a checkpoint. @returns numbers of optimizer steps, and null: no server keeps the policy */
    prepareCheckpoint(): { policy: number; critic: number | null; served: string | null } {
      for (const network of trained()) network.toHost({ moments: true });
      return {
        policy: networks.policy.optimizerState.step,
        critic: networks.critic?.optimizerState.step ?? null,
        served: null,
      };
    },
  };
}
export type TrainerMethods = ReturnType<typeof trainerMethods>;

export interface StartedTrainer extends Thread<TrainerMethods> {
  /** Name, device and threads of the engine, such as "compiled, cpu, 2 threads". */
  readonly engine: string;
  /** True if a GPU of this machine trains; if left out, no GPU trains. */
  readonly onGpu?: boolean;
  /** Publishes a policy that a server keeps; left out if the policy's parameters are in the memory of the networks. */
  readonly publish?: (version: number) => Promise<Published>;
  stop(): void | Promise<void>;
}
