/** Buckets of groups, from a small to a large spread of rewards. Source: RAGEN-2, https://arxiv.org/abs/2604.06268. */

export const BUCKET_COUNT = 6;

/** quantile: the sizes of the buckets differ by at most 1. fixed: bucket b has stds from b up to b + 1; the last also has all larger stds. */
export type BucketRule = "quantile" | "fixed";

/** (groups) the bucket of each group, counted from 0, by the group's std of the raw reward. Groups with equal stds keep their order. */
export function bucketsOf(stds: readonly number[], rule: BucketRule): number[] {
  if (rule === "fixed") return stds.map((std) => Math.min(BUCKET_COUNT - 1, Math.floor(std)));
  const ranked = [...stds.keys()].sort((a, b) => stds[a]! - stds[b]!);
  const buckets = new Array<number>(stds.length);
  for (const [rank, group] of ranked.entries()) buckets[group] = Math.floor((rank * BUCKET_COUNT) / stds.length);
  return buckets;
}
