/**
 * One StarPO update, whole: from played trajectories to new parameters. Numbers only; who played them is not known here.
 *
 *   rewards → filter groups (StarPO-S) → advantages → minibatches → micro-batches → gradients → AdamW
 *
 * - The filter sees raw rewards; advantages see penalised and normalised ones (update/score.ts, update/prepare.ts).
 * - The unit of rewards, advantages, aggregation and minibatches is the episode, however many contexts it was played in.
 * - Log-probabilities recorded at sampling are the old ones of the ratio: nothing is recomputed to start from, unless
 *   importance weights correct for the difference.
 * - A gradient that is not finite changes nothing, and the result says so.
 */

import { rewardSpread } from "../../health/diagnostics.ts";
import { isConstant, positionsBy } from "../../statistics.ts";
import { faultOf, rawReward, type Trajectory } from "../../trajectory.ts";
import type { Estimator } from "../advantage/advantage.ts";
import type { Scaling } from "../advantage/scaling.ts";
import type { Aggregation } from "../aggregation.ts";
import { type BatchLimits, type MicroBatch, microBatches } from "../batch.ts";
import { type Filtered, type FilterRule, filterGroups } from "../filter/filter.ts";
import type { KlEstimator } from "../kl.ts";
import type { Network } from "../network.ts";
import type { TokenInputs } from "../objective.ts";
import type { AdamWSettings } from "../optimizer.ts";
import { type PolicySettings, policyObjective, valueObjective } from "../policy-objectives.ts";
import type { Normalisation } from "../reward.ts";
import { join, samplesOf } from "../sequences.ts";
import { partOf, sampleInputs } from "./minibatch.ts";
import { meanOf, type Prepared, prepare } from "./prepare.ts";
import { type Overlong, scorePlayed } from "./score.ts";

export interface UpdateSettings {
  readonly filter: FilterRule;
  /** Groups whose raw rewards are all equal go before the filter: whoever played them has replaced them (DAPO). */
  readonly dropConstant: boolean;
  readonly normalisation: Normalisation;
  /** null: long replies lose nothing. */
  readonly overlong: Overlong | null;
  readonly estimator: Estimator;
  /** Factors on advantages. */
  readonly scaling: Scaling;
  /** Truncated importance sampling; null: none. */
  readonly importance: { readonly level: "token" | "sequence"; readonly cap: number } | null;
  readonly policy: PolicySettings;
  /** A penalty per token, before advantages are estimated; null: none. */
  readonly klInReward: { readonly estimator: KlEstimator; readonly coefficient: number } | null;
  readonly aggregation: Aggregation;
  /** Most written tokens that an episode can have: the constant of seq-mean-token-sum-norm. */
  readonly writtenTokensMax: number;
  /** Passes over the kept trajectories. */
  readonly epochs: number;
  /** Trajectories per optimiser step, or into how many steps those that the filter kept are cut. */
  readonly minibatch: number | { readonly parts: number };
  readonly limits: BatchLimits;
  readonly optimizer: AdamWSettings;
  /** For estimators with a critic. */
  readonly critic: CriticSettings | null;
  /** Sampling temperature of the trajectories. */
  readonly temperature: number;
  /** False: only the critic learns. */
  readonly trainPolicy: boolean;
}

export type CriticSettings = {
  readonly valueClip: number;
} & (
  | { readonly backbone: "separate"; readonly optimizer: AdamWSettings }
  /** The critic is the policy's own network, with a head for values: one step for the sum of both losses. */
  | { readonly backbone: "shared"; readonly coefficient: number }
);

export interface Played {
  readonly trajectory: Trajectory;
  /** Any integer per group. */
  readonly group: number;
  /** Env tag. */
  readonly tag: string;
  /** (turns) the state each turn began in, by any name; for gigpo. */
  readonly anchors?: readonly string[];
}

