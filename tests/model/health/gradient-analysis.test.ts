import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { analyzeGradients } from "../../../model/health/gradient-analysis.ts";
import { BUCKET_COUNT, bucketsOf } from "../../../model/health/gradient-buckets.ts";
import type { UpdateSettings } from "../../../model/learn/update/types.ts";
import { update } from "../../../model/learn/update/update.ts";
import { networks, play, rewards, settings, start } from "../learn/update/stage.ts";

describe("bucketsOf", () => {
  test("puts equal numbers of groups into each bucket, from the smallest spread to the largest", () => {
    expect(bucketsOf([9, 0, 3, 1, 2, 8, 7, 4, 5, 6, 11, 10], "quantile")).toEqual([4, 0, 1, 0, 1, 4, 3, 2, 2, 3, 5, 5]);
    expect(bucketsOf([2, 1], "quantile")).toEqual([3, 0]);
    expect(bucketsOf([1, 1, 1, 1, 1, 1], "quantile")).toEqual([0, 1, 2, 3, 4, 5]);
  });

  test("uses fixed bounds", () => {
    expect(bucketsOf([0, 0.99, 1, 4.5, 5, 77], "fixed")).toEqual([0, 0, 1, 4, 5, 5]);
  });

  test("never puts a group with less spread above one with more", () => {
    const stds = fc.array(fc.double({ min: 0, max: 8, noNaN: true }), { minLength: 1, maxLength: 20 });
    fc.assert(
      fc.property(stds, fc.constantFrom("quantile", "fixed" as const), (all, rule) => {
        const buckets = bucketsOf(all, rule);
        for (const [a, std] of all.entries())
          for (const [b, other] of all.entries()) if (std < other) expect(buckets[a]!).toBeLessThanOrEqual(buckets[b]!);
        expect(buckets.every((bucket) => bucket >= 0 && bucket < BUCKET_COUNT)).toBe(true);
      }),
    );
  });
});

describe("analyzeGradients", () => {
  const kl = { estimator: "k3", coefficient: 0.3 } as const;
  const given: UpdateSettings = {
    ...settings,
    filter: { strategy: "all" },
    temperature: 0.8,
    policy: { ...settings.policy, entropyCoefficient: 0.05, kl },
  };
  const other = start.map((value, i) => value + 0.01 * Math.sin(i));
  const analyse = async (changed: UpdateSettings, played = play(start, rewards, 3)) => {
    const all = await networks(start, { reference: other });
    return { all, found: await analyzeGradients(all, played, changed, "fixed") };
  };

  test("measures each bucket as a minibatch of its own", async () => {
    // Stds 0.5, 0.06 and 1.53: two groups in the first bucket, one in the second.
    const { found } = await analyse(given);
    expect(found["gradient.groups.1"]).toBe(2);
    expect(found["gradient.groups.2"]).toBe(1);
    expect(found["gradient.std.2"]).toBeCloseTo(1.5275, 4);
    expect(found["gradient.groups.all"]).toBe(3);
    expect(Object.keys(found).filter((name) => name.endsWith(".3"))).toEqual([]);
    // Each component alone, by an update that has nothing else in its loss.
    const alone: [string, UpdateSettings][] = [
      ["task", { ...given, policy: { ...given.policy, entropyCoefficient: 0, kl: null } }],
      ["entropy", { ...given, scaling: { ...given.scaling, zero: true }, policy: { ...given.policy, kl: null } }],
      [
        "kl",
        { ...given, scaling: { ...given.scaling, zero: true }, policy: { ...given.policy, entropyCoefficient: 0 } },
      ],
    ];
    for (const [part, one] of alone) {
      const { metrics } = await update(
        await networks(start, { reference: other }),
        play(start, rewards, 3).slice(6),
        one,
      );
      expect(found[`gradient.${part}.2`]).toBeCloseTo(metrics["gradNorm"]!, 6);
      expect(metrics["gradNorm"]).toBeGreaterThan(1e-3);
      const whole = await update(await networks(start, { reference: other }), play(start, rewards, 3), one);
      expect(found[`gradient.${part}.all`]).toBeCloseTo(whole.metrics["gradNorm"]!, 6);
    }
  });

  test("counts a group of one as a group without spread, and drops no group", async () => {
    const played = play(start, rewards.slice(0, 4), 3);
    const { found } = await analyse(given, played);
    expect(found["gradient.std.all"]).toBeCloseTo(found["gradient.std.1"]!, 12);
    expect(found["gradient.groups.all"]).toBe(2);
    const scaled: UpdateSettings = { ...given, scaling: { ...given.scaling, filterLossScaling: "linear" } };
    expect((await analyse(scaled, played)).found).toEqual(found);
  });

  test("measures only the terms of the loss", async () => {
    const { found } = await analyse({ ...given, policy: { ...given.policy, entropyCoefficient: 0, kl: null } });
    expect(Object.keys(found).sort()).toEqual(
      ["groups", "std", "task"].flatMap((name) => ["1", "2", "all"].map((bucket) => `gradient.${name}.${bucket}`)),
    );
  });

  test("changes nothing: the update after it is the same", async () => {
    const [plain, measured] = [
      await networks(start, { reference: other }),
      await networks(start, { reference: other }),
    ];
    await update(plain, play(start, rewards, 3), given);
    const found = await analyzeGradients(measured, play(start, rewards, 3), given, "quantile");
    await update(measured, play(start, rewards, 3), given);
    expect(measured.parameters.flat).toEqual(plain.parameters.flat);
    expect(found["gradient.groups.1"]).toBe(1);
  });

  test("finds no gradient of advantages where all rewards are equal", async () => {
    const { found } = await analyse(
      given,
      play(start, [1, 1, 1, 5, 0, -5], 3, {}).map((one) => unpunished(one)),
    );
    expect(found["gradient.task.1"]).toBe(0);
    expect(found["gradient.entropy.1"]).toBeGreaterThan(0);
    expect(found["gradient.task.6"]).toBeGreaterThan(0);
  });
});

const unpunished = (one: ReturnType<typeof play>[number]) => ({
  ...one,
  trajectory: { ...one.trajectory, turns: one.trajectory.turns.map((turn) => ({ ...turn, penalty: 0 })) },
});
