import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import {
  type AdvantageInputs,
  type Estimator,
  estimateAdvantages,
  NEEDS_CRITIC,
} from "../../../../model/learn/advantage/advantage.ts";
import { gae } from "../../../../model/learn/advantage/gae.ts";
import { hybrid } from "../../../../model/learn/advantage/hybrid.ts";
import { overTokens, tokenRewards, whiten } from "../../../../model/learn/advantage/rows.ts";
import { randomRows } from "./rows.ts";

/** A new estimator needs an entry here, so that the tests of all estimators cover it. */
const byKind: Readonly<Record<Estimator["kind"], Estimator>> = {
  gae: { kind: "gae", gamma: 1, lambda: 1, rewardAt: "end" },
  "bi-level-gae": { kind: "bi-level-gae", gamma: 1, lambda: 0.95, gammaTurn: 0.95 },
  grpo: { kind: "grpo" },
  "dr-grpo": { kind: "dr-grpo" },
  rloo: { kind: "rloo" },
  "max-rl": { kind: "max-rl" },
  "expert-iteration": { kind: "expert-iteration" },
  tpo: { kind: "tpo" },
  "reinforce++-baseline": { kind: "reinforce++-baseline" },
  "reinforce++": { kind: "reinforce++", gamma: 1, rewardAt: "turns" },
  gigpo: { kind: "gigpo", gammaTurn: 0.95, normalize: "mean_std" },
  hybrid: { kind: "hybrid", gamma: 1, lambda: 1, rewardAt: "end" },
};
const estimators: readonly Estimator[] = Object.values(byKind);

/** Two trajectories of one group: two turns that earn 1 and 2, one turn that earns -1. */
const batch: AdvantageInputs = {
  width: 4,
  written: Uint8Array.of(1, 1, 0, 1, 0, 1, 1, 0),
  turns: [
    { ends: [1, 3], rewards: [1, 2] },
    { ends: [2], rewards: [-1] },
  ],
  groups: [3, 3],
  values: Float32Array.of(0.5, 0.5, 9, 0.5, 9, 0.5, 0.5, 9),
  anchors: [["a", "b"], ["a"]],
};

