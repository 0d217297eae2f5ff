/**
 * Counts the tests that a program passed. The comparison with the expected outputs runs outside the sandbox, so that the program cannot read
 * the expected outputs.
 *
 * - A program that does not finish all of its tests passes none of them, as in RAGEN. This file does not parse the lines of a
 *   killed program.
 * - A program can forge lines of harness.py, but gains nothing. A forged line passes a test only if it has the right output, and the program
 *   could simply print this output. Lines that take long to parse (nested values, or a value much longer than the expected value) do not count.
 * - RAGEN compares `str(result)` of a called function; here equal JSON counts as well.
 */
import { z } from "zod";
import { exactJson } from "../data/json-parts.ts";
import { joinedLines, type Problem, type Test } from "./problem.ts";
import type { SandboxRun } from "./sandbox.ts";

export interface Verdict {
  readonly passed: number;
  readonly total: number;
  /** True if every test ended without an exception. */
  readonly runnable: boolean;
  /** One line for the agent. */
  readonly detail: string;
}

const Result = z.union([
  z.object({ test: z.int(), ok: z.literal(true), out: z.string(), json: z.string().optional() }),
  z.object({ test: z.int(), ok: z.literal(false), error: z.string() }),
]);
type Result = z.infer<typeof Result>;

/** A verdict quotes at most this many characters of a program's output. */
const QUOTED_MAX = 300;

/**
 * A result whose JSON is longer than this number plus `JSON_FACTOR` times the expected JSON is wrong. The number leaves room for Python's
 * floats, which can have 309 digits.
 */
const JSON_CHARS_MIN = 1024;
const JSON_FACTOR = 64;

/** @throws {Error} if the sandbox itself failed: such a failure is not a wrong answer */
export function verdict(problem: Problem, run: SandboxRun): Verdict {
  const total = problem.tests.length;
  const [ready, ...lines] = run.lines;
  if (ready !== '{"ready": true}')
    throw new Error("the sandbox ended before the program started; is the machine out of memory?");
  const results = run.stopped === null ? lines.map(parsed).filter((result) => result !== null) : [];
  const complete = results.length === total && results.every(({ test }, i) => test === i);
  if (!complete) {
    const why = run.stopped === null ? "the program crashed or was killed" : WHY[run.stopped];
    const what = lines.length < total ? `Test ${lines.length}` : "The program";
    return { passed: 0, total, runnable: false, detail: `Passed 0/${total} tests. ${what} did not end: ${why}.` };
  }
  const faults = results.map((result, i) => faultOf(problem.tests[i]!, result));
  const passed = faults.filter((fault) => fault === null).length;
  const first = faults.findIndex((fault) => fault !== null);
  const runnable = results.every(({ ok }) => ok);
  if (first < 0) return { passed, total, runnable, detail: "All tests passed." };
  return { passed, total, runnable, detail: `Passed ${passed}/${total} tests. Test ${first}: ${faults[first]}` };
}

const WHY: Record<NonNullable<SandboxRun["stopped"]>, string> = {
  time: "it took too long",
  output: "it wrote too much",
  closed: "it was killed",
};

function parsed(line: string): Result | null {
  if (!isFlat(line)) return null;
  try {
    return Result.safeParse(JSON.parse(line)).data ?? null;
  } catch {
    // The program can write to the pipe of the results, so a line may not be JSON.
    return null;
  }
}

/** True if the object contains no object and no list, like every line of harness.py. Megabytes of brackets take seconds to parse. */
function isFlat(line: string): boolean {
  let at = 1;
  while (at < line.length) {
    const quote = line.indexOf('"', at);
    const end = quote === -1 ? line.length : quote;
    if (/[[{]/.test(line.slice(at, end))) return false;
    at = stringEnd(line, end + 1);
  }
  return true;
}

/** Index after the closing quote. @param at  index after the opening quote */
function stringEnd(line: string, at: number): number {
  for (let quote = line.indexOf('"', at); quote !== -1; quote = line.indexOf('"', quote + 1)) {
    let before = quote;
    while (before > at && line[before - 1] === "\\") before--;
    if ((quote - before) % 2 === 0) return quote + 1;
  }
  return line.length;
}

/**
 * Why a test failed; null if the test passed. RAGEN's text shows the expected output. This text hides it, because the agent's second answer
 * could print it.
 */
function faultOf({ kind, output }: Test, result: Result): string | null {
  if (!result.ok) return `exception ${quoted(result.error)}`;
  const expected = joinedLines(output);
  const same = result.out.trim() === expected.trim() || (kind === "call" && sameJson(result.json, output));
  return same ? null : `wrong output ${quoted(result.out.trim())}`;
}

function sameJson(json: string | undefined, expected: unknown): boolean {
  if (json === undefined) return false;
  try {
    const wanted: unknown = typeof expected === "string" ? exactJson(expected) : expected;
    if (json.length > JSON_CHARS_MIN + JSON_FACTOR * JSON.stringify(wanted).length) return false;
    return Bun.deepEquals(exactJson(json), wanted);
  } catch {
    return false;
  }
}

function quoted(text: string): string {
  return text.length > QUOTED_MAX ? `${text.slice(0, QUOTED_MAX)}…` : text;
}
