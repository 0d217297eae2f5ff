/**
 * Our rewards, filters, advantages, losses and collapse metrics against numbers that RAGEN's Python computed
 * (tests/golden/ragen.json). The tolerance is 1e-5, the file's convention. `bun run golden` checks the masks, which need the
 * chat messages too.
 */
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-backend-cpu";
import { collapseMetrics } from "../../../model/health/mutual-information.ts";
import { biLevelGae, type Estimate, gae } from "../../../model/learn/advantage/gae.ts";
import { drGrpo, grpo, rloo } from "../../../model/learn/advantage/group.ts";
import { overTokens, type Rows, whiten } from "../../../model/learn/advantage/rows.ts";
import { type Aggregation, tokenWeights } from "../../../model/learn/aggregation.ts";
import { type FilterRule, filterGroups } from "../../../model/learn/filter.ts";
import { klEstimate, policyLoss } from "../../../model/learn/loss.ts";
import { normalizeRewards } from "../../../model/learn/reward.ts";
import { everyColumn, oncePerEpisode, turnsFromRewards } from "../../golden/cases/ragen.ts";

await tf.setBackend("cpu");

// The file's shapes differ from vector to vector; each test below reads its own.
// biome-ignore lint/suspicious/noExplicitAny: as above
type Vectors = any;
const file: Vectors = await Bun.file(join(import.meta.dir, "../../golden/ragen.json")).json();
const caseOf = (id: string): Vectors => file.cases.find((one: Vectors) => one.id === id);

type Matrix = number[][];
const rowsOf = (mask: Matrix): Rows => ({ width: mask[0]!.length, written: Uint8Array.from(mask.flat()) });
const flat = (matrix: Matrix) => Float32Array.from(matrix.flat());

function expectClose(got: ArrayLike<number>, expected: number[]): void {
  expect(got.length).toBe(expected.length);
  const worst = Math.max(...expected.map((value, i) => Math.abs(value - got[i]!)));
  expect(worst).toBeLessThanOrEqual(1e-5);
}

describe("H9 rewards and filters", () => {
  const { v1, v2_filter } = caseOf("H9");

  test.each<[string, Vectors]>(v1.results.map((rule: Vectors) => [`${rule.method} by ${rule.grouping}`, rule]))(
    "normalizes by %s",
    (_, rule) => {
      const earned = { rewards: v1.scores, penalties: v1.penalties, groups: v1.group_ids, tags: v1.tags };
      expectClose(normalizeRewards(earned, rule).scores, rule.out);
    },
  );

  const candidates = ({ scores, group_size }: Vectors) => ({
    rewards: scores as number[],
    groups: (scores as number[]).map((_, i) => Math.floor(i / group_size)),
  });

  test.each<[string, Vectors]>(v1.v1_filter.cases.map((one: Vectors) => [`${one.type} ${one.ratio}`, one]))(
    "filters as v1 by %s",
    (_, { ratio, type, kept }) => {
      expect(
        filterGroups(candidates(v1.v1_filter), {
          strategy: "top_ratio",
          value: ratio,
          order: ORDERS[type as keyof typeof ORDERS],
        }).kept,
      ).toEqual(kept);
    },
  );

  const given = v2_filter.cases.filter((one: Vectors) => one.params.note === undefined);
  test.each<[string, Vectors]>(given.map((one: Vectors) => [JSON.stringify(one.params), one]))(
    "filters as v2 by %s",
    (_, { params, kept_groups, kept_ratio, chosen_in_group_std }) => {
      const all = { ...v2_filter.defaults, ...params };
      const rule = {
        strategy: all.strategy,
        value: all.value,
        mode: all.top_p_prob_mode,
        metric: all.metric,
        order: all.filter_type,
        includeZero: all.include_zero,
      } as FilterRule;
      const { kept, metrics } = filterGroups(candidates(v2_filter), rule);
      expect(kept).toEqual(kept_groups);
      expectClose([metrics.keptShare, metrics.keptRewardStd!], [kept_ratio, chosen_in_group_std]);
    },
  );
});

/** RAGEN's names of orders. */
const ORDERS = { std: "largest", std_rev: "smallest" } as const;