/** What an update did. Means over the update unless said otherwise. */
export interface UpdateResult {
  /** Why nothing was learnt; null if something was. */
  readonly skipped: string | null;
  /** Mean advantage of each played trajectory; null if the filter dropped it. */
  readonly advantages: readonly (number | null)[];
  /** (written tokens) of each played trajectory, where they differ within it; null otherwise. Left out if none was kept. */
  readonly tokenAdvantages?: readonly (Float32Array<ArrayBuffer> | null)[];
  readonly steps: number;
  readonly metrics: Readonly<Record<string, number>>;
}

/** What one update needs beside the policy's network. */
export interface Learners {
  readonly policy: Network;
  /** Needed by estimators with a critic; the policy itself if they share their backbone. */
  readonly critic: Network | null;
  /** What a KL term compares with. */
  readonly reference: Network | null;
}

/**
 * Learn from what was played.
 *
 * @throws {RangeError} if a trajectory cannot be learnt from (see `faultOf`); then nothing has changed.
 */
export async function update(
  learners: Learners,
  played: readonly Played[],
  settings: UpdateSettings,
): Promise<UpdateResult> {
  played.forEach(({ trajectory }, i) => {
    const fault = faultOf(trajectory, Number.POSITIVE_INFINITY);
    if (fault !== null) throw new RangeError(`cannot learn from trajectory ${i} of ${played.length}: ${fault}`);
  });
  const { scored, overlongMean } = scorePlayed(played, settings.normalisation, settings.overlong);
  const groups = played.map(({ group }) => group);
  const rewards = played.map(({ trajectory }) => rawReward(trajectory));
  const candidates = settings.dropConstant ? varied(rewards, groups) : [...played.keys()];
  const filtered = await filter(
    learners,
    candidates.map((row) => played[row]!),
    settings,
  );
  const spread = rewardSpread(rewards, groups);
  const metrics: Record<string, number> = { keptGroups: filtered.kept.length / new Set(groups).size };
  if (spread !== null) Object.assign(metrics, { inGroupStd: spread.rewardStd, zeroStdGroups: spread.zeroStdShare });
  if (filtered.keptRewardStd !== null) metrics["keptInGroupStd"] = filtered.keptRewardStd;
  if (overlongMean !== null) metrics["overlong"] = overlongMean;
  const advantages: (number | null)[] = played.map(() => null);
  if (filtered.reason !== null) return { skipped: filtered.reason, advantages, steps: 0, metrics };

  const rows = filtered.rows.map((row) => candidates[row]!);
  const kept = rows.map((row) => scored[row]!);
  const data = await prepare(learners, kept, filtered.keptShare, settings);
  const trained = await train(learners, data, settings);
  Object.assign(metrics, trained.metrics, data.metrics);
  const tokenAdvantages: (Float32Array<ArrayBuffer> | null)[] = played.map(() => null);
  rows.forEach((row, i) => {
    const ofTokens = Float32Array.from(data.advantages[i]!);
    advantages[row] = meanOf(data.advantages[i]!);
    if (!isConstant([...ofTokens])) tokenAdvantages[row] = ofTokens;
  });
  return { skipped: trained.skipped, advantages, tokenAdvantages, steps: trained.steps, metrics };
}

/** Rows of the groups whose raw rewards differ. */
function varied(rewards: readonly number[], groups: readonly number[]): number[] {
  const differ = [...positionsBy(groups).values()].filter((rows) => !isConstant(rows.map((row) => rewards[row]!)));
  return differ.flat().sort((a, b) => a - b);
}

type Selection = Pick<Filtered, "kept" | "rows" | "reason"> & Pick<Filtered["metrics"], "keptShare" | "keptRewardStd">;

