/** Metrics of an update from those of its minibatches. */
import type { Aggregation } from "../aggregation.ts";

/** What one minibatch measured. */
export interface MinibatchMetrics {
  readonly values: Readonly<Record<string, number>>;
  /** Written tokens. */
  readonly tokens: number;
  readonly episodes: number;
}

const NORMS: ReadonlySet<string> = new Set(["gradNorm", "criticGradNorm"]);
const LOSSES: ReadonlySet<string> = new Set(["policyLoss", "valueLoss"]);

/**
 * Means over the update: of norms over minibatches, of losses over what the aggregation takes a mean of, of all other numbers over
 * written tokens. A minibatch whose number is not finite is left out of this number's mean, unless no minibatch has a finite one.
 */
export function meansOf(minibatches: readonly MinibatchMetrics[], aggregation: Aggregation): Record<string, number> {
  const names = new Set(minibatches.flatMap(({ values }) => Object.keys(values)));
  const meanOf = (name: string) => {
    const finite = minibatches.filter(({ values }) => Number.isFinite(values[name]));
    const counted = finite.length > 0 ? finite : minibatches;
    const weights = counted.map(({ tokens, episodes }) => {
      if (NORMS.has(name)) return 1;
      return LOSSES.has(name) && aggregation !== "token-mean" ? episodes : tokens;
    });
    const all = weights.reduce((sum, weight) => sum + weight, 0);
    // The share first, so that the mean of one minibatch is exactly its value.
    return counted.reduce((sum, { values }, i) => sum + values[name]! * (weights[i]! / all), 0);
  };
  return Object.fromEntries([...names].map((name) => [name, meanOf(name)]));
}
