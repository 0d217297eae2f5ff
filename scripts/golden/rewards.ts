/** Golden case H9: reward normalization and rollout filters. An unknown rule throws. */
import { z } from "zod";
import { type Candidates, FILTER_METRICS, filterGroups } from "../../model/learn/filter/filter.ts";
import { type Normalization, normalizeRewards } from "../../model/learn/reward.ts";
import { type Check, perKey } from "./check.ts";
import { filterAsRagen } from "./ragen.ts";

interface FilterCase {
  params: Record<string, unknown>;
  kept_groups: number[];
}
interface FilterVectors<Case> {
  scores: number[];
  num_groups: number;
  group_size: number;
  cases: Case[];
}
interface Earned {
  scores: number[];
  group_ids: number[];
  tags?: string[];
  penalties: number[];
}
type NormalizationCase = Normalization & { out: number[] };
const NormalizationRule = z.object({
  method: z.enum(["identity", "mean", "mean_std", "asym_clip"]),
  grouping: z.enum(["state", "inductive", "batch"]),
});
const RatioRule = z.object({ ratio: z.number(), type: z.enum(["std", "std_rev"]) });
const SelectionRule = z.strictObject({
  value: z.number(),
  filter_type: z.enum(["largest", "smallest"]),
  strategy: z.enum(["top_p", "top_k", "top_k_abs", "min_p"]),
  top_p_prob_mode: z.enum(["linear", "softmax"]),
  include_zero: z.boolean(),
  selection_eps: z.number(),
  metric: z.enum(FILTER_METRICS),
  note: z.string().optional(),
});

interface H9 {
  v1: Earned & {
    results: NormalizationCase[];
    group_size_1_note: Earned & NormalizationCase;
    v1_filter: FilterVectors<{ ratio: number; type: "std" | "std_rev"; kept: number[] }> & { group_std: number[] };
  };
  v2_filter: FilterVectors<FilterCase> & { defaults: FilterCase["params"] };
}

export function rewardChecks(body: unknown): Check[] {
  const { v1, v2_filter } = body as H9;
  const lone = v1.group_size_1_note;
  const { v1_filter } = v1;
  const candidates = groupsOf(v1_filter.scores, v1_filter.group_size);
  return [
    ...v1.results.map((rule) => normalizationCheck(v1, rule)),
    normalizationCheck(lone, lone),
    {
      name: "v1_filter: group_std",
      expected: v1_filter.group_std,
      got: Array.from({ length: v1_filter.num_groups }, (_, group) => {
        const { rewards } = groupsOf(v1_filter.scores, v1_filter.group_size);
        const members = Array.from(rewards).slice(group * v1_filter.group_size, (group + 1) * v1_filter.group_size);
        return filterGroups(groupsOf(members, members.length), { strategy: "all" }).metrics.rewardStd;
      }),
    },
    ...v1_filter.cases.map(({ kept, ...given }) => {
      const rule = { strategy: "top_ratio", ...RatioRule.parse(given) } as const;
      const got = filterAsRagen(candidates, rule).kept;
      return { name: `v1_filter: ${rule.type} ${rule.ratio}`, expected: kept, got };
    }),
    ...v2_filter.cases.flatMap((vector) => filterChecks(v2_filter, vector)),
  ];
}

function normalizationCheck({ scores, penalties, group_ids, tags }: Earned, vector: NormalizationCase): Check {
  const rule = NormalizationRule.parse(vector);
  const earned = { rewards: scores, penalties, groups: group_ids, tags: tags ?? scores.map(() => "") };
  const got = Array.from(normalizeRewards(earned, rule).scores);
  return { name: `${rule.method} by ${rule.grouping}`, expected: vector.out, got };
}

const groupsOf = (rewards: number[], size: number): Candidates => ({
  rewards,
  groups: rewards.map((_, i) => Math.floor(i / size)),
});

function filterChecks({ defaults, scores, group_size, num_groups }: H9["v2_filter"], vector: FilterCase): Check[] {
  const { params, kept_groups, ...measured } = vector;
  const { note, ...rule } = SelectionRule.parse({ ...defaults, ...params });
  const { kept, metrics } = filterAsRagen(
    groupsOf(note === undefined ? scores : repeatedGroup(note, num_groups), group_size),
    {
      strategy: rule.strategy,
      value: rule.value,
      mode: rule.top_p_prob_mode,
      epsilon: rule.selection_eps,
      metric: rule.metric,
      order: rule.filter_type,
      includeZero: rule.include_zero,
    },
  );
  const name = `v2_filter ${JSON.stringify(params)}: `;
  return [
    { name: `${name}kept_groups`, expected: kept_groups, got: kept },
    ...perKey(name, measured, {
      kept_ratio: metrics.keptShare,
      zero_count: metrics.zeroScoreCount,
      // RAGEN-2 calls the mean of no group 0.
      chosen_in_group_std: metrics.keptRewardStd ?? 0,
    }),
  ];
}

/** Some vectors give their scores in a note: "all groups [0,.004,0,.004]: ...". */
function repeatedGroup(note: string, groups: number): number[] {
  const members = /all groups \[([^\]]+)\]/.exec(note)?.[1]?.split(",").map(Number);
  if (members === undefined || members.some(Number.isNaN))
    throw new Error(`cannot read scores from the note "${note}"; expected "all groups [...]"`);
  return Array.from({ length: groups }, () => members).flat();
}
