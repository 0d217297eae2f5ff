import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { align, Curve } from "../../actors/dashboard/client/curve.ts";
import { blocksOf, cellKind, splitReply, visible } from "../../actors/dashboard/client/text.ts";

const curveOf = (entries: readonly (readonly [number, number])[]) => {
  const curve = new Curve();
  for (const [step, value] of entries) curve.set(step, value);
  return curve;
};

describe("Curve", () => {
  test("is what a sorted map of its entries is, in whatever order they come", () => {
    const entries = fc.array(fc.tuple(fc.nat(30), fc.integer()), { maxLength: 60 });
    fc.assert(
      fc.property(entries, (entries) => {
        const map = [...new Map(entries)].sort(([a], [b]) => a - b);
        const { steps, values } = curveOf(entries);
        expect(steps.map((step, i) => [step, values[i]!])).toEqual(map);
      }),
    );
  });

  test("knows its last value, and that it has none", () => {
    expect(curveOf([]).last).toBeNull();
    expect(
      curveOf([
        [5, 1],
        [2, 9],
      ]).last,
    ).toBe(1);
  });
});

describe("align", () => {
  test("puts curves of different steps on one axis, with null where one has no value", () => {
    const everyTenth = curveOf([
      [0, 0.2],
      [10, 0.4],
    ]);
    const every = curveOf([
      [9, 1],
      [10, 2],
      [11, 3],
    ]);
    expect(align([everyTenth, every])).toEqual([
      [0, 9, 10, 11],
      [0.2, null, 0.4, null],
      [null, 1, 2, 3],
    ]);
  });
});

describe("visible", () => {
  test.each([
    ["\u001b[31mred", "‹1B›[31mred"],
    ["abc\u202Edcba", "abc‹202E›dcba"],
    ["zero\u200Bwidth\uFEFF", "zero‹200B›width‹FEFF›"],
    ["bell\u0007 null\u0000 return\r", "bell‹07› null‹00› return‹0D›"],
    ["two\nlines\tand a tab", "two\nlines\tand a tab"],
    ["naïve 你好 √ 🎭", "naïve 你好 √ 🎭"],
    ["\ud83c half", "‹D83C› half"],
  ])("shows %p as %p", (text, shown) => expect(visible(text)).toBe(shown));

  test("cuts a line of a megabyte and says how much is left out", () => {
    const shown = visible("x".repeat(1_000_000));
    expect(shown).toEndWith("x … and 996,000 more characters");
    expect(shown.length).toBeLessThan(4100);
  });
});

describe("splitReply", () => {
  test("tells the thought from the answer", () => {
    expect(splitReply("<think>up\nthen left</think><answer> Up || Left </answer>")).toEqual({
      thought: "up\nthen left",
      answer: "Up || Left",
      raw: null,
    });
  });

  test("keeps a reply without an answer as it is", () => {
    expect(splitReply("<think>up up")).toEqual({ thought: null, answer: null, raw: "<think>up up" });
  });
});

describe("blocksOf", () => {
  test("finds the board between the words", () => {
    expect(blocksOf("You push boxes.\n####\n#P_#\n####\nYou have 10 actions left.")).toEqual([
      { kind: "text", text: "You push boxes." },
      { kind: "board", rows: [[..."####"], [..."#P_#"], [..."####"]] },
      { kind: "text", text: "You have 10 actions left." },
    ]);
  });

  test("reads cells with blanks between them", () => {
    const board = "P \t _ \t O\n_ \t _ \t _\n_ \t _ \t G";
    expect(blocksOf(board)).toEqual([{ kind: "board", rows: [[..."P_O"], [..."___"], [..."__G"]] }]);
  });

  test("takes words for words", () => {
    const text = "Up\nDown\nLeft\nAnswer now.";
    expect(blocksOf(text)).toEqual([{ kind: "text", text }]);
  });

  test("loses no character but blanks around lines", () => {
    const line = fc.string({ unit: fc.constantFrom(..."#_PXO√ abc"), maxLength: 8 });
    fc.assert(
      fc.property(fc.array(line, { maxLength: 12 }), (lines) => {
        const squeezed = (text: string) => text.replaceAll(/\s/g, "");
        const kept = blocksOf(lines.join("\n")).map((block) =>
          block.kind === "text" ? block.text : block.rows.flat().join(""),
        );
        expect(squeezed(kept.join(""))).toBe(squeezed(lines.join("")));
      }),
    );
  });
});

test("cells of both of Sokoban's vocabularies look alike", () => {
  expect([..."#_OXP√S"].map(cellKind)).toEqual(["wall", "floor", "target", "box", "player", "done", "player"]);
  expect([..."W.GBAC@"].map(cellKind)).toEqual(["wall", "floor", "target", "box", "player", "done", "player"]);
});
