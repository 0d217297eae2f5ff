/** Rows of the table of metrics for RAGEN-2's gradient analysis, five for each bucket of groups: see model/health/gradient-analysis.ts. */
import { BUCKET_COUNT } from "../../model/health/gradient-buckets.ts";
import type { Metric, Unit } from "./metric.ts";

const ROWS = {
  task: ["number", "Gradient norm of the policy loss alone"],
  entropy: ["number", "Gradient norm of the entropy bonus"],
  kl: ["number", "Gradient norm of the KL term"],
  std: ["reward", "Mean standard deviation of the raw reward within a group"],
  groups: ["groups", "Number of groups"],
} as const satisfies Record<string, readonly [Unit, string]>;

/** Bucket 1 holds the groups whose rewards differ least. */
type Bucket = 1 | 2 | 3 | 4 | 5 | 6 | "all";

const buckets = ["all", ...Array.from({ length: BUCKET_COUNT }, (_, i) => i + 1)] as const;
const within = (bucket: string | number) =>
  bucket === "all" ? "all groups" : `bucket ${bucket} of ${BUCKET_COUNT}, from small to large std of reward`;

export const GRADIENT_METRICS = Object.fromEntries(
  Object.entries(ROWS).flatMap(([name, [unit, help]]) =>
    buckets.map((bucket): [string, Metric] => [
      `gradient/${name}_${bucket}`,
      { unit, help: `${help}, ${within(bucket)}.`, kind: "gauge" },
    ]),
  ),
) as Record<`gradient/${keyof typeof ROWS}_${Bucket}`, Metric>;
