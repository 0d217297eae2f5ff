/**
 * From kept trajectories to what a gradient step takes: old log-probabilities, advantages, targets of the critic, and what a
 * KL term compares with; [trajectory][written token] each, whatever contexts a trajectory was played in.
 *
 * - Advantages are estimated over all that is passed, which is the whole update, never a minibatch.
 * - Whatever scales a trajectory's or token's part of the policy loss is a factor on its advantages: every policy loss is
 *   linear in them, and entropy and KL terms stay as they are.
 */

import { explainedVariance } from "../../health/diagnostics.ts";
import { rawReward, type Trajectory } from "../../trajectory.ts";
import { type Advantages, CRITIC_KINDS, estimateAdvantages } from "../advantage/advantage.ts";
import { rowFactors } from "../advantage/scaling.ts";
import { importanceWeights, rowLengths } from "../aggregation.ts";
import { microBatches } from "../batch.ts";
import { klInReward, klNumbers } from "../kl.ts";
import type { Network } from "../network.ts";
import type { TokenInputs } from "../objective.ts";
import { normaliseTurns } from "../reward.ts";
import { join, type Samples, samplesOf } from "../sequences.ts";
import type { Learners, Played, UpdateSettings } from "./update.ts";
import { type Grid, gridOf } from "./written-rows.ts";

/** A trajectory with what its rewards came to. */
export interface Scored extends Played {
  /** What each turn earned, penalties included, before normalisation. */
  readonly earned: readonly number[];
  /** The episode's score after it, and the scale of its rewards. */
  readonly score: number;
  readonly scale: number;
}

export interface Prepared {
  readonly samples: readonly Samples[];
  readonly advantages: readonly Float32Array[];
  readonly inputs: TokenInputs;
  readonly metrics: Readonly<Record<string, number>>;
}

/** What is known of the kept trajectories before any advantage. */
interface Batch {
  readonly kept: readonly Scored[];
  readonly grid: Grid;
  /** (B)(W) positions of written tokens. */
  readonly written: readonly Int32Array[];
  /** (B)(W) as the tokens were sampled. */
  readonly sampled: readonly Float32Array[];
  /** (B)(W) by a policy as it is now. */
  logProbs(policy: Network): Promise<Float32Array[]>;
}

/** @param keptShare  of all groups; for filter loss scaling */
export async function prepare(
  learners: Learners,
  kept: readonly Scored[],
  keptShare: number,
  settings: UpdateSettings,
): Promise<Prepared> {
  const { critic, reference } = learners;
  const samples = kept.map(({ trajectory }) => samplesOf(trajectory));
  const grid = gridOf(samples);
  const batches = microBatches(samples.flat(), settings.limits);
  const written = kept.map(({ trajectory }) => writtenOf(trajectory));
  const batch: Batch = {
    kept,
    grid,
    written,
    sampled: kept.map(({ trajectory }, i) => Float32Array.from(written[i]!, (at) => trajectory.logProbs[at]!)),
    logProbs: async (policy) => join(samples, (await policy.score(batches, settings.temperature)).logProbs),
  };
  const anchored = settings.policy.kl !== null || settings.klInReward !== null;
  if (anchored && reference === null) throw new RangeError("a KL term needs a reference policy: keep one first");
  const referred = anchored ? await batch.logProbs(reference!) : null;
  const values = critic !== null && settings.critic !== null ? join(samples, await critic.values(batches)) : null;

  const estimate = advantagesOf(batch, values, referred, settings);
  const factored = await factors(learners, batch, keptShare, settings);
  const advantages = grid.split(estimate.advantages.map((advantage, i) => advantage * factored.weights[i]!));
  const metrics: Record<string, number> = {
    ...estimate.measured,
    ...factored.measured,
    advantageAbs: meanOf(advantages.flatMap((row) => [...row.map(Math.abs)])),
  };
  const inputs: Record<string, readonly ArrayLike<number>[]> = { oldLogProbs: factored.old, advantages };
  if (referred !== null && settings.policy.kl !== null) inputs["reference"] = referred;
  if (values !== null && estimate.returns !== null) {
    inputs["oldValues"] = values;
    inputs["returns"] = grid.split(estimate.returns);
    const explained = explainedVariance(grid.lay(values), estimate.returns, grid.written);
    if (explained !== null) metrics["explainedVariance"] = explained;
  }
  return { samples, advantages, inputs, metrics };
}

