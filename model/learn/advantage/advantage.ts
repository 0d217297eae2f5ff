/**
 * Computes one advantage per token from a batch of episodes. The formulas are in the other files of this folder.
 *
 * - Pass all episodes of the update: whitening and the mix of `hybrid` use all rows.
 * - Group ids and turn ends come from the episodes. No estimator infers them from rewards or positions.
 */
import { biLevelGae, discountedReturns, type Estimate, gae } from "./gae.ts";
import { type Gigpo, gigpo } from "./gigpo.ts";
import { drGrpo, expertIteration, grpo, maxRl, rloo } from "./group.ts";
import { hybrid } from "./hybrid.ts";
import { checkLength, overTokens, overTurns, type Rows, rowCount, type Turns, tokenRewards, whiten } from "./rows.ts";
import { groupPolicy, tpoTarget } from "./tpo.ts";

export interface AdvantageInputs extends Rows {
  /** (B) turn ends, and turn rewards after penalties and normalization. */
  readonly turns: readonly Turns[];
  /** (B) the group of each row. */
  readonly groups: ArrayLike<number>;
  /** (B, T) critic's value before each token; for estimators with a critic. */
  readonly values?: Float32Array;
  /** (B, T) rewards on tokens in addition to the turn rewards: a KL penalty (`klInReward`). 0 where not written. */
  readonly tokenExtras?: Float32Array;
  /** (B)(turns) name of the state in which each turn began; for gigpo. */
  readonly anchors?: readonly (readonly string[])[];
  /** (B) whether each episode succeeded; for max-rl and expert-iteration. */
  readonly successes?: readonly boolean[];
  /** (B) log-probability of each episode by the policy that played it; for tpo. */
  readonly logProbs?: readonly number[];
}

interface TokenCredit {
  readonly gamma: number;
  readonly lambda: number;
  /** turns: each turn's reward is on the turn's end. end: the sum of the rewards is on the episode's end (RAGEN). */
  readonly rewardAt: "turns" | "end";
}

export type Estimator =
  | ({ readonly kind: "gae" } & TokenCredit)
  | { readonly kind: "bi-level-gae"; readonly gamma: number; readonly lambda: number; readonly gammaTurn: number }
  | { readonly kind: "grpo" | "dr-grpo" | "rloo" | "max-rl" | "expert-iteration" | "tpo" | "reinforce++-baseline" }
  | { readonly kind: "reinforce++"; readonly gamma: number; readonly rewardAt: "turns" | "end" }
  | ({ readonly kind: "gigpo" } & Gigpo)
  | ({ readonly kind: "hybrid" } & TokenCredit);

export interface Advantages {
  /** (B, T); read only where written. */
  readonly advantages: Float32Array;
  /** (B, T) targets of the critic; null for estimators without one. */
  readonly returns: Float32Array | null;
  /** (B) the target probability of each episode within its group; for tpo. */
  readonly targetProbabilities?: ArrayLike<number>;
  /** Further metrics, by name. */
  readonly measured: Readonly<Record<string, number>>;
}

export const NEEDS_CRITIC: ReadonlySet<Estimator["kind"]> = new Set(["gae", "bi-level-gae", "hybrid"]);

/**
 * @throws {RangeError} if the estimator needs values, anchors, successes or log-probabilities that are missing, a length does not fit, or
 * the turns of a row do not end on written tokens, in order
 */
