/**
 * One StarPO update, whole: from played trajectories to new parameters. Numbers only; who played them is not known here.
 *
 *   rewards → filter groups (StarPO-S) → advantages → minibatches → micro-batches → gradients → AdamW
 *
 * - The filter sees raw rewards; advantages see penalised and normalised ones.
 * - Log-probabilities recorded at sampling are the old ones of the ratio: nothing is recomputed to start from.
 * - A gradient that is not finite changes nothing, and the result says so.
 */
import { CRITIC_KINDS, type Estimator, estimateAdvantages } from "./advantage.ts";
import { type Aggregation, rowLengths, sequenceShares, tokenWeights } from "./aggregation.ts";
import { type BatchLimits, microBatches, type Sequence } from "./batch.ts";
import { explainedVariance, rewardSpread } from "./diagnostics.ts";
import { type FilterRule, filterGroups } from "./filter.ts";
import type { Network, TokenInputs } from "./network.ts";
import { type PolicySettings, policyObjective, valueObjective } from "./objectives.ts";
import type { AdamWSettings } from "./optimizer.ts";
import { type Normalisation, normaliseRewards, normaliseTurns } from "./reward.ts";
import { penalisedReward, rawReward, type Trajectory } from "./trajectory.ts";

export interface UpdateSettings {
  readonly filter: FilterRule;
  readonly normalisation: Normalisation;
  readonly estimator: Estimator;
  readonly policy: PolicySettings;
  readonly aggregation: Aggregation;
  /** Passes over the kept trajectories. */
  readonly epochs: number;
  /** Trajectories per optimiser step. */
  readonly minibatch: number;
  readonly limits: BatchLimits;
  readonly optimizer: AdamWSettings;
  /** For estimators with a critic. */
  readonly critic: { readonly optimizer: AdamWSettings; readonly valueClip: number } | null;
  /** Sampling temperature of the trajectories. */
  readonly temperature: number;
  /** False: only the critic learns. */
  readonly trainPolicy: boolean;
}

export interface Played {
  readonly trajectory: Trajectory;
  /** Any integer per group. */
  readonly group: number;
  /** Env tag. */
  readonly tag: string;
}

/** What an update did. Means over the update unless said otherwise. */
export interface UpdateResult {
  /** Why nothing was learnt; null if something was. */
  readonly skipped: string | null;
  /** Mean advantage of each played trajectory; null if the filter dropped it. */
  readonly advantages: readonly (number | null)[];
  readonly steps: number;
  readonly metrics: Readonly<Record<string, number>>;
}

/** What one update needs beside the policy's network. */
export interface Learners {
  readonly policy: Network;
  /** Needed by estimators with a critic. */
  readonly critic: Network | null;
  /** What a KL term compares with. */
  readonly reference: Network | null;
}

export async function update(
  learners: Learners,
  played: readonly Played[],
  settings: UpdateSettings,
): Promise<UpdateResult> {
  const groups = played.map(({ group }) => group);
  const rewards = played.map(({ trajectory }) => rawReward(trajectory));
  const candidates = { groups, rewards, lengths: played.map(({ trajectory }) => writtenOf(trajectory).length) };
  const entropies = needsEntropies(settings.filter) ? await meanEntropies(learners.policy, played, settings) : null;
  const filtered = filterGroups({ ...candidates, ...(entropies === null ? {} : { entropies }) }, settings.filter);
  const spread = rewardSpread(rewards, groups);
  const metrics: Record<string, number> = { keptGroups: filtered.metrics.keptShare };
  if (spread !== null) Object.assign(metrics, { inGroupStd: spread.rewardStd, zeroStdGroups: spread.zeroStdShare });
  if (filtered.metrics.keptRewardStd !== null) metrics["keptInGroupStd"] = filtered.metrics.keptRewardStd;
  const dropped = played.map(() => null);
  if (filtered.reason !== null) return { skipped: filtered.reason, advantages: dropped, steps: 0, metrics };

  const kept = filtered.rows.map((row) => played[row]!);
  const data = await prepare(learners, kept, settings);
  Object.assign(metrics, data.metrics);
  const trained = await train(learners, data, settings);
  Object.assign(metrics, trained.metrics);
  const advantages: (number | null)[] = [...dropped];
  filtered.rows.forEach((row, i) => {
    advantages[row] = mean(data.advantages[i]!);
  });
  return { skipped: trained.skipped, advantages, steps: trained.steps, metrics };
}

const needsEntropies = (rule: FilterRule) => "metric" in rule && rule.metric.startsWith("entropy");

/** (played) mean entropy of the policy over the written tokens, in nats. */
async function meanEntropies(policy: Network, played: readonly Played[], { limits, temperature }: UpdateSettings) {
  const sequences = played.map(({ trajectory }) => sequenceOf(trajectory));
  const { entropies } = await policy.score(microBatches(sequences, limits), temperature);
  return entropies.map(mean);
}

const writtenOf = ({ written }: Trajectory) => Int32Array.from(written.keys().filter((i) => written[i] === 1));
const sequenceOf = (trajectory: Trajectory): Sequence => ({
  tokens: trajectory.tokens,
  written: writtenOf(trajectory),
});

/** Per-written-token arrays of the kept trajectories: [trajectory][written token]. */
interface Prepared {
  readonly sequences: readonly Sequence[];
  readonly advantages: readonly Float32Array[];
  readonly inputs: TokenInputs;
  readonly metrics: Readonly<Record<string, number>>;
}

