/**
 * Generalized advantage estimation over tokens, and over turns and tokens (bi-level); also discounted returns. Whitening is in rows.ts.
 *
 * - The caller gives the turn ends, because rewards do not show them: a turn that earned 0 is still a turn.
 * - The state after a written token is the state before the next written token. Values at observations and padding change neither the
 *   advantage nor the target of a written token.
 */
import { type Rows, rowCount, type Turns } from "./rows.ts";

export interface Estimate {
  /** (B, T) advantages, in reward units. */
  readonly advantages: Float32Array;
  /** (B, T) targets of the critic: advantages + values. */
  readonly returns: Float32Array;
}

export interface Gae {
  /** Discount per token, 0 to 1. */
  readonly gamma: number;
  readonly lambda: number;
}

/**
 * `d_t = r_t + gamma V_next - V_t`, `A_t = d_t + gamma lambda A_next`, backwards along each row.
 *
 * Columns that are not written hold the running advantage; no loss reads them.
 *
 * Source: https://arxiv.org/abs/1506.02438; like verl 0.6 (compute_gae_advantage_return) it skips observation tokens.
 *
 * @param rewards (B, T) rewards on tokens; 0 where not written.
 * @param values  (B, T) critic's value before each token.
 */
export function gae(rows: Rows, rewards: Float32Array, values: Float32Array, { gamma, lambda }: Gae): Estimate {
  const { width, written } = rows;
  const advantages = new Float32Array(written.length);
  const returns = new Float32Array(written.length);
  for (let row = 0; row < rowCount(rows); row++) {
    let next = 0;
    let running = 0;
    for (let i = (row + 1) * width - 1; i >= row * width; i--) {
      if (written[i]) {
        running = rewards[i]! + gamma * next - values[i]! + gamma * lambda * running;
        next = values[i]!;
      }
      advantages[i] = running;
      returns[i] = running + values[i]!;
    }
  }
  return { advantages, returns };
}

/** `gamma` discounts the tokens within a turn. */
export interface BiLevelGae extends Gae {
  /** Discount per turn; RAGEN's high_level_gamma, 0.95. */
  readonly gammaTurn: number;
}

/**
 * GAE from turn to turn first, then from token to token inside each turn.
 *
 * With turn ends e_1 < ... < e_m: `A(e_i) = r_i + gammaTurn V(e_{i+1}) - V(e_i) + gammaTurn lambda A(e_{i+1})`. The turn's
 * last token then earns `A(e_i) + V(e_i)`, and token-level GAE, which runs backwards, restarts at that token.
 *
 * Source: RAGEN's bi-level GAE (https://arxiv.org/abs/2504.20073, revision of May 2025), with recorded turn ends.
 *
 * @param turns  (B) turn ends and turn rewards.
 * @param values (B, T) critic's value before each token.
 * @throws {RangeError} if a row's last written token is not the end of its last turn.
 */
export function biLevelGae(rows: Rows, turns: readonly Turns[], values: Float32Array, rule: BiLevelGae): Estimate {
  const { width, written } = rows;
  const advantages = new Float32Array(written.length);
  const returns = new Float32Array(written.length);
  turns.forEach((rowTurns, row) => {
    checkLastEnd(rows, row, rowTurns.ends);
    const start = row * width;
    const targets = turnTargets(rowTurns, values.subarray(start, start + width), rule);
    let next = 0;
    let running = 0;
    for (let column = width - 1; column >= 0; column--) {
      const i = start + column;
      if (!written[i]) continue;
      const target = targets.get(column);
      const delta = target === undefined ? rule.gamma * next - values[i]! : target - values[i]!;
      running = delta + (target === undefined ? rule.gamma * rule.lambda * running : 0);
      next = values[i]!;
      advantages[i] = running;
      returns[i] = running + values[i]!;
    }
  });
  return { advantages, returns };
}

/** The turn-level return of each turn, by the column of the turn's last token. */
function turnTargets({ ends, rewards }: Turns, values: Float32Array, rule: BiLevelGae): Map<number, number> {
  const targets = new Map<number, number>();
  let next = 0;
  let running = 0;
  for (let turn = ends.length - 1; turn >= 0; turn--) {
    const value = values[ends[turn]!]!;
    running = rewards[turn]! + rule.gammaTurn * next - value + rule.gammaTurn * rule.lambda * running;
    next = value;
    targets.set(ends[turn]!, running + value);
  }
  return targets;
}

function checkLastEnd({ width, written }: Rows, row: number, ends: readonly number[]): void {
  const last = written.lastIndexOf(1, (row + 1) * width - 1) - row * width;
  if (last >= 0 && ends.at(-1) !== last) {
    throw new RangeError(
      `row ${row}: the last written token is at column ${last}, but the last turn ends at ${ends.at(-1) ?? "none"}`,
    );
  }
}

/**
 * `G_t = r_t + gamma G_next`, backwards along each row, on written tokens; 0 elsewhere. G_next belongs to the next written token, so
 * a late reward reaches early turns.
 *
 * Source: REINFORCE++, https://arxiv.org/abs/2501.03262.
 *
 * @param rewards (B, T) rewards on tokens; 0 where not written.
 */
export function discountedReturns(rows: Rows, rewards: Float32Array, gamma: number): Float32Array {
  // With values 0 and lambda 1, the advantage is the return.
  const { advantages } = gae(rows, rewards, new Float32Array(rewards.length), { gamma, lambda: 1 });
  return advantages.map((value, i) => (rows.written[i] ? value : 0));
}
