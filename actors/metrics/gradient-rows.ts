/** RAGEN-2's analysis of gradients as rows of the table of metrics, by bucket of groups. See model/health/gradient-analysis.ts. */
import { BUCKET_COUNT } from "../../model/health/gradient-analysis.ts";
import type { Metric, Unit } from "./metrics.ts";

const ROWS = {
  task: ["number", "Norm of the gradient of the advantages' part of the loss"],
  entropy: ["number", "Norm of the gradient of the entropy bonus"],
  kl: ["number", "Norm of the gradient of the KL term"],
  std: ["reward", "Mean standard deviation of the raw reward within a group"],
  groups: ["groups", "How many groups there are"],
} as const satisfies Record<string, readonly [Unit, string]>;

/** 1 is where rewards differ least. */
type Bucket = 1 | 2 | 3 | 4 | 5 | 6 | "all";

const buckets = ["all", ...Array.from({ length: BUCKET_COUNT }, (_, i) => i + 1)] as const;
const within = (bucket: string | number) =>
  bucket === "all" ? "of all groups together" : `in bucket ${bucket} of ${BUCKET_COUNT} by the groups' std of reward`;

export const GRADIENT_METRICS = Object.fromEntries(
  Object.entries(ROWS).flatMap(([name, [unit, help]]) =>
    buckets.map((bucket): [string, Metric] => [
      `gradient/${name}_${bucket}`,
      { unit, help: `${help}, ${within(bucket)}.`, kind: "gauge" },
    ]),
  ),
) as Record<`gradient/${keyof typeof ROWS}_${Bucket}`, Metric>;
