import { describe, expect, test } from "bun:test";
import { seenIn } from "../../../scripts/diagnose/names.ts";

const seen = (rows: readonly Readonly<Record<string, number>>[], ...chosen: string[]) =>
  seenIn(new Map(rows.map((row, i) => [i + 1, new Map(Object.entries(row))])), "a.csv", chosen);

describe("the name of a quantity", () => {
  test("that may be a score counts as success where all values are from 0 to 1", () => {
    const columnOf = (...values: number[]) => seen(values.map((reward) => ({ reward, entropy: 1 }))).columns["success"];
    expect(columnOf(0, 1)).toBe("reward");
    expect([columnOf(0, 1.01), columnOf(-0.01, 1)]).toEqual([undefined, undefined]);
  });

  test("that the flag gives comes before a known one", () => {
    const row = { entropy: 1, "train/entropy": 2 };
    expect(seen([row]).columns).toEqual({ entropy: "train/entropy" });
    expect(seen([row], "entropy=entropy").measured.get(1)).toEqual({ entropy: 1 });
  });

  test("that counts malformed replies is turned into their opposite, unless the flag gives it", () => {
    const row = { entropy: 1, "train/format_errors": 0.25 };
    expect(seen([row]).measured.get(1)).toEqual({ entropy: 1, validity: 0.75 });
    expect(seen([row], "form=train/format_errors").measured.get(1)).toEqual({ entropy: 1, validity: 0.25 });
  });
});

test("a column without a name, such as the row numbers that pandas writes, is no quantity", () => {
  expect(seen([{ "": 7, entropy: 1 }]).measured.get(1)).toEqual({ entropy: 1 });
});

test("one of success, spread and entropy is enough, and a step without any quantity is no point", () => {
  for (const name of ["train/success", "reward_std", "entropy"])
    expect([...seen([{ [name]: 0.5 }, { loss: 1 }, { [name]: 0.5 }]).measured.keys()]).toEqual([1, 3]);
  const others = Object.fromEntries(Array.from({ length: 13 }, (_, i) => [`x${i}`, 1]));
  expect(() => seen([others])).toThrow(/The log has x0, .*, x11, and 1 more$/);
});

test("a flag without = is refused, also where it begins with a quantity", () => {
  for (const text of ["entropys", "=entropy"])
    expect(() => seen([{ entropys: 1, entropy: 1 }], text)).toThrow(
      /^--column takes QUANTITY=NAME with one of success, /,
    );
});