async function filter({ policy }: Learners, played: readonly Played[], settings: UpdateSettings): Promise<Selection> {
  if (played.length === 0) {
    const reason = "within every group all rewards are equal, also in those that replaced others";
    return { kept: [], rows: [], reason, keptShare: 0, keptRewardStd: null };
  }
  const candidates = {
    groups: played.map(({ group }) => group),
    rewards: played.map(({ trajectory }) => rawReward(trajectory)),
    lengths: played.map(({ trajectory }) => trajectory.written.reduce((sum, one) => sum + one, 0)),
  };
  const entropies = needsEntropies(settings.filter) ? await meanEntropies(policy, played, settings) : null;
  const filtered = filterGroups({ ...candidates, ...(entropies === null ? {} : { entropies }) }, settings.filter);
  const { keptShare, keptRewardStd } = filtered.metrics;
  return { ...filtered, keptShare, keptRewardStd };
}

const needsEntropies = (rule: FilterRule) => "metric" in rule && rule.metric.startsWith("entropy");

/** (played) mean entropy of the policy over the written tokens, in nats. */
async function meanEntropies(policy: Network, played: readonly Played[], { limits, temperature }: UpdateSettings) {
  const samples = played.map(({ trajectory }) => samplesOf(trajectory));
  const { entropies } = await policy.score(microBatches(samples.flat(), limits), temperature);
  return join(samples, entropies).map(meanOf);
}

async function train({ policy, critic }: Learners, data: Prepared, settings: UpdateSettings) {
  const objective = policyObjective(settings.policy);
  const sums: Record<string, number> = {};
  const count = data.samples.length;
  const { minibatch } = settings;
  const size = typeof minibatch === "number" ? minibatch : Math.ceil(count / minibatch.parts);
  let steps = 0;
  let skipped: string | null = null;
  const order = [...data.samples.keys()];
  for (let epoch = 0; epoch < settings.epochs; epoch++) {
    for (let start = 0; start < count; start += size) {
      const part = partOf(data, order.slice(start, start + size));
      const inputs = sampleInputs(part, settings);
      const batches = microBatches(part.samples.flat(), settings.limits);
      if (critic !== null && settings.critic !== null) {
        const valued = await learnValues(critic, settings.critic, batches, inputs);
        if (valued.skipped !== null) skipped = valued.skipped;
        add(sums, valued.metrics);
      }
      if (!settings.trainPolicy) continue;
      const { loss: _, ...result } = await policy.accumulate(objective, batches, inputs, settings.temperature);
      const step = await policy.step(settings.optimizer);
      if (step.applied) steps++;
      else skipped = `the gradient's norm is ${step.gradientNorm}; no step was taken`;
      add(sums, { ...result, gradNorm: step.gradientNorm });
    }
  }
  const parts = settings.epochs * Math.ceil(count / size);
  const metrics = Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, sum / parts]));
  return { skipped, steps, metrics };
}

/** The critic's step; if it shares its backbone, only its gradient, for the policy's step to take along. */
async function learnValues(
  critic: Network,
  settings: CriticSettings,
  batches: readonly MicroBatch[],
  inputs: TokenInputs,
): Promise<{ skipped: string | null; metrics: Record<string, number> }> {
  const objective = valueObjective(settings.valueClip);
  if (settings.backbone === "shared") {
    const { coefficient } = settings;
    const weights = inputs["weights"]!.map((row) => Float32Array.from(row, (weight) => weight * coefficient));
    const { loss: _, ...metrics } = await critic.accumulate(objective, batches, { ...inputs, weights });
    return { skipped: null, metrics: { ...metrics, valueLoss: metrics["valueLoss"]! / coefficient } };
  }
  const { loss: _, ...metrics } = await critic.accumulate(objective, batches, inputs);
  const { applied, gradientNorm } = await critic.step(settings.optimizer);
  const skipped = applied ? null : `the norm of the critic's gradient is ${gradientNorm}; no step was taken`;
  return { skipped, metrics: { ...metrics, criticGradNorm: gradientNorm } };
}

function add(sums: Record<string, number>, values: Readonly<Record<string, number>>): void {
  for (const [name, value] of Object.entries(values)) sums[name] = (sums[name] ?? 0) + value;
}
