/**
 * RAGEN-2's metrics of reasoning collapse, as rows of the table of metrics: each for turns drawn from anywhere, and for first
 * turns. Formulas are in model/health/mutual-information.ts.
 */
import type { Metric, Unit } from "./metrics.ts";

/** By name: unit, and one sentence. A matched prompt is a reasoning's own; the others are those of other turns. */
const ROWS = {
  mi_estimate: ["nats", "How much more likely a reasoning token is under its own prompt than under the mean prompt."],
  mi_upper_bound: ["nats", "What mi_estimate can be at most: the logarithm of the number of distinct prompts."],
  mi_seq_estimate: ["nats", "The same as mi_estimate, over whole reasonings."],
  mi_zscore: ["number", "The estimate over the spread of the marginals."],
  mi_zscore_seq: ["number", "The same over whole reasonings."],
  mi_zscore_ema: ["number", "The estimate over the running mean of that spread."],
  mi_zscore_ema_seq: ["number", "The same over whole reasonings."],
  conditional_entropy_est: ["nats", "Mean surprise of a reasoning token under its own prompt, about H(Z|X)."],
  conditional_entropy_seq_est: ["nats", "The same over whole reasonings."],
  reasoning_entropy_est: ["nats", "Mean surprise of a reasoning token under the mean prompt, about H(Z)."],
  reasoning_entropy_seq_est: ["nats", "The same over whole reasonings."],
  matched_log_prob_mean: ["nats", "Mean log-probability of a reasoning token under its own prompt."],
  marginal_log_prob_mean: ["nats", "Mean log-probability of a reasoning token under the mean prompt."],
  marginal_std: ["nats", "Spread of the marginal log-probability over reasonings, per token."],
  marginal_std_seq: ["nats", "The same over whole reasonings."],
  marginal_std_ema: ["nats", "Running mean of marginal_std."],
  marginal_std_ema_seq: ["nats", "The same over whole reasonings."],
  retrieval_accuracy: ["share", "How often a reasoning is likeliest under its own prompt."],
  retrieval_accuracy_at_2: ["share", "How often its own prompt is among the 2 under which it is likeliest."],
  retrieval_accuracy_at_4: ["share", "The same among 4."],
  retrieval_accuracy_at_8: ["share", "The same among 8."],
  retrieval_chance_level: ["share", "What retrieval_accuracy would be by chance."],
  retrieval_chance_level_at_2: ["share", "The same for 2."],
  retrieval_chance_level_at_4: ["share", "The same for 4."],
  retrieval_chance_level_at_8: ["share", "The same for 8."],
  retrieval_above_chance: ["share", "Accuracy of retrieval less its chance level."],
  retrieval_above_chance_at_2: ["share", "The same for 2."],
  retrieval_above_chance_at_4: ["share", "The same for 4."],
  retrieval_above_chance_at_8: ["share", "The same for 8."],
} as const satisfies Record<string, readonly [Unit, string]>;

type Row = keyof typeof ROWS;

/** @param prefix  of the name, after the group */
function rows<P extends string>(prefix: P, where: string) {
  const named = Object.entries(ROWS).map(([name, [unit, help]]) => {
    const row: Metric = { unit, help: `${help.slice(0, -1)} (${where}).`, kind: "gauge" };
    return [`collapse/${prefix}${name}`, row] as const;
  });
  return Object.fromEntries(named) as Record<`collapse/${P}${Row}`, Metric>;
}

export const COLLAPSE_METRICS = {
  ...rows("", "turns drawn from all"),
  ...rows("first_", "first turns"),
};
