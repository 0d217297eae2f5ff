/**
 * Reads programming problems from local files and builds the task of the sandbox.
 *
 * Source: RAGEN ragen/env/deepcoder/utils.py (prepare_deepcoder_data, run_deepcoder_sandbox); the files of
 * agentica-org/DeepCoder-Preview-Dataset.
 */
import { z } from "zod";
import { cached } from "../data/cached.ts";
import { exactJson } from "../data/json-parts.ts";
import { readRows } from "../data/rows.ts";
import { itemsOfSplit, type Split } from "../data/split.ts";
import type { SandboxTask } from "./sandbox.ts";

export const DEEP_CODER_HOME = "https://huggingface.co/datasets/agentica-org/DeepCoder-Preview-Dataset";

export interface Test {
  /** `call`: the test calls a function with arguments. `feed`: the program reads the input from standard input. */
  readonly kind: "call" | "feed";
  readonly input: unknown;
  readonly output: unknown;
}

export interface Problem {
  readonly text: string;
  readonly starterCode: string;
  /** Name of the function that a test of kind `call` runs. */
  readonly functionName: string | null;
  readonly tests: readonly Test[];
}

const Tests = z.union([
  z
    .object({ inputs: z.array(z.unknown()).min(1), outputs: z.array(z.unknown()) })
    .refine(
      ({ inputs, outputs }) => inputs.length === outputs.length,
      "the numbers of inputs and outputs must be equal",
    ),
  z.array(z.object({ input: z.unknown(), output: z.unknown(), testtype: z.string().optional() })).min(1),
]);
const Metadata = z.object({ func_name: z.string().nullish() });

/** The schema of a column that holds JSON. A parquet file holds the JSON as text. */
const json = <S extends z.ZodType>(schema: S) =>
  z.preprocess((value, context) => {
    if (typeof value !== "string" || value === "") return value;
    try {
      return exactJson(value);
    } catch (error) {
      context.addIssue(`is not JSON: ${(error as Error).message}`);
      return z.NEVER;
    }
  }, schema);

const Row = z.object({
  problem: z.string().min(1),
  tests: json(Tests),
  starter_code: z.string().nullish(),
  metadata: z.union([z.literal(""), json(Metadata)]).nullish(),
});

const cache = cached<readonly Problem[]>(2);

/** @throws {DataError} if the file is invalid or has no problem of the split. */
export function readProblems(path: string, problemsMax: number, split: Split | "all"): readonly Problem[] {
  return cache(`${path} ${problemsMax} ${split}`, () =>
    itemsOfSplit(readRows(path, Row).take(problemsMax), split, ({ problem }) => problem, path).map(problemOf),
  );
}

function problemOf({ problem, tests, starter_code: starter, metadata }: z.infer<typeof Row>): Problem {
  const functionName = (metadata || null)?.func_name ?? null;
  const starterCode = starter ?? "";
  const listed = Array.isArray(tests)
    ? tests
    : tests.inputs.map((input, i) => ({ input, output: tests.outputs[i], testtype: "stdin_stdout" }));
  return {
    text: starterCode === "" ? problem : `${problem}\n\nStarter code:\n${starterCode}`,
    starterCode,
    functionName,
    tests: listed.map(({ input, output, testtype }) => ({
      kind: testtype === "functional" && functionName !== null ? "call" : "feed",
      input,
      output,
    })),
  };
}

/**
 * Joins starter code and answer as RAGEN does, with one exception: the starter code ends in the head of a function, as in LiveCodeBench. In
 * this case RAGEN keeps the head without a body, which is a syntax error. Here the answer replaces the head.
 */
export function wholeProgram(starterCode: string, answer: string): string {
  const outer = /^\n+|\n+$/g;
  const header = starterCode.replace(outer, "");
  const body = answer.replace(outer, "");
  if (body === "") return header;
  if (header.trim() === "" || body.includes("class Solution")) return body;
  const opened = /^(?:.*\n)*?class Solution\b.*$/m.exec(header)?.[0];
  if (opened !== undefined && body.startsWith("def ")) {
    const begun = /:\s*$/.test(header) ? opened : header;
    return `${begun}\n\n${body.replaceAll(/^(?=.*\S)/gm, "    ")}`;
  }
  return /:\s*$/.test(header) ? body : `${header}\n\n${body}`;
}

/** The task for harness.py: the tests' inputs without their expected outputs. */
export function taskOf(problem: Problem, answer: string): SandboxTask {
  return {
    code: wholeProgram(problem.starterCode, answer),
    function: problem.functionName,
    tests: problem.tests.map(({ kind, input }) =>
      kind === "call" ? { arguments: argumentsOf(input) } : { input: joinedLines(input) },
    ),
  };
}

/** The arguments of a call. An input that is a text has one argument per line; an input that is a list is the list of arguments. */
function argumentsOf(input: unknown): unknown[] {
  if (typeof input === "string") return input.split("\n").filter((line) => line.trim() !== "");
  return Array.isArray(input) ? input : [input];
}

export function joinedLines(text: unknown): string {
  if (typeof text === "string") return text;
  return Array.isArray(text) ? text.map(joinedLines).join("\n") : JSON.stringify(text);
}