describe("H10 advantages and losses", () => {
  const { v1, v2 } = caseOf("H10");

  function expectEstimate(rows: Rows, { advantages, returns }: Estimate, vector: Vectors): void {
    expectClose(returns, vector.returns.flat());
    expectClose(whiten(advantages, rows.written), vector.advantages_whitened.flat());
  }

  test.each(["bilevel_builtin", "bilevel_masked_two_rows"])("%s", (name) => {
    const { rewards, values, mask, gamma, lam, high_level_gamma } = v1[name];
    const rows = rowsOf(mask);
    const rule = { gamma, lambda: lam, gammaTurn: high_level_gamma };
    expectEstimate(rows, biLevelGae(rows, turnsFromRewards(rows, flat(rewards)), flat(values), rule), v1[name]);
  });

  test.each([
    ["all", v1["gae_v1_verl_gamma1_lam1"]],
    ["written", v2["gae_v2_verl_gamma1.0_lam1.0"]],
  ] as const)("gae over %s tokens", (over, vector) => {
    const { rewards, values, mask } = v1["gae_v1_verl_gamma1_lam1"];
    const rows = rowsOf(mask);
    const steps = over === "all" ? everyColumn(rows) : rows;
    expectEstimate(rows, gae(steps, flat(rewards), flat(values), { gamma: 1, lambda: 1 }), vector);
  });

  const group = [0, 0, 0, 0];
  test.each([
    ["grpo_std", (scores: number[]) => grpo(scores, group)],
    ["rloo", (scores: number[]) => rloo(scores, group)],
  ] as const)("%s", (name, estimate) => {
    const rows = rowsOf([1, 1, 1, 1].map(() => [1, 1, 1]));
    expectClose(overTokens(rows, estimate(v1[name].scores)), v1[name].advantages.flat());
  });

  test("rf++_baseline", () => {
    const rows = rowsOf([1, 1, 1, 1].map(() => [1, 1, 1]));
    const { scores, advantages } = v1["rf++_baseline"];
    expectClose(whiten(overTokens(rows, drGrpo(scores, group)), rows.written), advantages.flat());
  });

  test("grpo counts an episode once", () => {
    const { scores, episode_ids, advantage_per_row } = v2.grpo_episode_dedup;
    const groups = scores.map(() => 0);
    expectClose(oncePerEpisode(scores, episode_ids, grpo), advantage_per_row);
    expectClose(grpo(scores, groups), v2.grpo_no_dedup.advantage_per_row);
  });

  test.each<Aggregation>(["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])(
    "policy loss, %s",
    (aggregation) => {
      const vector = v1[`policy_loss_${aggregation}`];
      const rows = rowsOf(vector.mask);
      const tensor = (values: Float32Array) => tf.tensor2d(values, [vector.mask.length, rows.width]);
      const { loss, clipHighShare, clipLowShare, dualClipShare, ratioKl } = policyLoss(
        {
          logProbs: tf.tensor2d(vector.log_prob),
          oldLogProbs: tf.tensor2d(vector.old_log_prob),
          advantages: tf.tensor2d(vector.advantages),
          weights: tensor(tokenWeights(rows, aggregation)),
          shares: tensor(tokenWeights(rows, "token-mean")),
        },
        { kind: "ppo", clipLow: vector.clip_low, clipHigh: vector.clip_high, dualClip: vector.clip_c },
      );
      const got = [loss, tf.add(clipHighShare, clipLowShare), dualClipShare, ratioKl].map((x) => x.dataSync()[0]!);
      expectClose(got, [vector.pg_loss, vector.clipfrac, vector.clipfrac_lower, vector.ppo_kl]);
    },
  );

  test.each([
    ["kl_k1", "k1"],
    ["kl_abs", "abs"],
    ["kl_k2", "k2"],
  ] as const)("%s", (name, estimator) => {
    const { log_prob, old_log_prob } = v1["policy_loss_token-mean"];
    expectClose(klEstimate(tf.tensor2d(log_prob), tf.tensor2d(old_log_prob), estimator).dataSync(), v2[name].flat());
  });
});

test("X2 collapse metrics, over two calls", () => {
  const vectors = file.extras.X2_collapse_metrics;
  const { cross_log_probs_per_token, lengths, group_ids, std_eps, ema_decay } = vectors;
  const scores = (factor: number) => ({
    perToken: cross_log_probs_per_token.map((row: number[]) => row.map((score) => score * factor)),
    lengths,
    own: group_ids,
  });
  const rule = { epsilon: std_eps, decay: ema_decay };
  const first = collapseMetrics(scores(1), null, rule);
  const second = collapseMetrics(scores(1.5), first.spread, rule);
  const named = (metrics: Readonly<Record<string, number>>, expected: Record<string, number>) =>
    Object.keys(expected).map((key) => metrics[key.replace("collapse/", "")] ?? Number.NaN);
  expectClose(named(first.metrics, vectors.first_call), Object.values(vectors.first_call));
  const after = vectors.second_call_with_log_probs_times_1_5;
  expectClose(named(second.metrics, after), Object.values(after));
});
