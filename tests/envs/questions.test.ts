import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { signedSolution } from "../../envs/countdown/game.ts";
import { questions, statedAnswer } from "../../envs/questions/data-set.ts";
import {
  judgeChoice,
  judgeExact,
  judgeNumber,
  ragenChoice,
  ragenExact,
  ragenNumber,
} from "../../envs/questions/judge.ts";
import { envTag } from "../../envs/registry.ts";
import { openLocal } from "../../envs/tag.ts";
import { temporaryFolder } from "../scripts/temporary.ts";

const fixture = (name: string) => join(import.meta.dir, "data", name);

describe("judges", () => {
  // RAGEN's verdicts were taken from its Python functions (compute_score_*), run on these pairs.
  test.each([
    ["2500", "2,500", true, true],
    ["2", "2,500", false, true],
    ["-3", "3", false, true],
    ["it is 12.50 dollars", "12.5", true, true],
    ["twelve", "12", false, false],
    ["\u0664\u0662", "42", true, true],
    ["\u{1d7db}\u{1d7e0}", "38", true, true],
    ["4\u00b2", "4", true, true],
    ["", "12", false, false],
    [".5", "0.5", true, false],
    [".5", "5", false, true],
    ["\u22123", "3", false, true],
    ["\u22123", "-3", true, true],
    ["it is ...5", "5", true, true],
  ])("number %j for %j: ours %p, RAGEN's %p", (answer, label, ours, ragen) => {
    expect(judgeNumber(answer, label).correct).toBe(ours);
    expect(ragenNumber(answer, label).correct).toBe(ragen);
  });

  test.each([
    ["9007199254740992", "9007199254740993", false],
    ["9007199254740993", "9,007,199,254,740,993.0", true],
    ["-0.0", "0", true],
    ["007.50", "7.5", true],
    ["100", "1", false],
  ])("number %j for %j, by all of its digits: %p", (answer, label, correct) => {
    expect(judgeNumber(answer, label).correct).toBe(correct);
  });

  test.each([
    ["B", "B", true, true],
    ["b", "B", true, true],
    ["(c).", "C", true, true],
    ["The answer is B", "B", true, false],
    ["The answer is B", "A", false, true],
    ["D. all of them", "D", true, true],
    ["none", "B", false, false],
  ])("choice %j for %j: ours %p, RAGEN's %p", (answer, label, ours, ragen) => {
    expect(judgeChoice(answer, label).correct).toBe(ours);
    expect(ragenChoice(answer, label).correct).toBe(ragen);
  });

  test.each([
    [" X + 1", "x+1", true, true],
    ["15", "1.5", false, true],
    ["5", "-5", false, true],
    ["7", null, false, false],
    ["7\u001f3", "7 3", true, true],
    ["1\ufeff5", "15", false, false],
  ])("text %j for %j: ours %p, RAGEN's %p", (answer, label, ours, ragen) => {
    expect(judgeExact(answer, label).correct).toBe(ours);
    expect(ragenExact(answer, label).correct).toBe(ragen);
  });

  test("say when there is nothing to judge", () => {
    expect(
      [judgeNumber("none", "1"), judgeChoice("none", "A"), judgeExact(" ", "A")].map(({ valid }) => valid),
    ).toEqual([false, false, false]);
  });
});

test.each([
  ["So it is.\nThe answer is: 42", "42"],
  ["The answer is 42\nindeed", "42"],
  ["Therefore, x = 3\nThus, no", "x = 3"],
  ["first\nlast ", "last"],
])("RAGEN's static env reads the answer of %j as %j", (text, answer) => {
  expect(statedAnswer(text)).toBe(answer);
});

describe("data sets", () => {
  test("give questions and labels as RAGEN's processors do", () => {
    expect(questions("gsm8k", fixture("gsm8k.parquet"), "all", false).map(({ answer }) => answer)).toEqual([
      "13",
      "2,500",
    ]);
    expect(questions("metamathqa", fixture("metamathqa.parquet"), "all", true)[1]!.answer).toBe("56");
    expect(questions("mmlu", fixture("mmlu.parquet"), "all", false)[1]).toEqual({
      text: "Which of these is a prime number?\nA. 4\nB. 6\nC. 7\nD. 9",
      answer: "C",
    });
  });

  test("part into two without a question in both", () => {
    const of = (split: "train" | "validation") => {
      try {
        return questions("metamathqa", fixture("metamathqa.parquet"), split, false).map(({ text }) => text);
      } catch (error) {
        expect(String(error)).toContain(`none of 3 questions is in the split ${split}; set split to all`);
        return [];
      }
    };
    expect([...of("train"), ...of("validation")].sort()).toEqual(
      questions("metamathqa", fixture("metamathqa.parquet"), "all", false)
        .map(({ text }) => text)
        .sort(),
    );
  });
});

