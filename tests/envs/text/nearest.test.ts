import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { didYouMean, editDistance, nearest } from "../../../envs/text/nearest.ts";

/** The edit distance by its definition: the least over every first edit, and the distance of what then remains of `a` and `b`. */
function slowDistance(a: string, b: string): number {
  if (a === "" || b === "") return a.length + b.length;
  const ways = [
    slowDistance(a.slice(1), b) + 1,
    slowDistance(a, b.slice(1)) + 1,
    slowDistance(a.slice(1), b.slice(1)) + (a[0] === b[0] ? 0 : 1),
  ];
  if (a.length > 1 && b.length > 1 && a[0] === b[1] && a[1] === b[0])
    ways.push(slowDistance(a.slice(2), b.slice(2)) + 1);
  return Math.min(...ways);
}

describe("editDistance", () => {
  test.each([
    ["kitten", "sitting", 3],
    ["updates", "udpates", 1],
    ["", "abc", 3],
    ["same", "same", 0],
  ])("from %s to %s is %d", (a, b, distance) => {
    expect(editDistance(a, b)).toBe(distance);
  });

  test("is what trying every way gives", () => {
    const word = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 5 });
    fc.assert(fc.property(word, word, (a, b) => expect(editDistance(a, b)).toBe(slowDistance(a, b))));
  });
});

describe("nearest", () => {
  const words = ["config", "doctor", "bench", "check"];

  test("finds what a slip of the finger meant", () => {
    expect(nearest("dcotor", words)).toBe("doctor");
    expect(nearest("CHECK", words)).toBe("check");
  });

  test("allows 2 changes, or a third of a long word's length", () => {
    expect([nearest("chxxk", words), nearest("cxxxk", words)]).toEqual(["check", null]);
    const long = ["abcdefghijkl"];
    expect([nearest("abcdefghxxxx", long), nearest("abcdefgxxxxx", long)]).toEqual([long[0]!, null]);
  });

  test("says nothing where nothing is near", () => {
    expect(nearest("quantum", words)).toBeNull();
    expect(nearest("x", [])).toBeNull();
  });

  test("becomes the end of a sentence", () => {
    expect(`no command "chek"${didYouMean(nearest("chek", words))}`).toBe('no command "chek"; did you mean check?');
    expect(didYouMean(null)).toBe("");
  });
});