async function prepare(
  { critic, reference }: Learners,
  kept: readonly Played[],
  settings: UpdateSettings,
): Promise<Prepared> {
  const sequences = kept.map(({ trajectory }) => sequenceOf(trajectory));
  const width = Math.max(...sequences.map(({ written }) => written.length));
  const rows = { width, written: new Uint8Array(kept.length * width) };
  sequences.forEach(({ written }, row) => {
    rows.written.fill(1, row * width, row * width + written.length);
  });
  const compact = (values: readonly ArrayLike<number>[]) => {
    const laid = new Float32Array(kept.length * width);
    values.forEach((row, i) => {
      laid.set(row as Float32Array, i * width);
    });
    return laid;
  };
  const split = (laid: Float32Array) =>
    sequences.map(({ written }, i) => laid.slice(i * width, i * width + written.length));

  const normalised = normaliseRewards(
    {
      rewards: kept.map(({ trajectory }) => rawReward(trajectory)),
      penalties: kept.map(({ trajectory }) => penalisedReward(trajectory) - rawReward(trajectory)),
      groups: kept.map(({ group }) => group),
      tags: kept.map(({ tag }) => tag),
    },
    settings.normalisation,
  );
  const turns = kept.map(({ trajectory }, i) => {
    const column = new Map(Array.from(sequences[i]!.written, (position, at) => [position, at]));
    const ends = trajectory.turns.map(({ end }) => column.get(end)!);
    const earned = trajectory.turns.map(({ reward, penalty }) => reward + penalty);
    return normaliseTurns({ ends, rewards: earned }, normalised.scores[i]!, normalised.scales[i]!);
  });

  const batches = microBatches(sequences, settings.limits);
  const values =
    critic !== null && CRITIC_KINDS.includes(settings.estimator.kind) ? await critic.values(batches) : null;
  const estimate = estimateAdvantages(
    {
      ...{ ...rows, turns, groups: kept.map(({ group }) => group) },
      ...(values === null ? {} : { values: compact(values) }),
    },
    settings.estimator,
  );
  const old = kept.map(({ trajectory }, i) =>
    Float32Array.from(sequences[i]!.written, (at) => trajectory.logProbs[at]!),
  );
  const advantages = split(estimate.advantages);
  const metrics: Record<string, number> = {
    ...estimate.measured,
    advantageAbs: mean(advantages.flatMap((row) => [...row.map(Math.abs)])),
  };
  const inputs: Record<string, readonly ArrayLike<number>[]> = { oldLogProbs: old, advantages };
  if (settings.policy.kl !== null && reference !== null) {
    inputs["reference"] = (await reference.score(batches, settings.temperature)).logProbs;
  }
  if (values !== null && estimate.returns !== null) {
    inputs["oldValues"] = values;
    inputs["returns"] = split(estimate.returns);
    const explained = explainedVariance(compact(values), estimate.returns, rows.written);
    if (explained !== null) metrics["explainedVariance"] = explained;
  }
  return { sequences, advantages, inputs, metrics };
}

async function train({ policy, critic }: Learners, data: Prepared, settings: UpdateSettings) {
  const objective = policyObjective(settings.policy);
  const sums: Record<string, number> = {};
  let steps = 0;
  let skipped: string | null = null;
  for (let epoch = 0; epoch < settings.epochs; epoch++) {
    for (let start = 0; start < data.sequences.length; start += settings.minibatch) {
      const part = slice(data, start, start + settings.minibatch);
      const inputs = { ...part.inputs, ...shares(part.sequences, settings) };
      const batches = microBatches(part.sequences, settings.limits);
      if (critic !== null && settings.critic !== null) {
        const { loss: _, ...result } = await critic.accumulate(
          valueObjective(settings.critic.valueClip),
          batches,
          inputs,
        );
        const step = await critic.step(settings.critic.optimizer);
        if (!step.applied) skipped = `the norm of the critic's gradient is ${step.gradientNorm}; no step was taken`;
        add(sums, { ...result, criticGradNorm: step.gradientNorm });
      }
      if (!settings.trainPolicy) continue;
      const result = await policy.accumulate(objective, batches, inputs, settings.temperature);
      const step = await policy.step(settings.optimizer);
      if (step.applied) steps++;
      else skipped = `the gradient's norm is ${step.gradientNorm}; no step was taken`;
      add(sums, { ...result, gradNorm: step.gradientNorm });
    }
  }
  const parts = settings.epochs * Math.ceil(data.sequences.length / settings.minibatch);
  const metrics = Object.fromEntries(Object.entries(sums).map(([name, sum]) => [name, sum / parts]));
  return { skipped, steps, metrics };
}

function slice({ sequences, inputs }: Prepared, start: number, end: number) {
  const part = Object.entries(inputs).map(([name, values]) => [name, values.slice(start, end)] as const);
  return { sequences: sequences.slice(start, end), inputs: Object.fromEntries(part) };
}

/** Weights of every written token of a minibatch. */
function shares(sequences: Prepared["sequences"], { aggregation, policy }: UpdateSettings): TokenInputs {
  const width = Math.max(...sequences.map(({ written }) => written.length));
  const rows = { width, written: new Uint8Array(sequences.length * width) };
  sequences.forEach(({ written }, row) => {
    rows.written.fill(1, row * width, row * width + written.length);
  });
  const lengths = rowLengths(rows);
  const split = (laid: Float32Array) => lengths.map((length, i) => laid.subarray(i * width, i * width + length));
  const weights = tokenWeights(rows, aggregation);
  const coefficient = policy.kl?.coefficient ?? 0;
  return {
    weights: split(weights),
    klWeights: split(weights.map((weight) => weight * coefficient)),
    shares: split(tokenWeights(rows, "token-mean")),
    sequenceShares: split(sequenceShares(rows)),
  };
}

function add(sums: Record<string, number>, values: Readonly<Record<string, number>>): void {
  for (const [name, value] of Object.entries(values)) sums[name] = (sums[name] ?? 0) + value;
}

const mean = (values: ArrayLike<number>) =>
  Array.from(values).reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
