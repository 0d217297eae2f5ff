/**
 * `bun run golden FILE`: runs every case of a file of golden vectors through the project's code. tests/golden/cases
 * has the checks of each case.
 *
 * - The command skips no case. An unknown case and a case that throws an error are failures.
 */
import { z } from "zod";
import { messageOf, schemaFaults } from "../actors/errors.ts";
import { casesById } from "../tests/golden/cases/cases.ts";
import { type Check, holds, vectorChecks } from "../tests/golden/cases/check.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";

export const command = {
  flags: { json: flag.switch("End standard output with one JSON object: {passed, failed}") },
  words: { show: "FILE", text: "File of golden vectors, such as tests/golden/ragen.json", max: 1 },
  examples: ["bun run golden tests/golden/ragen.json"],
} as const satisfies Command;

const GoldenFile = z.looseObject({
  cases: z.array(z.looseObject({ id: z.string() })).default([]),
  /** A key, such as "X0_rng_vectors", begins with the id of the case. */
  extras: z.record(z.string(), z.unknown()).default({}),
});

/** Maximum number of characters that a failure shows of a value. */
const SHOWN_MAX = 2000;

/** @returns the exit code: 0 if every check holds, 1 otherwise. */
export async function main({ flags, words }: Parsed<typeof command>): Promise<number> {
  const [path] = words;
  if (path === undefined)
    throw new UsageError("golden needs a FILE of golden vectors: bun run golden tests/golden/ragen.json");
  const file = await readGolden(path);
  const checks = casesOf(file).flatMap(({ id, body }) => run(id, body, file).map((check) => ({ id, ...check })));
  if (checks.length === 0) throw new Error(`${path} has neither cases nor extras; expected at least one`);
  const wrong = checks.filter((check) => !holds(check));
  for (const { id, name, expected, got } of wrong) {
    console.log(`${id} ${name}\n  expected ${shown(expected)}\n  got      ${shown(got)}`);
  }
  const [passed, failed] = [checks.length - wrong.length, wrong.length];
  console.log(`${passed} passed, ${failed} failed`);
  if (flags.json) console.log(JSON.stringify({ passed, failed }));
  return failed === 0 ? 0 : 1;
}

async function readGolden(path: string): Promise<z.infer<typeof GoldenFile>> {
  const file = Bun.file(path);
  if (!(await file.exists())) throw new UsageError(`${path} does not exist`);
  let raw: unknown;
  try {
    raw = await file.json();
  } catch (error) {
    throw new Error(`${path} is not JSON: ${messageOf(error)}`, { cause: error });
  }
  const parsed = GoldenFile.safeParse(raw);
  if (!parsed.success)
    throw new Error(`${path} is not a file of golden vectors: ${schemaFaults(parsed.error, "file")}`);
  return parsed.data;
}

function casesOf({ cases, extras }: z.infer<typeof GoldenFile>): { id: string; body: unknown }[] {
  return [
    ...cases.map((body) => ({ id: body.id, body })),
    ...Object.entries(extras).map(([key, body]) => ({ id: key.split("_")[0]!, body })),
  ];
}

/** The checks of one case. An unknown case, or a case that throws, counts as one failed check. */
function run(id: string, body: unknown, file: unknown): Check[] {
  const check = Object.hasOwn(casesById, id) ? casesById[id] : undefined;
  if (check === undefined) {
    return [{ name: "(case)", expected: `one of ${Object.keys(casesById).join(", ")}`, got: "an unknown id" }];
  }
  const found = vectorChecks("(case)", () => check(body, file), "case");
  return found.length > 0 ? found : [{ name: "(case)", expected: "at least one vector", got: "none" }];
}

function shown(value: unknown): string {
  const numbers = (_: string, part: unknown) =>
    typeof part === "number" && !Number.isFinite(part) ? String(part) : part;
  const text = JSON.stringify(value, numbers) ?? String(value);
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}… (${text.length} characters)` : text;
}