describe("estimateAdvantages", () => {
  test("grpo gives every written token its trajectory's advantage", () => {
    // Rewards 3 and -1: mean 1, sample std sqrt 8, so 2 / sqrt 8 = 0.7071.
    const { advantages, returns } = estimateAdvantages(batch, { kind: "grpo" });
    const up = Math.SQRT1_2.toFixed(4);
    const none = "0.0000";
    expect([...advantages].map((a) => a.toFixed(4))).toEqual([up, up, none, up, none, `-${up}`, `-${up}`, none]);
    expect(returns).toBeNull();
  });

  test("gae is whitened over the whole minibatch and hands the critic its targets", () => {
    const { advantages, returns } = estimateAdvantages(batch, { kind: "gae", gamma: 1, lambda: 1, rewardAt: "end" });
    expect([0, 1, 3, 5, 6].map((i) => returns![i])).toEqual([3, 3, 3, -1, -1]);
    // Raw 2.5 three times and -1.5 twice: mean 0.9, sample variance 19.2 / 4.
    expect(advantages[0]).toBeCloseTo(1.6 / Math.sqrt(4.8), 4);
    expect(advantages[5]).toBeCloseTo(-2.4 / Math.sqrt(4.8), 4);
  });

  test("gae with turn rewards does not credit a turn for what came before it", () => {
    const { returns } = estimateAdvantages(batch, { kind: "gae", gamma: 1, lambda: 1, rewardAt: "turns" });
    expect([0, 1, 3].map((i) => returns![i])).toEqual([3, 3, 2]);
  });

  test("hybrid reports the critic's share", () => {
    const { measured } = estimateAdvantages(batch, { kind: "hybrid", gamma: 1, lambda: 1, rewardAt: "end" });
    // Critic: 2.5^2 three times, 1.5^2 twice, mean 4.65; group: 4^2 twice. 16 / 20.65.
    expect(measured["criticShare"]).toBeCloseTo(16 / 20.65, 6);
  });

  test("hybrid whitens the mix, and hands the critic its own targets", () => {
    const rule = { gamma: 1, lambda: 1 };
    const values = batch.values!;
    const estimate = gae(batch, tokenRewards(batch, batch.turns, "end"), values, rule);
    const mixed = hybrid(batch, { ...estimate, values }, [3, -1], batch.groups);
    const { advantages, returns } = estimateAdvantages(batch, { kind: "hybrid", ...rule, rewardAt: "end" });
    expect(advantages).toEqual(whiten(mixed.advantages, batch.written));
    expect(returns).toEqual(estimate.returns);
  });

  test("reinforce++ with the rewards at the end credits every turn with all of them", () => {
    const { advantages } = estimateAdvantages(batch, { kind: "reinforce++", gamma: 1, rewardAt: "end" });
    expect(advantages).toEqual(whiten(Float32Array.of(3, 3, 0, 3, 0, -1, -1, 0), batch.written));
  });

  test("tpo gives each episode its target probability less that of the policy that played it", () => {
    // As in tpo.test.ts: probabilities 1/4 and 3/4, rewards one population std above and below their mean.
    const [e, f] = [Math.E / 4, 3 / (4 * Math.E)];
    const given = { ...batch, logProbs: [Math.log(0.25), Math.log(0.75)] };
    const { advantages } = estimateAdvantages(given, { kind: "tpo" });
    const first = e / (e + f) - 0.25;
    for (const [i, advantage] of [first, first, 0, first, 0, -first, -first, 0].entries())
      expect(advantages[i]).toBeCloseTo(advantage, 6);
  });

  test.each<[Partial<AdvantageInputs>, string]>([
    [{ groups: [3] }, "groups: expected 2 entries, got 1"],
    [{ turns: batch.turns.slice(1) }, "turns: expected 2 entries, got 1"],
    [{ successes: [true] }, "successes: expected 2 entries, got 1"],
    [{ logProbs: [-1] }, "logProbs: expected 2 entries, got 1"],
    [{ anchors: [["a"], ["a"]] }, "row 0: anchors: expected 2 entries, got 1"],
    [{ values: new Float32Array(9) }, "values: expected 8 entries, got 9"],
    [{ tokenExtras: new Float32Array(9) }, "tokenExtras: expected 8 entries, got 9"],
    [{ turns: [{ ends: [1, 3], rewards: [1] }, batch.turns[1]!] }, "row 0: turn rewards: expected 2 entries, got 1"],
    ...[[2], [9]].map((ends): [Partial<AdvantageInputs>, string] => [
      { turns: [{ ends, rewards: [1] }, batch.turns[1]!], anchors: [["a"], ["a"]] },
      `row 0: turn 0 ends at column ${ends}, which the policy did not write`,
    ]),
    ...[
      [3, 1],
      [1, 1],
    ].map((ends): [Partial<AdvantageInputs>, string] => [
      { turns: [{ ends, rewards: [1, 1] }, batch.turns[1]!] },
      `row 0: turn ends must ascend, got ${ends.join(", ")}`,
    ]),
    ...[-1, 5].map((end): [Partial<AdvantageInputs>, string] => [
      { turns: [batch.turns[0]!, { ends: [end], rewards: [1] }] },
      `row 1: turn 0 ends at column ${end}, which the policy did not write`,
    ]),
  ])("refuses %j", (bad, message) => {
    const rule = byKind.gigpo;
    expect(() => estimateAdvantages({ ...batch, ...bad }, rule)).toThrow(new RangeError(message));
  });

  test.each(estimators.map((estimator) => [estimator.kind, estimator] as const))(
    "%s gives finite numbers on every batch, a constant one included",
    (_, estimator) => {
      fc.assert(
        fc.property(randomRows, fc.boolean(), (rows, constant) => {
          const turns = rows.turns.map(({ ends, rewards }) => ({
            ends,
            rewards: rewards.map((r) => (constant ? 0 : r)),
          }));
          const anchors = turns.map(({ ends }) => ends.map(() => "here"));
          const groups = turns.map((_, row) => row % 2);
          const successes = turns.map((_, row) => row % 3 === 0);
          const logProbs = turns.map((_, row) => -row);
          const given = { ...rows, turns, anchors, successes, logProbs, groups };
          const { advantages, returns } = estimateAdvantages(given, estimator);
          expect(advantages.every(Number.isFinite)).toBe(true);
          expect(returns === null).toBe(!NEEDS_CRITIC.has(estimator.kind));
        }),
      );
    },
  );

  test("gae equals the estimate, whitened over written tokens", () => {
    fc.assert(
      fc.property(randomRows, (rows) => {
        const rule = { gamma: 0.9, lambda: 0.8 };
        const raw = gae(rows, tokenRewards(rows, rows.turns, "turns"), rows.values, rule);
        const groups = rows.turns.map(() => 0);
        const { advantages } = estimateAdvantages({ ...rows, groups }, { kind: "gae", ...rule, rewardAt: "turns" });
        expect(advantages).toEqual(whiten(raw.advantages, rows.written));
      }),
    );
  });

  test("reinforce++ with baseline is the centered reward, whitened over tokens", () => {
    const { advantages } = estimateAdvantages(batch, { kind: "reinforce++-baseline" });
    expect(advantages).toEqual(whiten(overTokens(batch, [2, -2]), batch.written));
  });

  test("a penalty on tokens counts from its token on, worked by hand", () => {
    // Row 0 earns 1 and 2, less 0.5 on its second token; row 1 earns -1, less 0.25 on its first.
    const tokenExtras = Float32Array.of(0, -0.5, 0, 0, 0, -0.25, 0, 0);
    const given = { ...batch, tokenExtras };
    const gamma = 1;
    const { returns } = estimateAdvantages(given, { kind: "gae", gamma, lambda: 1, rewardAt: "turns" });
    expect([0, 1, 3, 5, 6].map((i) => returns![i])).toEqual([2.5, 2.5, 2, -1.25, -1]);
    const plus = estimateAdvantages(given, { kind: "reinforce++", gamma, rewardAt: "turns" }).advantages;
    expect(plus).toEqual(whiten(Float32Array.of(2.5, 2.5, 0, 2, 0, -1.25, -1, 0), batch.written));
    // As wholes 2.5 and -1.25: mean 0.625.
    expect(estimateAdvantages(given, { kind: "dr-grpo" }).advantages[0]).toBeCloseTo(1.875, 6);
  });

  const wholes = estimators.filter(({ kind }) => !["gae", "hybrid", "reinforce++"].includes(kind));
  test.each(wholes.map((estimator) => [estimator.kind, estimator] as const))(
    "%s counts a penalty on tokens as part of its turn's reward",
    (_, estimator) => {
      fc.assert(
        fc.property(randomRows, fc.float({ min: -1, max: 0, noNaN: true }), (rows, penalty) => {
          const tokenExtras = Float32Array.from(rows.written, (written, i) => (written ? penalty * ((i % 3) + 1) : 0));
          const charged = rows.turns.map(({ ends, rewards }, row) => ({
            ends,
            rewards: rewards.map((reward, turn) => {
              const from = row * rows.width + (turn === 0 ? 0 : ends[turn - 1]! + 1);
              return tokenExtras.slice(from, row * rows.width + ends[turn]! + 1).reduce((sum, x) => sum + x, reward);
            }),
          }));
          const more = {
            anchors: rows.turns.map(({ ends }) => ends.map(() => "here")),
            groups: rows.turns.map((_, i) => i % 2),
            successes: rows.turns.map((_, i) => i % 3 === 0),
            logProbs: rows.turns.map((_, i) => -i),
          };
          const { advantages } = estimateAdvantages({ ...rows, ...more, tokenExtras }, estimator);
          const expected = estimateAdvantages({ ...rows, ...more, turns: charged }, estimator).advantages;
          expect(advantages).toEqual(expected);
        }),
      );
    },
  );

  test("names a missing input", () => {
    const { values: _, anchors: __, ...bare } = batch;
    expect(() => estimateAdvantages(bare, { kind: "gae", gamma: 1, lambda: 1, rewardAt: "end" })).toThrow(
      "gae needs a critic: pass values, or choose an estimator without one",
    );
    const gigpo = estimators.find(({ kind }) => kind === "gigpo")!;
    expect(() => estimateAdvantages(bare, gigpo)).toThrow(
      "gigpo compares turns by the state they began in: pass anchors",
    );
    expect(() => estimateAdvantages(bare, { kind: "max-rl" })).toThrow(
      "max-rl reads which episodes succeeded: pass successes",
    );
    expect(() => estimateAdvantages(bare, { kind: "expert-iteration" })).toThrow(
      "expert-iteration reads which episodes succeeded: pass successes",
    );
    expect(() => estimateAdvantages(bare, { kind: "tpo" })).toThrow(
      "tpo needs the log-probability of each episode: pass logProbs",
    );
  });
});
