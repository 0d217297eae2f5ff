import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { apiContextOf } from "../../../actors/dashboard/api-of-run.ts";
import { PLACES } from "../../../actors/dashboard/client/charts.ts";
import {
  align,
  bandOf,
  Curve,
  commonEnds,
  smoothed,
  takePoints,
  thin,
} from "../../../actors/dashboard/client/curve.ts";
import { blocksOf, bytes, splitReply, visible } from "../../../actors/dashboard/client/text.ts";
import { configOf } from "../training/stage.ts";

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

describe("Curve.at", () => {
  test("is the value that held there: the step's own, or the last before it", () => {
    const curve = curveOf([
      [0, 5],
      [10, 7],
    ]);
    expect([-1, 0, 9, 10, 99].map((step) => curve.at(step))).toEqual([null, 5, 5, 7, 7]);
  });
});

test("new points end a curve at the newest update: a roll-back gave up those after it", () => {
  const names = ["train/entropy", "validate/success", "warm/loss"];
  const curves = new Map(names.map((name) => [name, curveOf([1, 2, 3, 400].map((step) => [step, step]))]));
  const points = [
    ["train/entropy", "learner", 2, 7],
    ["total/updates", "learner", 2, 2],
    ["validate/success", "learner", 2, 8],
  ] as const;
  expect(takePoints(curves, points)).toEqual(new Set([...names.slice(0, 2), "total/updates"]));
  expect([...curves.values()].map(({ steps, values }) => [steps, values])).toEqual([
    [
      [1, 2],
      [1, 7],
    ],
    [
      [1, 2],
      [1, 8],
    ],
    [
      [1, 2, 3, 400],
      [1, 2, 3, 400],
    ],
  ]);
});

describe("smoothed", () => {
  const zigzag = curveOf([0, 1, 2, 3].map((step) => [step, step % 2 === 0 ? 1 : 3]));

  test("is the weighted mean of what was, worked by hand", () => {
    // At weight 0.5: 1; (2*3 + 1) / 3; (4*1 + 2*3 + 1) / 7; (8*3 + 4*1 + 2*3 + 1) / 15.
    const { values, steps } = smoothed(zigzag, 0.5);
    expect(values.map((value) => value.toFixed(4))).toEqual(["1.0000", "2.3333", "1.5714", "2.3333"]);
    expect(steps).toEqual([0, 1, 2, 3]);
  });

  test("leaves a curve as it is without weight, and a flat one flat with any", () => {
    expect(smoothed(zigzag, 0)).toBe(zigzag);
    const flat = curveOf([0, 1, 2].map((step) => [step, 4]));
    for (const value of smoothed(flat, 0.99).values) expect(value).toBeCloseTo(4, 12);
  });
});

