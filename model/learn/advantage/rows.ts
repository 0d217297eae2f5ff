/**
 * Trajectories as rows of equal width, and the steps that estimators share: put rewards on tokens, spread a row's advantage
 * over its tokens, whiten. This file knows no estimator.
 *
 * Column t has the numbers of token t: the token's log-probability and advantage, and the critic's value of the state before the token.
 */

/** B rows of T columns, row-major; short trajectories are padded with 0. */
export interface Rows {
  /** T. */
  readonly width: number;
  /** (B, T) 1 where the policy wrote the token. */
  readonly written: Uint8Array;
}

/** Turns of one row: `ends` are columns of the turns' last written tokens, ascending. */
export interface Turns {
  readonly ends: readonly number[];
  /** Reward of each turn, after penalty and normalization. */
  readonly rewards: readonly number[];
}

/** The number of rows, B. */
export const rowCount = ({ width, written }: Rows): number => written.length / width;

/** @throws {RangeError} naming what has the wrong length. */
export function checkLength(what: string, values: ArrayLike<unknown>, length: number): void {
  if (values.length !== length) throw new RangeError(`${what}: expected ${length} entries, got ${values.length}`);
}

/**
 * (B, T) rewards on tokens.
 *
 * @param turns      (B) one entry per row.
 * @param placement  "turns": each turn's reward is on the turn's last written token. "end": the sum of the rewards is on the last
 *                   turn's last written token, as in RAGEN with use_turn_scores False.
 */
export function tokenRewards(rows: Rows, turns: readonly Turns[], placement: "turns" | "end"): Float32Array {
  const rewards = new Float32Array(rows.written.length);
  turns.forEach(({ ends, rewards: earned }, row) => {
    const start = row * rows.width;
    if (placement === "turns") for (const [i, end] of ends.entries()) rewards[start + end] = earned[i]!;
    else if (ends.length > 0) rewards[start + ends.at(-1)!] = earned.reduce((sum, reward) => sum + reward, 0);
  });
  return rewards;
}

/** (B, T): row b's value on each of its written tokens, 0 elsewhere. */
export function overTokens(rows: Rows, perRow: ArrayLike<number>): Float32Array {
  return Float32Array.from(rows.written, (written, i) => (written ? perRow[Math.floor(i / rows.width)]! : 0));
}

/** (B, T): turn k's value on each written token of turn k, 0 elsewhere. Turn k begins after the end of turn k - 1. */
export function overTurns(rows: Rows, ends: readonly (readonly number[])[], perTurn: readonly (readonly number[])[]) {
  const spread = new Float32Array(rows.written.length);
  ends.forEach((rowEnds, row) => {
    let column = 0;
    for (const [turn, end] of rowEnds.entries()) {
      for (; column <= end; column++) {
        const i = row * rows.width + column;
        if (rows.written[i]) spread[i] = perTurn[row]![turn]!;
      }
    }
  });
  return spread;
}

/**
 * `(x - mean) / sqrt(var + 1e-8)` with mean and sample variance over the written tokens of all rows. Pass the whole
 * update, never a micro-batch. Other positions get the same shift and scale, but nothing reads them. If only one token
 * is written, this token gets 0.
 *
 * Source: the masked whitening in verl's PPO (core_algos).
 */
export function whiten(values: Float32Array, written: Uint8Array): Float32Array {
  const count = written.reduce((sum, one) => sum + one, 0);
  let sum = 0;
  for (let i = 0; i < values.length; i++) if (written[i]) sum += values[i]!;
  const center = sum / count;
  let squareSum = 0;
  for (let i = 0; i < values.length; i++) if (written[i]) squareSum += (values[i]! - center) ** 2;
  const scale = 1 / Math.sqrt(squareSum / Math.max(1, count - 1) + 1e-8);
  return values.map((value) => (value - center) * scale);
}