const writtenOf = ({ written }: Trajectory) => Int32Array.from(written.keys().filter((i) => written[i] === 1));

function advantagesOf(
  { kept, grid, written, sampled }: Batch,
  values: readonly Float32Array[] | null,
  referred: readonly Float32Array[] | null,
  { estimator, klInReward: penalty }: UpdateSettings,
): Advantages {
  const turns = kept.map(({ trajectory, earned, score, scale }, i) => {
    const column = new Map(Array.from(written[i]!, (position, at) => [position, at]));
    const ends = trajectory.turns.map(({ end }) => column.get(end)!);
    return normaliseTurns({ ends, rewards: earned }, score, scale);
  });
  const kl =
    penalty === null ? null : grid.lay(sampled.map((row, i) => klNumbers(row, referred![i]!, penalty.estimator)));
  const tokenExtras =
    kl === null ? null : klInReward(new Float32Array(kl.length), kl, grid.written, penalty!.coefficient);
  const anchors = estimator.kind === "gigpo" ? kept.map(anchorsOf) : null;
  const estimate = estimateAdvantages(
    {
      width: grid.width,
      written: grid.written,
      turns,
      groups: kept.map(({ group }) => group),
      ...(values !== null && CRITIC_KINDS.includes(estimator.kind) ? { values: grid.lay(values) } : {}),
      ...(tokenExtras === null ? {} : { tokenExtras }),
      ...(anchors === null ? {} : { anchors }),
    },
    estimator,
  );
  if (kl === null) return estimate;
  const tokens = rowLengths(grid).reduce((sum, length) => sum + length, 0);
  return { ...estimate, measured: { ...estimate.measured, kl: kl.reduce((sum, one) => sum + one, 0) / tokens } };
}

function anchorsOf({ anchors }: Played): readonly string[] {
  if (anchors === undefined) throw new RangeError("gigpo compares turns by the state they began in: pass anchors");
  return anchors;
}

interface Factored {
  /** (B, W) what advantages are multiplied by. */
  readonly weights: Float32Array;
  /** (B)(W) log-probabilities that ratios start from. */
  readonly old: readonly Float32Array[];
  readonly measured: Readonly<Record<string, number>>;
}

async function factors(
  { policy }: Learners,
  { kept, grid, sampled, logProbs }: Batch,
  keptShare: number,
  { scaling, importance }: UpdateSettings,
): Promise<Factored> {
  const rewards = kept.map(({ trajectory }) => rawReward(trajectory));
  const groups = kept.map(({ group }) => group);
  const perRow = rowFactors({ rewards, groups, lengths: rowLengths(grid), keptShare }, scaling);
  const weights = Float32Array.from(grid.written, (_, i) => perRow[Math.floor(i / grid.width)]!);
  if (importance === null) return { weights, old: sampled, measured: {} };
  const old = await logProbs(policy);
  const [learner, sampler] = [grid.lay(old), grid.lay(sampled)];
  const ratios = importanceWeights(grid, learner, sampler, importance);
  const at = [...grid.written.keys()].filter((i) => grid.written[i] === 1);
  return {
    weights: weights.map((weight, i) => weight * ratios[i]!),
    old,
    measured: {
      importance: meanOf(at.map((i) => ratios[i]!)),
      importanceCapped: meanOf(at.map((i) => Number(ratios[i] === Math.fround(importance.cap)))),
      logProbGap: meanOf(at.map((i) => Math.abs(learner[i]! - sampler[i]!))),
    },
  };
}

export const meanOf = (values: ArrayLike<number>) =>
  Array.from(values).reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