export function estimateAdvantages(batch: AdvantageInputs, estimator: Estimator): Advantages {
  checkBatch(batch);
  const { kind } = estimator;
  switch (kind) {
    case "gae":
      return whitened(batch, credit(batch, estimator));
    case "bi-level-gae":
      return whitened(batch, biLevelGae(batch, turnsWithExtras(batch), valuesOf(batch, kind), estimator));
    case "grpo":
      return plain(overTokens(batch, grpo(episodeRewards(batch), batch.groups)));
    case "dr-grpo":
      return plain(overTokens(batch, drGrpo(episodeRewards(batch), batch.groups)));
    case "rloo":
      return plain(overTokens(batch, rloo(episodeRewards(batch), batch.groups)));
    case "max-rl":
      return plain(overTokens(batch, maxRl(episodeRewards(batch), batch.groups, successesOf(batch, kind))));
    case "expert-iteration":
      return plain(overTokens(batch, expertIteration(episodeRewards(batch), successesOf(batch, kind))));
    case "tpo": {
      const { groups } = batch;
      const logProbs = given(batch.logProbs, "tpo needs the log-probability of each episode: pass logProbs");
      const targetProbabilities = tpoTarget(episodeRewards(batch), logProbs, groups);
      const before = groupPolicy(logProbs, groups);
      const gaps = targetProbabilities.map((q, row) => q - before[row]!);
      return { ...plain(overTokens(batch, gaps)), targetProbabilities };
    }
    case "reinforce++-baseline":
      return plain(whiten(overTokens(batch, drGrpo(episodeRewards(batch), batch.groups)), batch.written));
    case "reinforce++": {
      const rewards = onTokens(batch, estimator.rewardAt);
      return plain(whiten(discountedReturns(batch, rewards, estimator.gamma), batch.written));
    }
    case "gigpo": {
      const anchors = given(batch.anchors, "gigpo compares turns by the state they began in: pass anchors");
      for (const [row, { ends }] of batch.turns.entries())
        checkLength(`row ${row}: anchors`, anchors[row]!, ends.length);
      const rewards = turnsWithExtras(batch).map((turns) => turns.rewards);
      const perTurn = gigpo(rewards, anchors, batch.groups, estimator);
      const ends = batch.turns.map((turns) => turns.ends);
      return plain(overTurns(batch, ends, perTurn));
    }
    case "hybrid": {
      const values = valuesOf(batch, kind);
      const estimate = credit(batch, estimator);
      const { advantages, criticShare } = hybrid(batch, { ...estimate, values }, episodeRewards(batch), batch.groups);
      return { ...whitened(batch, { ...estimate, advantages }), measured: { criticShare } };
    }
    default:
      return kind satisfies never;
  }
}

/** The other files of this folder rely on these checks. */
function checkBatch(batch: AdvantageInputs): void {
  const { width, written, turns, groups, values, tokenExtras, anchors, successes, logProbs } = batch;
  for (const [name, list] of Object.entries({ turns, groups, anchors, successes, logProbs }))
    if (list !== undefined) checkLength(name, list, rowCount(batch));
  for (const [name, list] of Object.entries({ values, tokenExtras }))
    if (list !== undefined) checkLength(name, list, written.length);
  for (const [row, { ends, rewards }] of turns.entries()) {
    checkLength(`row ${row}: turn rewards`, rewards, ends.length);
    for (const [i, end] of ends.entries()) {
      if (written[row * width + end] !== 1 || end < 0 || end >= width)
        throw new RangeError(`row ${row}: turn ${i} ends at column ${end}, which the policy did not write`);
      if (i > 0 && end <= ends[i - 1]!)
        throw new RangeError(`row ${row}: turn ends must ascend, got ${ends.join(", ")}`);
    }
  }
}

function credit(batch: AdvantageInputs, { kind, rewardAt, gamma, lambda }: TokenCredit & { kind: string }): Estimate {
  const rewards = onTokens(batch, rewardAt);
  return gae(batch, rewards, valuesOf(batch, kind), { gamma, lambda });
}

function whitened(batch: AdvantageInputs, { advantages, returns }: Estimate): Advantages {
  return { advantages: whiten(advantages, batch.written), returns, measured: {} };
}

const plain = (advantages: Float32Array): Advantages => ({ advantages, returns: null, measured: {} });

/** (B, T) turn rewards where `rewardAt` puts them, plus the extras of each token. */
function onTokens(batch: AdvantageInputs, rewardAt: "turns" | "end"): Float32Array {
  const rewards = tokenRewards(batch, batch.turns, rewardAt);
  return batch.tokenExtras === undefined ? rewards : rewards.map((reward, i) => reward + batch.tokenExtras![i]!);
}

/** Turns whose rewards include the extras of their tokens, for estimators that work on turns or episodes. */
function turnsWithExtras(batch: AdvantageInputs): readonly Turns[] {
  const { turns, tokenExtras, width } = batch;
  if (tokenExtras === undefined) return turns;
  return turns.map(({ ends, rewards }, row) => {
    let at = row * width;
    const earned = ends.map((end, turn) => {
      let sum = rewards[turn]!;
      for (; at <= row * width + end; at++) sum += tokenExtras[at]!;
      return sum;
    });
    return { ends, rewards: earned };
  });
}

const episodeRewards = (batch: AdvantageInputs) =>
  turnsWithExtras(batch).map(({ rewards }) => rewards.reduce((sum, reward) => sum + reward, 0));

function given<T>(input: T | undefined, otherwise: string): T {
  if (input === undefined) throw new RangeError(otherwise);
  return input;
}

const successesOf = ({ successes }: AdvantageInputs, kind: string) =>
  given(successes, `${kind} reads which episodes succeeded: pass successes`);

const valuesOf = ({ values }: AdvantageInputs, kind: string) =>
  given(values, `${kind} needs a critic: pass values, or choose an estimator without one`);
