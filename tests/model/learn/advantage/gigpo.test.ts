import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { gigpo } from "../../../../model/learn/advantage/gigpo.ts";
import { drGrpo } from "../../../../model/learn/advantage/group.ts";

describe("gigpo", () => {
  test("matches two trajectories that share their first state, worked by hand", () => {
    // Sums 1 and 3: trajectory level -1 and 1. From "s" the returns are 0 + 0.5 * 1 = 0.5 and 3: mean 1.75, so -1.25 and 1.25.
    const rule = { gammaTurn: 0.5, normalize: "mean" } as const;
    expect(gigpo([[0, 1], [3]], [["s", "t"], ["s"]], [0, 0], rule)).toEqual([[-1 - 1.25, -1], [1 + 1.25]]);
  });

  test("divides by the sample std of each level with mean_std", () => {
    const rule = { gammaTurn: 0.5, normalize: "mean_std" } as const;
    const [[first, second]] = gigpo([[0, 1], [3]], [["s", "t"], ["s"]], [0, 0], rule) as [[number, number], [number]];
    // Of two members, std is the distance over sqrt 2: each lies 1 / sqrt 2 away.
    expect(first).toBeCloseTo(-2 / Math.SQRT2, 5);
    expect(second).toBeCloseTo(-1 / Math.SQRT2, 5);
  });

  test("equal names of states in different groups are different states", () => {
    const rule = { gammaTurn: 1, normalize: "mean" } as const;
    expect(gigpo([[1], [5]], [["s"], ["s"]], [0, 1], rule)).toEqual([[0], [0]]);
    expect(gigpo([[1], [5]], [["1s"], ["s"]], [1, 11], rule)).toEqual([[0], [0]]);
  });

  test("equals a direct comparison of each turn with the turns of its group that began in the same state", () => {
    const turn = fc.record({ reward: fc.integer({ min: -3, max: 3 }), anchor: fc.constantFrom("a", "b", "c") });
    const episode = fc.record({
      group: fc.integer({ min: 0, max: 1 }),
      turns: fc.array(turn, { minLength: 1, maxLength: 4 }),
    });
    fc.assert(
      fc.property(fc.array(episode, { minLength: 1, maxLength: 6 }), (episodes) => {
        const rewards = episodes.map(({ turns }) => turns.map(({ reward }) => reward));
        const groups = episodes.map(({ group }) => group);
        const got = gigpo(
          rewards,
          episodes.map(({ turns }) => turns.map(({ anchor }) => anchor)),
          groups,
          { gammaTurn: 0.9, normalize: "mean" },
        );
        const wholes = drGrpo(
          rewards.map((row) => row.reduce((sum, r) => sum + r, 0)),
          groups,
        );
        const all = episodes.flatMap(({ group, turns }) =>
          turns.map(({ anchor }, k) => ({
            group,
            anchor,
            return: turns.slice(k).reduce((sum, { reward }, j) => sum + 0.9 ** j * reward, 0),
          })),
        );
        const flat = got.flat();
        let at = 0;
        episodes.forEach(({ turns }, b) => {
          for (const _ of turns) {
            const mine = all[at]!;
            const equals = all.filter((one) => one.group === mine.group && one.anchor === mine.anchor);
            const baseline = equals.reduce((sum, one) => sum + one.return, 0) / equals.length;
            expect(flat[at]).toBeCloseTo(wholes[b]! + mine.return - baseline, 9);
            at++;
          }
        });
      }),
    );
  });
});
