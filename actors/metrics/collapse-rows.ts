/** Rows of the table of metrics (metrics.ts) that come from two analyses of RAGEN-2: reasoning collapse, and gradients. */
import { BUCKET_COUNT } from "../../model/health/gradient-buckets.ts";
import type { Metric, Unit } from "./metric.ts";

/**
 * The metrics of reasoning collapse, by name, with their descriptions. A thought's marginal log-probability is the log of the thought's
 * mean probability over all prompts. A run measures each metric twice: over thoughts of any turn, and over thoughts of first turns. The
 * formulas are in model/health/mutual-information.ts.
 */
const ROWS = {
  mi_estimate: "Mutual information of thought and prompt per token: matched_log_prob_mean - marginal_log_prob_mean.",
  mi_upper_bound: "Upper bound of mi_estimate: the logarithm of the number of distinct prompts.",
  mi_seq_estimate: "Mutual information of thought and prompt, per whole thought.",
  mi_zscore: "Quotient: mi_estimate divided by (marginal_std + .001).",
  mi_zscore_seq: "Quotient: mi_seq_estimate divided by (marginal_std_seq + .001).",
  mi_zscore_ema: "Quotient: mi_estimate divided by (marginal_std_ema + .001).",
  mi_zscore_ema_seq: "Quotient: mi_seq_estimate divided by (marginal_std_ema_seq + .001).",
  conditional_entropy_est: "Entropy of a thought's token given its prompt, estimated as -matched_log_prob_mean.",
  conditional_entropy_seq_est: "Entropy of a thought given its prompt: minus its mean log-probability.",
  reasoning_entropy_est: "Entropy of a thought's token, estimated as -marginal_log_prob_mean.",
  reasoning_entropy_seq_est: "Entropy of a thought: minus the mean marginal log-probability of a whole thought.",
  matched_log_prob_mean: "Mean log-probability of a thought's token under the thought's own prompt.",
  marginal_log_prob_mean:
    "Mean marginal log-probability per token. Marginal: the log of a thought's mean probability over all prompts.",
  marginal_std: "Standard deviation over thoughts of the marginal log-probability per token.",
  marginal_std_seq: "Standard deviation over thoughts of a whole thought's marginal log-probability.",
  marginal_std_ema: "Running mean of marginal_std.",
  marginal_std_ema_seq: "Running mean of marginal_std_seq.",
  retrieval_accuracy: "Share of thoughts that are more probable under their own prompt than under every other.",
  retrieval_accuracy_at_2: "Share of thoughts whose own prompt is among the 2 under which they are most probable.",
  retrieval_accuracy_at_4: "Share of thoughts whose own prompt is among the 4 under which they are most probable.",
  retrieval_accuracy_at_8: "Share of thoughts whose own prompt is among the 8 under which they are most probable.",
  retrieval_chance_level: "Expected retrieval_accuracy if the prompts were ranked at random.",
  retrieval_chance_level_at_2: "Expected retrieval_accuracy_at_2 if the prompts were ranked at random.",
  retrieval_chance_level_at_4: "Expected retrieval_accuracy_at_4 if the prompts were ranked at random.",
  retrieval_chance_level_at_8: "Expected retrieval_accuracy_at_8 if the prompts were ranked at random.",
  retrieval_above_chance: "Difference: retrieval_accuracy minus retrieval_chance_level.",
  retrieval_above_chance_at_2: "Difference: retrieval_accuracy_at_2 minus retrieval_chance_level_at_2.",
  retrieval_above_chance_at_4: "Difference: retrieval_accuracy_at_4 minus retrieval_chance_level_at_4.",
  retrieval_above_chance_at_8: "Difference: retrieval_accuracy_at_8 minus retrieval_chance_level_at_8.",
} as const;

const unitOf = (name: string): Unit =>
  name.startsWith("retrieval_") ? "share" : name.startsWith("mi_zscore") ? "number" : "nats";

type Row = keyof typeof ROWS;

/** @param prefix  text between `collapse/` and the row's name. The names of other rows in the row's meaning get the prefix too. */
function rows<P extends string>(prefix: P, where: string) {
  const named = Object.entries(ROWS).map(([name, help]) => {
    const meaning = help.slice(0, -1).replaceAll(/\w+_\w+/g, `${prefix}$&`);
    const row: Metric = { unit: unitOf(name), help: `${meaning} (${where}).`, kind: "gauge" };
    return [`collapse/${prefix}${name}`, row] as const;
  });
  return Object.fromEntries(named) as Record<`collapse/${P}${Row}`, Metric>;
}

export const COLLAPSE_METRICS = {
  ...rows("", "thoughts of any turn"),
  ...rows("first_", "thoughts of first turns"),
};

/** Metrics of RAGEN-2's gradient analysis (model/health/gradient-analysis.ts). A bucket holds groups, and has these five metrics. */
const GRADIENT_ROWS = {
  task: ["number", "gradient norm of the policy loss alone"],
  entropy: ["number", "gradient norm of the entropy bonus"],
  kl: ["number", "gradient norm of the KL term"],
  std: ["reward", "mean standard deviation of the raw reward within a group"],
  groups: ["groups", "number of groups"],
} as const satisfies Record<string, readonly [Unit, string]>;

/** Bucket 1 holds the groups whose rewards differ least. */
type Bucket = 1 | 2 | 3 | 4 | 5 | 6 | "all";

const buckets = ["all", ...Array.from({ length: BUCKET_COUNT }, (_, i) => i + 1)] as const;
const groupsIn = (bucket: string | number) =>
  bucket === "all"
    ? "All groups"
    : `Groups of bucket ${bucket} of ${BUCKET_COUNT} (bucket 1 has the smallest stds of reward)`;

export const GRADIENT_METRICS = Object.fromEntries(
  Object.entries(GRADIENT_ROWS).flatMap(([name, [unit, help]]) =>
    buckets.map((bucket): [string, Metric] => [
      `gradient/${name}_${bucket}`,
      { unit, help: `${groupsIn(bucket)}: ${help}.`, kind: "gauge" },
    ]),
  ),
) as Record<`gradient/${keyof typeof GRADIENT_ROWS}_${Bucket}`, Metric>;
