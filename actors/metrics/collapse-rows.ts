/**
 * RAGEN-2's metrics of reasoning collapse, as rows of the table of metrics. Each is measured twice: over turns drawn from the whole
 * episode, and over first turns. Formulas: model/health/mutual-information.ts.
 */
import type { Metric, Unit } from "./metric.ts";

/** Unit and meaning by name. The marginal, "under the mean prompt", is the log of a reasoning's mean probability over all prompts. */
const ROWS = {
  mi_estimate: ["nats", "How much more likely a reasoning token is under its own prompt than under the mean prompt."],
  mi_upper_bound: ["nats", "Upper bound of mi_estimate: the logarithm of the number of distinct prompts."],
  mi_seq_estimate: ["nats", "The same as mi_estimate, over whole reasonings."],
  mi_zscore: ["number", "Quotient of mi_estimate and marginal_std."],
  mi_zscore_seq: ["number", "As mi_zscore, over whole reasonings."],
  mi_zscore_ema: ["number", "Quotient of mi_estimate and marginal_std_ema."],
  mi_zscore_ema_seq: ["number", "As mi_zscore_ema, over whole reasonings."],
  conditional_entropy_est: ["nats", "Mean surprise of a reasoning token under its own prompt, about H(Z|X)."],
  conditional_entropy_seq_est: ["nats", "As conditional_entropy_est, over whole reasonings."],
  reasoning_entropy_est: ["nats", "Mean surprise of a reasoning token under the mean prompt, about H(Z)."],
  reasoning_entropy_seq_est: ["nats", "As reasoning_entropy_est, over whole reasonings."],
  matched_log_prob_mean: ["nats", "Mean log-probability of a reasoning token under its own prompt."],
  marginal_log_prob_mean: ["nats", "Mean log-probability of a reasoning token under the mean prompt."],
  marginal_std: ["nats", "Spread of the marginal log-probability over reasonings, per token."],
  marginal_std_seq: ["nats", "As marginal_std, over whole reasonings."],
  marginal_std_ema: ["nats", "Running mean of marginal_std."],
  marginal_std_ema_seq: ["nats", "As marginal_std_ema, over whole reasonings."],
  retrieval_accuracy: ["share", "Share of reasonings that are likeliest under their own prompt."],
  retrieval_accuracy_at_2: ["share", "Share of reasonings whose own prompt is among the 2 likeliest."],
  retrieval_accuracy_at_4: ["share", "The same for 4."],
  retrieval_accuracy_at_8: ["share", "The same for 8."],
  retrieval_chance_level: ["share", "Value of retrieval_accuracy by chance."],
  retrieval_chance_level_at_2: ["share", "The same for 2."],
  retrieval_chance_level_at_4: ["share", "The same for 4."],
  retrieval_chance_level_at_8: ["share", "The same for 8."],
  retrieval_above_chance: ["share", "Retrieval accuracy minus its chance level."],
  retrieval_above_chance_at_2: ["share", "The same for 2."],
  retrieval_above_chance_at_4: ["share", "The same for 4."],
  retrieval_above_chance_at_8: ["share", "The same for 8."],
} as const satisfies Record<string, readonly [Unit, string]>;

type Row = keyof typeof ROWS;

/** @param prefix  stands between `collapse/` and the row's name */
function rows<P extends string>(prefix: P, where: string) {
  const named = Object.entries(ROWS).map(([name, [unit, help]]) => {
    const row: Metric = { unit, help: `${help.slice(0, -1)} (${where}).`, kind: "gauge" };
    return [`collapse/${prefix}${name}`, row] as const;
  });
  return Object.fromEntries(named) as Record<`collapse/${P}${Row}`, Metric>;
}

export const COLLAPSE_METRICS = {
  ...rows("", "turns of the whole episode"),
  ...rows("first_", "first turns"),
};
