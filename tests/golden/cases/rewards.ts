/** Golden case H9: reward normalization and rollout filters. An unknown rule throws. */
import { z } from "zod";
import { type Candidates, FILTER_METRICS, filterGroups } from "../../../model/learn/filter.ts";
import { type Normalization, normalizeRewards } from "../../../model/learn/reward.ts";
import { type Check, eachVector, perKey, vectorChecks } from "./check.ts";
import { filterAsRagen } from "./ragen.ts";

interface FilterCase {
  params: Record<string, unknown>;
  kept_groups: number[];
  note?: string;
}
interface FilterVectors<Case> {
  scores: number[];
  num_groups: number;
  group_size: number;
  cases: Case[];
}
type Scores = Pick<FilterVectors<unknown>, "scores" | "num_groups" | "group_size">;
interface Earned {
  scores: number[];
  group_ids: number[];
  tags?: string[];
  penalties: number[];
}
type NormalizationCase = Normalization & { out: number[] };
const AnyVector = z.unknown();
const NormalizationRule = z.object({
  method: z.enum(["identity", "mean", "mean_std", "asym_clip"]),
  grouping: z.enum(["state", "inductive", "batch"]),
});
const RatioCase = z.object({
  ratio: z.number(),
  type: z.enum(["std", "std_rev"]),
  kept: z.array(z.number()),
  note: z.string().optional(),
});
const SelectionRule = z.strictObject({
  value: z.number(),
  filter_type: z.enum(["largest", "smallest"]),
  strategy: z.enum(["top_p", "top_k", "top_k_abs", "min_p"]),
  top_p_prob_mode: z.enum(["linear", "softmax"]),
  include_zero: z.boolean(),
  selection_eps: z.literal(0.01),
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
    ...eachVector("results", v1.results, AnyVector, (rule) => [normalizationCheck(v1, rule as NormalizationCase)]),
    ...vectorChecks("group_size_1_note", () => [normalizationCheck(lone, lone)]),
    {
      name: "v1_filter: group_std",
      expected: v1_filter.group_std,
      got: Array.from({ length: v1_filter.num_groups }, (_, group) => {
        const members = v1_filter.scores.slice(group * v1_filter.group_size, (group + 1) * v1_filter.group_size);
        return filterGroups(groupsOf(members, members.length), { strategy: "all" }).metrics.rewardStd;
      }),
    },
    ...eachVector("v1_filter", v1_filter.cases, RatioCase, ({ kept, note, ratio, type }) => {
      const rule = { strategy: "top_ratio", value: ratio, order: type === "std" ? "largest" : "smallest" } as const;
      const noted = groupsOf(scoresOf(v1_filter, note), v1_filter.group_size);
      const got = filterAsRagen(note === undefined ? candidates : noted, rule).kept;
      return [{ name: `v1_filter: ${type} ${ratio}`, expected: kept, got }];
    }),
    ...eachVector("v2_filter", v2_filter.cases, AnyVector, (vector) => filterChecks(v2_filter, vector as FilterCase)),
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
  const { params, kept_groups, note: caseNote, ...measured } = vector;
  const { note = caseNote, ...rule } = SelectionRule.parse({ ...defaults, ...params });
  const { kept, metrics } = filterAsRagen(groupsOf(scoresOf({ scores, group_size, num_groups }, note), group_size), {
    strategy: rule.strategy,
    value: rule.value,
    mode: rule.top_p_prob_mode,
    metric: rule.metric,
    order: rule.filter_type,
    includeZero: rule.include_zero,
  });
  const name = `v2_filter ${JSON.stringify(params)}: `;
  return [
    { name: `${name}kept_groups`, expected: kept_groups, got: kept },
    ...perKey(name, measured, {
      kept_ratio: metrics.keptShare,
      zero_count: metrics.zeroScoreCount,
      // Where no group is kept, RAGEN-2 reports a mean of 0.
      chosen_in_group_std: metrics.keptRewardStd ?? 0,
    }),
  ];
}

/**
 * Some vectors give their scores in a note: "all groups [0,.004,0,.004]" repeats the members of a group, "all groups constant
 * 0.5" gives every member this score (0 without a number), "constant groups [0,1,2]" gives each group its own. Any other note
 * is a comment.
 */
function scoresOf({ scores, num_groups, group_size }: Scores, note = ""): number[] {
  const text = /\[([^\]]*)\]/.exec(note)?.[1];
  const listed = text?.split(",").map((part) => (part.trim() === "" ? Number.NaN : Number(part)));
  const isConstant = /\bconstant\b/.test(note);
  if (!isConstant && !note.startsWith("all groups")) return scores;
  if (listed?.some(Number.isNaN))
    throw new Error(`cannot read scores from the note "${note}"; expected numbers in [...]`);
  if (listed === undefined) {
    const score = Number(/-?\d*\.?\d+/.exec(note)?.[0] ?? 0);
    return Array.from({ length: num_groups * group_size }, () => score);
  }
  const perGroup = Array.from({ length: num_groups }, (_, group) =>
    isConstant && listed.length === num_groups ? Array<number>(group_size).fill(listed[group]!) : listed,
  );
  const noted = perGroup.flat();
  if (noted.length !== scores.length)
    throw new Error(`the note "${note}" gives ${noted.length} scores; expected ${scores.length}`);
  return noted;
}
