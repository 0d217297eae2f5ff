/** Golden extra X2: collapse metrics over several calls. */
import { collapseMetrics, isCollapseStep, type MarginalSpread } from "../../../model/health/mutual-information.ts";
import { type Check, perKey, vectorChecks } from "./check.ts";

type Matrix = number[][];
interface X2 {
  cross_log_probs_per_token: Matrix;
  lengths: number[];
  group_ids: number[];
  std_eps: number;
  ema_decay: number;
  should_compute: Record<string, boolean>;
  compute_freq?: number;
  [call: string]: unknown;
}

const PREFIX = "collapse/";
/** RAGEN-2's default interval, which the file omits. */
const COMPUTE_FREQ = 5;

/** The calls, in the file's order, share one running mean. A name that ends in "times_1_5" means: log-probabilities times 1.5. */
export function collapseChecks(body: unknown): Check[] {
  const vectors = body as X2;
  const { cross_log_probs_per_token, lengths, group_ids, std_eps, ema_decay, should_compute, compute_freq } = vectors;
  const calls = Object.entries(vectors).filter(([name]) => /_call(_|$)/.test(name)) as [
    string,
    Record<string, number>,
  ][];
  // One column per group id; ids may have gaps.
  const columns = [...new Set(group_ids)].sort((a, b) => a - b);
  const own = group_ids.map((id) => columns.indexOf(id));
  let spread: MarginalSpread | null = null;
  const measured = calls.flatMap(([name, expected]) =>
    vectorChecks(name, () => {
      const factor = Number(/times_([\d_]+)$/.exec(name)?.[1]?.replace("_", ".") ?? 1);
      const perToken = cross_log_probs_per_token.map((row) => row.map((score) => score * factor));
      const rule = { epsilon: std_eps, decay: ema_decay };
      const result = collapseMetrics({ perToken, lengths, own }, spread, rule);
      spread = result.spread;
      const named = Object.fromEntries(Object.entries(result.metrics).map(([key, value]) => [PREFIX + key, value]));
      return perKey(`${name}: `, expected, named);
    }),
  );
  const steps = Object.fromEntries(
    Object.keys(should_compute).map((step) => [step, isCollapseStep(Number(step), compute_freq ?? COMPUTE_FREQ)]),
  );
  return [...measured, ...perKey("should_compute: ", should_compute, steps)];
}
