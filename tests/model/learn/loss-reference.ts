/** The losses in float64, token by token as the papers write them: slow, and easy to trust. */
import type { PolicyRule } from "../../../model/learn/loss.ts";

export interface Tokens {
  readonly width: number;
  readonly logProbs: number[];
  readonly oldLogProbs: number[];
  readonly advantages: number[];
  readonly weights: number[];
  readonly written: Uint8Array;
}

/** `frozen`: the log-probabilities from which the parts without a gradient (cispo's coefficient) are computed. */
export function slowPolicyLoss(tokens: Tokens, rule: PolicyRule, frozen = tokens.logProbs): number {
  const { width, logProbs, oldLogProbs, advantages, weights, written } = tokens;
  return logProbs.reduce((sum, logProb, i) => {
    const row = Math.floor(i / width);
    const mates = logProbs.map((_, j) => j).filter((j) => Math.floor(j / width) === row && written[j]);
    const sequence = mates.reduce((total, j) => total + (logProbs[j]! - oldLogProbs[j]!), 0) / mates.length;
    return (
      sum +
      (weights[i] === 0
        ? 0
        : weights[i]! * tokenLoss(rule, logProb, oldLogProbs[i]!, advantages[i]!, sequence, frozen[i]!))
    );
  }, 0);
}

function tokenLoss(
  rule: PolicyRule,
  logProb: number,
  old: number,
  a: number,
  sequence: number,
  frozen: number,
): number {
  if (rule.kind === "reinforce") return -a * logProb;
  const clip = (ratio: number) => Math.min(Math.max(ratio, 1 - rule.clipLow), 1 + rule.clipHigh);
  if (rule.kind === "cispo") return -clip(Math.exp(frozen - old)) * a * logProb;
  const ratio = Math.exp(rule.kind === "gspo" ? sequence : logProb - old);
  const clipped = Math.max(-a * ratio, -a * clip(ratio));
  return rule.kind === "ppo" && rule.dualClip !== null && a < 0 ? Math.min(clipped, -a * rule.dualClip) : clipped;
}

/** Central differences of `f` in each of `x`. */
export function differences(f: (x: number[]) => number, x: number[], step = 1e-6): number[] {
  return x.map((value, i) => (f(x.with(i, value + step)) - f(x.with(i, value - step))) / (2 * step));
}
