/**
 * `bun run golden FILE`: runs every case of a file of golden vectors through the project's own code. It knows the file's
 * outline, not the cases: those are in golden/.
 *
 * - A case that is not known, or throws, is a failure. Nothing is skipped, and no answer is known here.
 */
import { z } from "zod";
import { type Command, helped, parseOptions, UsageError } from "./cli/options.ts";
import { checks as algorithmChecks } from "./golden/algorithms.ts";
import { type Check, type Checks, holds } from "./golden/check.ts";
import { checks as envChecks } from "./golden/envs.ts";

const checks: Checks = { ...envChecks, ...algorithmChecks };

const command = {
  name: "golden",
  flags: { json: { type: "switch", text: "End standard output with one JSON object: {passed, failed}" } },
  words: { show: "FILE", text: "a file of golden vectors, as tests/golden/ragen.json", max: 1 },
  examples: ["bun run golden tests/golden/ragen.json"],
} as const satisfies Command;

const GoldenFile = z.looseObject({
  cases: z.array(z.looseObject({ id: z.string() })).default([]),
  /** Keys are "X0_rng_vectors": the id, then words. */
  extras: z.record(z.string(), z.unknown()).default({}),
});

/** Longest value that a failure prints in full, in characters. */
const SHOWN_MAX = 2000;

export { golden as main };

/** @returns the exit code: 0 if every check holds, 1 otherwise. */
export async function golden(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const { flags, words } = parseOptions(command, args);
  const [path] = words;
  if (path === undefined)
    throw new UsageError("golden needs a FILE of golden vectors: bun run golden tests/golden/ragen.json");
  const file = await readGolden(path);
  let passed = 0;
  let failed = 0;
  for (const { id, body } of casesOf(file)) {
    for (const check of run(id, body, file)) {
      if (holds(check)) {
        passed++;
        continue;
      }
      failed++;
      console.log(`${id} ${check.name}\n  expected ${shown(check.expected)}\n  got      ${shown(check.got)}`);
    }
  }
  if (passed + failed === 0) throw new Error(`${path} has no cases and no extras`);
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
    throw new Error(`${path} is not JSON: ${(error as Error).message}`, { cause: error });
  }
  const parsed = GoldenFile.safeParse(raw);
  if (!parsed.success) throw new Error(`${path} is no file of golden vectors: ${reasons(parsed.error)}`);
  return parsed.data;
}

function casesOf({ cases, extras }: z.infer<typeof GoldenFile>): { id: string; body: unknown }[] {
  return [
    ...cases.map((body) => ({ id: body.id, body })),
    ...Object.entries(extras).map(([key, body]) => ({ id: key.split("_")[0]!, body })),
  ];
}

/** The checks of one case; one that cannot hold if the case is unknown or cannot be run. */
function run(id: string, body: unknown, file: unknown): Check[] {
  const check = Object.hasOwn(checks, id) ? checks[id] : undefined;
  if (check === undefined) {
    return [{ name: "(case)", expected: `one of ${Object.keys(checks).join(", ")}`, got: "an unknown id" }];
  }
  try {
    const found = check(body, file);
    return found.length > 0 ? found : [{ name: "(case)", expected: "at least one vector", got: "none" }];
  } catch (error) {
    const reason =
      error instanceof z.ZodError ? reasons(error) : error instanceof Error ? error.message : String(error);
    return [{ name: "(case)", expected: "a case that runs", got: reason }];
  }
}

function reasons(error: z.ZodError): string {
  return z.prettifyError(error).replaceAll(/\s*\n\s*/g, " ");
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}… (${text.length} characters)` : text;
}
