/** What an update does differently than the config says: coefficients that follow a target, and rungs. */
import { describe, expect, test } from "bun:test";
import { CONTROL_START, controlAfter, intervened } from "../../../actors/training/interventions.ts";
import type { Progress } from "../../../actors/training/progress.ts";
import { type Candidates, type FilterRule, filterGroups } from "../../../model/learn/filter.ts";
import { Stage } from "./stage.ts";

describe("the entropy coefficient", () => {
  const learner = { updates: 3, filter: { strategy: "all" }, entropyCoefficient: 0.001 };
  const target = { entropyTarget: 0.2, entropyStep: 0.002 };
  const coefficients = (stage: Stage) => stage.settings.map(({ policy }) => policy.entropyCoefficient);
  const after = async (entropy: number, target: object) => {
    const stage = new Stage({ learner: { ...learner, ...target } });
    stage.entropy = entropy;
    await stage.training.run();
    return coefficients(stage);
  };

  test("stays without a target, and where entropy is not finite", async () => {
    expect(await after(0.01, {})).toEqual([0.001, 0.001, 0.001]);
    expect(await after(Number.NaN, target)).toEqual([0.001, 0.001, 0.001]);
  });

  test("rises by a step while entropy is below its target, and else falls to 0 at least", async () => {
    expect(await after(0.19, target)).toEqual([0.001, 0.003, 0.005]);
    expect(await after(0.2, target)).toEqual([0.001, 0, 0]);
  });

  test("continues from its saved state", async () => {
    const targeted = { learner: { ...learner, ...target } };
    const stage = new Stage({ ...targeted, checkpoint: { everyUpdates: 1 } });
    stage.entropy = 0.1;
    await stage.training.run();
    expect(stage.metrics.get("train/entropy_coefficient 3")).toBe(0.005);
    const resumed = new Stage(targeted, stage.saved.find(({ update }) => update === 2)!);
    await resumed.training.run();
    expect(coefficients(resumed)).toEqual([0.005]);
  });

  test("is the configured one in a checkpoint that an earlier release saved", async () => {
    const stage = new Stage({ learner: { ...learner, ...target }, checkpoint: { everyUpdates: 1 } });
    await stage.training.run();
    const { entropyCoefficient: _, ...saved } = stage.saved.find(({ update }) => update === 2)!;
    const resumed = new Stage({ learner: { ...learner, ...target } }, saved as Progress);
    await resumed.training.run();
    expect(coefficients(resumed)).toEqual([0.001]);
  });
});

test.each(["linear", "softmax"] as const)(
  "the rung tighten-filter never keeps more groups: top_p, %s",
  async (mode) => {
    const stage = new Stage();
    await stage.training.run();
    // Eight groups of two, with the same spread of rewards.
    const groups = Array.from({ length: 16 }, (_, i) => i >> 1);
    const candidates: Candidates = { groups, rewards: groups.map((_, i) => i % 2) };
    const kept = (filter: FilterRule) => filterGroups(candidates, filter).kept.length;
    for (const value of [0.1, 0.25, 0.5, 1]) {
      const ranking = { metric: "reward_variance", order: "largest", includeZero: true } as const;
      const filter: FilterRule = { strategy: "top_p", value, mode, ...ranking };
      const { control } = controlAfter("tighten-filter", CONTROL_START);
      const tightened = intervened({ ...stage.settings[0]!, filter }, control, 8).filter;
      expect(kept(tightened)).toBeWithin(1, kept(filter) + 1);
    }
  },
);

test.each([
  ["clip-cov", { treatment: "clip", share: 0.1, bounds: [1, 5] }],
  ["kl-cov", { treatment: "kl", share: 0.1, coefficient: 1 }],
] as const)("after the rung %s the learner treats covariance as configured", async (rung, rule) => {
  const changed = {
    learner: { updates: 3, filter: { strategy: "all" }, covariance: { share: 0.1 } },
    health: { ladder: [rung] },
    checkpoint: { everyUpdates: 1 },
  };
  const stage = new Stage(changed);
  await stage.training.run();
  expect(stage.settings.map(({ covariance }) => covariance)).toEqual([null, null, null]);
  const saved = stage.saved.find(({ update }) => update === 2)!;
  const { control } = controlAfter(rung, saved.health.control);
  const resumed = new Stage(changed, { ...saved, health: { ...saved.health, control } });
  await resumed.training.run();
  expect(resumed.settings[0]!.covariance).toMatchObject(rule);
});

describe("the KL coefficient", () => {
  const kl = { coefficient: 0.1, control: "adaptive", target: 0.05 };
  const learner = { updates: 3, filter: { strategy: "all" }, kl };
  const coefficients = (stage: Stage) => stage.settings.map(({ policy }) => policy.kl!.coefficient);

  test("ignores a KL that is not finite, which would stay in it", async () => {
    const stage = new Stage({ learner });
    stage.kl = Number.NaN;
    await stage.training.run();
    expect(coefficients(stage)).toEqual([0.1, 0.1, 0.1]);
    expect(stage.saved.at(-1)!.klCoefficient).toBe(0.1);
  });

  test("follows the measured divergence, and continues from its saved state", async () => {
    const stage = new Stage({ learner, checkpoint: { everyUpdates: 1 } });
    stage.kl = 1;
    await stage.training.run();
    // Too far by more than a fifth: times 1 + 0.2 * 4 / 10,000 after each update of 4 trajectories.
    const expected = [0.1, 0.1 * 1.00008, 0.1 * 1.00008 ** 2];
    for (const [i, value] of coefficients(stage).entries()) expect(value).toBeCloseTo(expected[i]!, 12);
    const resumed = new Stage({ learner }, stage.saved.find(({ update }) => update === 2)!);
    await resumed.training.run();
    expect(coefficients(resumed)[0]).toBeCloseTo(expected[2]!, 12);
    expect(stage.calls.filter((call) => call === "reference").length).toBe(1);
    expect(resumed.calls.filter((call) => call === "reference").length).toBe(1);
  });

  test("of 0 needs no reference, unless a rung may raise it", async () => {
    const references = async (ladder: readonly string[]) => {
      const stage = new Stage({ learner: { ...learner, kl: { coefficient: 0 } }, health: { ladder } });
      await stage.training.run();
      return stage.calls.filter((call) => call === "reference").length;
    };
    expect([await references(["raise-entropy"]), await references(["raise-kl"])]).toEqual([0, 1]);
  });
});
