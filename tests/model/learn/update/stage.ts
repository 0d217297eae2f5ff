/** Episodes that a tiny policy played, and networks with such a policy, for tests of updates. */

import { compiledEngine } from "../../../../model/engine/compiled.ts";
import type { Engine } from "../../../../model/engine/engine.ts";
import { Network } from "../../../../model/learn/network.ts";
import type { TrainingEpisode, UpdateNetworks, UpdateSettings } from "../../../../model/learn/update/types.ts";
import { update } from "../../../../model/learn/update/update.ts";
import type { ModelConfig } from "../../../../model/policy/model-config.ts";
import { layParameters, type Parameters } from "../../../../model/policy/parameters.ts";
import { sequence } from "../../../../model/rng.ts";
import { tinyModel, tinyParameters } from "../../policy/tiny-policy.ts";
import { referenceScores } from "./reference-update.ts";

export const engine = compiledEngine({ threads: 1 });
export const model: ModelConfig = { ...tinyModel, layers: 1 };
export const criticModel: ModelConfig = { ...model, head: "value" };

export const settings: UpdateSettings = {
  filter: { strategy: "top_ratio", value: 0.67, order: "largest" },
  normalization: { grouping: "state", method: "identity" },
  scaling: { softReweight: false, filterLossScaling: "none", lengthWeighting: false, zero: false },
  dropConstant: false,
  overlong: null,
  importance: null,
  klInReward: null,
  observationLoss: 0,
  covariance: null,
  lossOn: "replies",
  writtenTokensMax: 8,
  estimator: { kind: "grpo" },
  policy: {
    rule: { kind: "ppo", clipLow: 0.2, clipHigh: 0.28, dualClip: 3 },
    entropyCoefficient: 0.01,
    kl: null,
  },
  aggregation: "token-mean",
  epochs: 1,
  minibatch: 64,
  temperature: 1,
  trainPolicy: true,
  critic: null,
  limits: { tokensMax: 64, lengthMultiple: 4, widthMultiple: 4 },
  // An epsilon near the gradients' own size, so that a step tells how large each of them was.
  optimizer: { learningRate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-2, weightDecay: 0.1, clipNorm: 0.5 },
};

/**
 * Episodes of two turns: prompt, reply, prompt, reply. If `forgetful`, the second turn is in a context of its own. The recorded
 * log-probabilities differ a little from the policy's.
 */
export function play(
  flat: Float32Array,
  rewards: readonly number[],
  groupSize: number,
  { temperature = 1, forgetful = false } = {},
): TrainingEpisode[] {
  const uniform = sequence(3, "played");
  const draw = (count: number) => Array.from({ length: count }, () => Math.floor(uniform() * model.vocabulary));
  return rewards.map((reward, i) => {
    const replies = [1 + (i % 3), 1 + ((i + 1) % 2)] as const;
    const tokens = Int32Array.from([...draw(2), ...draw(replies[0]), ...draw(1 + (i % 2)), ...draw(replies[1])]);
    const written = new Uint8Array(tokens.length).fill(1, 2, 2 + replies[0]).fill(1, tokens.length - replies[1]);
    const contexts = forgetful ? [0, 2 + replies[0]] : [0];
    const all = referenceScores(model, flat, { tokens, contexts }, temperature);
    const logProbs = Float32Array.from(tokens, (token, t) =>
      written[t] === 1 ? all[t - 1]![token]! + (uniform() - 0.5) * 1.2 : 0,
    );
    const turns = [
      { end: 1 + replies[0], reward: reward / 4, penalty: i % 4 === 0 ? -0.1 : 0 },
      { end: tokens.length - 1, reward: (reward * 3) / 4, penalty: 0 },
    ];
    const trajectory = { tokens, written, logProbs, contexts, turns, version: 1, digest: "0".repeat(64) };
    const group = Math.floor(i / groupSize);
    return { trajectory, group, tag: "Bandit", anchors: ["first", "second"], success: reward >= 0.5 };
  });
}

export const rewards = [1, 0, 0.5, 0.1, 0.1, 0.2, -1, 2, 0];

export async function networks(
  flat: Float32Array,
  extra: { critic?: boolean; reference?: Float32Array } = {},
  on: Engine = engine,
): Promise<UpdateNetworks & { parameters: Parameters }> {
  const parameters = layParameters(model, flat.slice());
  return {
    parameters,
    policy: await Network.create(on, model, parameters),
    critic: extra.critic ? await Network.create(on, criticModel, tinyParameters(criticModel, 5, 5)) : null,
    reference: extra.reference ? await Network.create(on, model, layParameters(model, extra.reference)) : null,
  };
}

export const start = tinyParameters(model).flat;

/** An update of the networks that `start` begins. @param changes  of `settings` */
export const updated = async (changes: Partial<UpdateSettings>, played = play(start, rewards, 3)) =>
  update(await networks(start), played, { ...settings, ...changes });
