/**
 * Reads the published question files of MetaMathQA, GSM8K and MMLU from parquet, jsonl or json. Knows no game.
 *
 * Source: RAGEN ragen/env/static/utils.py (processors and scores).
 */
import { z } from "zod";
import { cached } from "../data/cached.ts";
import { DataError, readRows } from "../data/rows.ts";
import { itemsOfSplit, type Split } from "../data/split.ts";
import { metaMathLabel, type Question } from "./game.ts";
import { type Judge, judgeChoice, judgeExact, judgeNumber, ragenChoice, ragenExact, ragenNumber } from "./judge.ts";

export interface DataSet {
  /** The place from which a user downloads the data set. */
  readonly home: string;
  readonly judge: Judge;
  readonly ragenJudge: Judge;
  read(path: string, ragen: boolean): Iterable<Question>;
}

const MetaMathRow = z.object({ query: z.string(), response: z.string() });
const Gsm8kRow = z.object({ question: z.string(), answer: z.string() });
const MmluRow = z.object({
  question: z.string(),
  choices: z.array(z.string()).length(4),
  answer: z.int().min(0).max(3),
});

export const dataSets = {
  metamathqa: {
    home: "https://huggingface.co/datasets/meta-math/MetaMathQA",
    judge: judgeExact,
    ragenJudge: ragenExact,
    *read(path, ragen) {
      for (const { query, response } of readRows(path, MetaMathRow)) {
        yield { text: query, answer: ragen ? statedAnswer(response) : metaMathLabel(response) };
      }
    },
  },
  gsm8k: {
    home: "https://huggingface.co/datasets/openai/gsm8k (main)",
    judge: judgeNumber,
    ragenJudge: ragenNumber,
    *read(path) {
      for (const { question, answer } of readRows(path, Gsm8kRow)) {
        const [, result] = answer.split("####");
        if (result === undefined)
          throw new DataError(`${path}: no #### before the result in ${JSON.stringify(answer)}`);
        yield { text: question, answer: result.trim().toLowerCase() };
      }
    },
  },
  mmlu: {
    home: "https://huggingface.co/datasets/cais/mmlu (RAGEN uses abstract_algebra)",
    judge: judgeChoice,
    ragenJudge: ragenChoice,
    *read(path) {
      for (const { question, choices, answer } of readRows(path, MmluRow)) {
        const lines = choices.map((choice, i) => `${LETTERS[i]}. ${choice}`);
        yield { text: [question, ...lines].join("\n"), answer: LETTERS[answer]! };
      }
    },
  },
} as const satisfies Record<string, DataSet>;
export type DataSetName = keyof typeof dataSets;

const LETTERS = "ABCD";

/**
 * RAGEN's label is the text between the first of these phrases and the end of the line. If the response has none of these phrases, the label is
 * the last line.
 */
const STATED = ["The answer is:?", "Answer:?", "Final answer:?", "Therefore,", "Thus,"].map(
  (phrase) => new RegExp(`${phrase}\\s*(.*?)(?:\\n|$)`, "s"),
);

export function statedAnswer(text: string): string {
  for (const pattern of STATED) {
    const match = pattern.exec(text);
    if (match !== null) return match[1]!.trim();
  }
  return text.trim().split("\n").at(-1)!.trim();
}

const cache = cached<readonly Question[]>(4);

/** @throws {DataError} if the file is invalid or has no question of the split. */
export function questions(name: DataSetName, path: string, split: Split | "all", ragen: boolean): readonly Question[] {
  return cache(`${name} ${split} ${ragen} ${path}`, () =>
    itemsOfSplit(dataSets[name].read(path, ragen), split, ({ text }) => text, path),
  );
}