describe("thin", () => {
  test("keeps ends, lows and highs of any curve, in order, and no more points than it may", () => {
    const curves = fc.array(fc.tuple(fc.integer({ min: 1, max: 9 }), fc.integer()), { minLength: 1, maxLength: 200 });
    fc.assert(
      fc.property(curves, fc.integer({ min: 4, max: 60 }), (pairs, most) => {
        let step = 0;
        const steps = pairs.map(([gap]) => (step += gap));
        const values = pairs.map(([, value]) => value);
        const kept = thin(steps, values, most);
        if (steps.length <= most) return expect(kept).toBeNull();
        const shown = kept!.map((index) => values[index]!);
        expect(kept!.length).toBeLessThanOrEqual(most);
        expect(kept!.every((index, i) => i === 0 || index > kept![i - 1]!)).toBe(true);
        expect([kept![0], kept!.at(-1)]).toEqual([0, steps.length - 1]);
        expect([Math.min(...shown), Math.max(...shown)]).toEqual([Math.min(...values), Math.max(...values)]);
      }),
    );
  });

  test("keeps four points of each stretch, worked by hand", () => {
    // Two stretches of steps 0 to 4 and 5 to 9: ends 0, 4 and 5, 9; low and high in between.
    const values = [5, 9, 1, 6, 5, 5, 4, 8, 7, 5];
    expect(thin([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], values, 8)).toEqual([0, 1, 2, 4, 5, 6, 7, 9]);
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

test("a long text is cut between characters", () => {
  expect(visible(`${"x".repeat(3999)}😀yz`)).toBe(`${"x".repeat(3999)} … and 4 more characters`);
});

describe("splitReply", () => {
  test("tells the thought from the answer", () => {
    expect(splitReply("<think>up\nthen left</think><answer> Up || Left </answer>")).toEqual({
      thought: "up\nthen left",
      answer: "Up || Left",
    });
  });

  test("finds neither in a reply without whole tags", () => {
    expect(splitReply("<think>up up")).toEqual({ thought: null, answer: null });
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

  test.each(["Up\nDown\nLeft\nAnswer now.", "Numbers:\n3 5 7\nTarget: 22", ". . H . P"])(
    "takes words for words, as they are: %j",
    (text) => {
      expect(blocksOf(text)).toEqual([{ kind: "text", text }]);
    },
  );

  test("takes a grid of very many rows for words, of which only the beginning is shown", () => {
    const text = "# # #\n".repeat(200_000).trim();
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

test("cells have the colors of what the env's own legend says, and of nothing else", () => {
  const symbols = (tag: string, options: Record<string, unknown> = {}) =>
    apiContextOf(configOf({ env: { tag, options } }), "run").play!.envs[0]!.symbols;
  const usual = { "#": "wall", _: "floor", O: "target", X: "box", P: "player", "√": "done", S: "player" } as const;
  expect(symbols("SimpleSokoban")).toEqual(usual);
  expect(symbols("FrozenLake")).toMatchObject({ P: "player", _: "floor", O: "wall", G: "target", "√": "done" });
  expect(symbols("Bandit")).toEqual({});
});

test("the mean of seeds is over the steps that all have, with the lowest and highest as its band", () => {
  const band = bandOf([new Curve([1, 2, 3], [0, 2, 9]), new Curve([1, 2], [1, 4]), new Curve([0, 1, 2], [5, 2, 3])]);
  expect(band).toEqual({ steps: [1, 2], means: [1, 3], lows: [0, 2], highs: [2, 4] });
  expect(bandOf([new Curve([1], [0]), new Curve([2], [0])])).toBeNull();
  expect(bandOf([])).toBeNull();
});

test("over minutes and tokens a step stands where its update ended; what was before the first is at 0", () => {
  const known = new Map([
    ["speed/updates_per_minute", new Curve([1, 2, 4], [2, 4, 2])],
    ["total/tokens", new Curve([1, 2, 4], [100, 250, 300])],
  ]);
  const over = (axis: "minutes" | "tokens") =>
    new Curve([0, 1, 2, 4], [10, 11, 12, 14]).over((step) => PLACES[axis]!(step, (name) => known.get(name)!.at(step)));
  // 1 update at 2 a minute, 2 at 4 a minute: both end after half a minute; 4 at 2 a minute after 2.
  expect(over("minutes").steps).toEqual([0, 0.5, 0.5, 2]);
  expect(over("tokens").steps).toEqual([0, 100, 250, 300]);
  expect(over("tokens").values).toEqual([10, 11, 12, 14]);
});

test("a text of 4000 characters is whole, and a longer one is cut", () => {
  expect(visible("x".repeat(4000))).toBe("x".repeat(4000));
  expect(visible("x".repeat(4002))).toBe(`${"x".repeat(4000)} … and 2 more characters`);
});

test("bytes have three digits at least where they have a unit", () => {
  const texts = [0, 999, 999.6, 1234, 99_400, 99_500, 999_600, 5e12].map(bytes);
  expect(texts).toEqual(["0 B", "999 B", "1.0 kB", "1.2 kB", "99.4 kB", "100 kB", "1.0 MB", "5000 GB"]);
});

describe("a grid", () => {
  const kinds = (text: string) => blocksOf(text).map(({ kind }) => kind);

  test("of lower-case words, or of lines that are too long, is no board", () => {
    expect(kinds("abc\nabc\nabc")).toEqual(["text"]);
    expect(kinds(Array(3).fill("#".repeat(81)).join("\n"))).toEqual(["text"]);
    expect(kinds(Array(3).fill("#".repeat(80)).join("\n"))).toEqual(["board"]);
  });

  test("of another width is another board, and a cell may be a picture", () => {
    expect(kinds("###\n###\n###\n####\n####\n####")).toEqual(["board", "board"]);
    expect(blocksOf("🧱 🧱 🧱\n🧱 P 🧱\n🧱 🧱 🧱")[0]).toMatchObject({
      rows: [0, 1, 2].map((row) => ["🧱", row === 1 ? "P" : "🧱", "🧱"]),
    });
  });
});

test("stretches of curves of unequal lengths end at powers of two beyond the last step", () => {
  expect([0, 6, 7, 8, 200].map((last) => commonEnds(last)[1])).toEqual([1, 8, 8, 16, 256]);
});

test("over another axis points stand in its order, also where a repeated update is later than higher steps", () => {
  const minutes: Record<number, number | null> = { 1: 1, 2: 9, 3: 3, 4: null };
  const { steps, values } = new Curve([1, 2, 3, 4], [10, 20, 30, 40]).over((step) => minutes[step]!);
  expect([steps, values]).toEqual([
    [1, 3, 9],
    [10, 30, 20],
  ]);
});

test("a roll-back that makes no update yet ends the curves too", () => {
  const curves = new Map([["train/success", new Curve([1, 2, 3], [0.1, 0.2, 0.3])]]);
  expect(takePoints(curves, [["health/rollbacks", "learner", 1, 1]])).toContain("train/success");
  expect(curves.get("train/success")!.steps).toEqual([1]);
});
