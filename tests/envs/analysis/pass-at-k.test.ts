/** pass@k against numbers worked by hand, and against drawing every choice of k tries. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { passAtK, passCurve } from "../../../envs/analysis/evaluate.ts";

describe("passAtK", () => {
  test("matches estimates worked by hand", () => {
    // 5 tries, 2 solved: of the 10 pairs, 3 hold none of the solved (C(3, 2)); of the 10 triples, 1 does.
    expect(passAtK(5, 2, 1)).toBeCloseTo(0.4, 12);
    expect(passAtK(5, 2, 2)).toBeCloseTo(0.7, 12);
    expect(passAtK(5, 2, 3)).toBeCloseTo(0.9, 12);
    expect(passAtK(5, 2, 4)).toBe(1);
    expect([passAtK(4, 0, 4), passAtK(4, 1, 4)]).toEqual([0, 1]);
  });

  test("is the share of all choices of k tries that hold a solved one", () => {
    const cases = fc
      .tuple(fc.integer({ min: 1, max: 10 }), fc.nat(10), fc.integer({ min: 1, max: 10 }))
      .filter(([tries, solved, k]) => solved <= tries && k <= tries);
    fc.assert(
      fc.property(cases, ([tries, solved, k]) => {
        let [all, hits] = [0, 0];
        // The first `solved` tries are the solved ones; a choice is a set of k bits.
        for (let choice = 0; choice < 2 ** tries; choice++) {
          const bits = choice.toString(2).padStart(tries, "0");
          if ([...bits].filter((bit) => bit === "1").length !== k) continue;
          all++;
          if (bits.slice(0, solved).includes("1")) hits++;
        }
        expect(passAtK(tries, solved, k)).toBeCloseTo(hits / all, 12);
      }),
    );
  });

  test.each([
    [4, 2, 5, "pass@k of 4 tries needs k from 1 to 4, got 5"],
    [4, 2, 0, "pass@k of 4 tries needs k from 1 to 4, got 0"],
    [4, 5, 1, "of 4 tries, 0 to 4 can be solved, got 5"],
  ])("refuses %p tries, %p solved, k %p", (tries, solved, k, message) => {
    expect(() => passAtK(tries, solved, k)).toThrow(new RangeError(message));
  });
});

test("passCurve is the mean over boards, for powers of two and for all tries", () => {
  const curve = passCurve([0, 2, 6], 6);
  expect(curve.map(({ k }) => k)).toEqual([1, 2, 4, 6]);
  // Board 2: 2 of 6 solved, pairs without one: C(4, 2) / C(6, 2) = 6 / 15.
  expect(curve[0]!.share).toBeCloseTo((0 + 2 / 6 + 1) / 3, 12);
  expect(curve[1]!.share).toBeCloseTo((0 + 9 / 15 + 1) / 3, 12);
  expect(curve[3]!.share).toBeCloseTo(2 / 3, 12);
  expect(passCurve([0, 1], 1)).toEqual([{ k: 1, share: 0.5 }]);
});