describe("a row without an answer", () => {
  const folder = temporaryFolder();
  const file = (name: string, ...rows: object[]) => {
    const path = join(folder, name);
    writeFileSync(path, rows.map((row) => JSON.stringify(row)).join("\n"));
    return path;
  };

  test("of MetaMathQA is a question that nothing answers", () => {
    const dataPath = file("metamath.jsonl", { query: "1 + 1?", response: "It is 2." });
    const tag = envTag("MetamathQA", { dataPath, split: "all" });
    const game = openLocal(tag, { layout: 1, dynamics: 0 });
    expect([tag.best(game, 1), tag.optimal!(game, 1, () => 0), tag.random(game, 1, () => 0)]).toEqual([0, "", ""]);
    expect(game.act("2" as never)).toMatchObject({ success: false, reward: 0 });
    const answered = file("answered.jsonl", { query: "1 + 1?", response: "It is 2.\nThe answer is: 2" });
    const other = envTag("MetamathQA", { dataPath: answered, split: "all" });
    expect(other.best(openLocal(other, { layout: 1, dynamics: 0 }), 1)).toBe(1);
  });

  test("of GSM8K is an error that shows it", () => {
    const path = file("gsm8k.jsonl", { question: "1 + 1?", answer: "It is 2." });
    expect(() => questions("gsm8k", path, "all", false)).toThrow(`${path}: no #### before the result in "It is 2."`);
    const padded = file("padded.jsonl", { question: "1 + 1?", answer: "It is.\n####  TWO " });
    expect(questions("gsm8k", padded, "all", false)[0]!.answer).toBe("two");
  });
});

describe("tags", () => {
  test("play mmlu: one letter is right, and a second try is worth half", () => {
    const tag = envTag("StaticQA", { dataSet: "mmlu", dataPath: fixture("mmlu.parquet"), split: "all" });
    const game = tag.open({ layout: 5, dynamics: 0 });
    if (game.kind !== "language") throw new Error("a question takes text");
    expect(game.act("A").success).toBe(false);
    expect(game.act("C")).toMatchObject({ success: true, reward: 0.5, message: "Correct!" });
  });

  test("say what is missing and how to get it, and open nothing", () => {
    const tag = envTag("MetamathQA", { dataPath: "/no/such.parquet" });
    const lack =
      "MetamathQA: there is no file /no/such.parquet; download one from https://huggingface.co/datasets/meta-math/MetaMathQA and set env.options.dataPath to it";
    expect(tag.missing?.()).toBe(lack);
    expect(() => tag.open({ layout: 1, dynamics: 1 })).toThrow(lack);
  });

  test("play Countdown from a file: RAGEN's choice of rows, by seed modulo their number", () => {
    const tag = envTag("Countdown", { dataPath: fixture("countdown.parquet"), split: "all" });
    const openings = Array.from({ length: 8 }, (_, layout) => tag.open({ layout, dynamics: 0 }).render());
    // Of the 8 rows, + and - solve all but 10 from 2, 3, 4.
    expect(new Set(openings).size).toBe(7);
    expect(openings[0]).toBe("Target: 98, nums: [44, 19, 35]");
    expect(openings[2]).toBe("Target: 17, nums: [20, 5, 2]");
    expect(openings[7]).toBe(openings[0]!);
    expect(signedSolution({ target: 10, nums: [2, 3, 4] })).toBeNull();
  });

  test("turn BanditTest's arms around for BanditRev", () => {
    const [plain, reversed] = ["BanditTest", "BanditRev"].map((name) => envTag(name));
    for (const layout of [1, 2, 3]) {
      const [a, b] = [plain!, reversed!].map((tag) => {
        const game = tag.open({ layout, dynamics: 0 });
        return game.kind === "discrete" ? game.actions[Number(tag.optimal!(game, 1, () => 0))] : null;
      });
      expect([a, b]).toEqual(["Librarian", "Trader"]);
    }
  });
});
