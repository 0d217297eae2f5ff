/**
 * `bun run bench`: measures parts of the system against their goals. Without a name, the command lists the benchmarks.
 *
 * A benchmark is bench/NAME.bench.ts with `summary` (one line) and `run(options)`, which prints lines for people and returns the
 * numbers. Each benchmark runs in its own process, so that no benchmark warms up another. At the end the command prints one table, which
 * compares the results with other programs and with limits.
 */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { messageOf } from "../actors/errors.ts";
import { linesOf } from "../actors/process/lines.ts";
import type { Comparison } from "../bench/shared.ts";
import { didYouMean, nearest } from "../envs/text/nearest.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { aligned } from "./cli/texts.ts";

const root = join(import.meta.dir, "..");

interface Bench {
  readonly summary: string;
  /** @param options  by key, the values of this benchmark's `--NAME.key=value` */
  run(options: Readonly<Record<string, string>>): Promise<BenchResult>;
}

export interface BenchResult {
  readonly name: string;
  readonly comparisons: readonly Comparison[];
}

export const command = {
  words: { show: "[NAME …]", text: "Benchmarks to run; the name `all` runs every benchmark", max: 99 },
  flags: {
    json: flag.switch("End standard output with one JSON object; for several names {results: [...]}"),
    here: flag.switch("Run in this process, for a profiler; takes one NAME"),
  },
  examples: [
    "bun run bench",
    "bun run bench step --json",
    "bun run bench envs weights",
    "bun run bench step --step.layers=6",
  ],
  overrides: { nearest: () => null },
  keys: "An option of a benchmark; the benchmark's NAME is the section",
} as const satisfies Command;

export async function main({ flags, words, overrides }: Parsed<typeof command>): Promise<number> {
  const names = findBenches();
  if (words.length === 0) {
    if (overrides[0] !== undefined) throw new UsageError(`${overrides[0].source}: name the benchmark to run`);
    const width = Math.max(...names.map((name) => name.length));
    for (const name of names) console.log(`  ${name.padEnd(width)}  ${(await load(name)).summary}`);
    return 0;
  }
  const unknown = words.find((word) => word !== "all" && !names.includes(word));
  if (unknown !== undefined) {
    throw new UsageError(
      `no benchmark "${unknown}"${didYouMean(nearest(unknown, names)) || `; there are ${names.join(", ")}`}`,
    );
  }
  const chosen = words.includes("all") ? names : words;
  const optionsOf = (name: string) => overrides.filter(({ path }) => path.startsWith(`${name}.`));
  const stray = overrides.find(({ path }) => !chosen.includes(path.split(".")[0]!));
  if (stray !== undefined)
    throw new UsageError(`${stray.source} belongs to no chosen benchmark; chosen: ${chosen.join(", ")}`);
  if (flags.here) {
    if (chosen.length !== 1) throw new UsageError(`--here takes one NAME, got ${chosen.length}`);
    const name = chosen[0]!;
    const options = optionsOf(name).map(({ path, text }) => [path.slice(name.length + 1), text]);
    console.log(JSON.stringify(await (await load(name)).run(Object.fromEntries(options))));
    return 0;
  }
  const results: BenchResult[] = [];
  const failures: string[] = [];
  for (const name of chosen) {
    try {
      const sources = optionsOf(name).map(({ source }) => source);
      results.push(await runInChild(name, sources));
    } catch (error) {
      // The other benchmarks still run.
      failures.push(messageOf(error));
    }
  }
  if (results.length > 0) console.log(`\n${comparisonTable(results.flatMap(({ comparisons }) => comparisons))}`);
  const result = chosen.length === 1 ? results[0] : { results };
  if (flags.json && result !== undefined) console.log(JSON.stringify(result));
  if (failures.length > 0) throw new Error(failures.join("; "));
  return 0;
}

function comparisonTable(comparisons: readonly Comparison[]): string {
  const rows = comparisons.map(({ what, ours, reference, speed, goal }) => {
    return [what, ours, reference, speed.toFixed(2), goal.toFixed(2), speed >= goal ? "reached" : "missed"];
  });
  return aligned([["benchmark", "Bunraku", "peer or limit", "times as fast", "goal", ""], ...rows]);
}

function findBenches(): string[] {
  const files = readdirSync(join(root, "bench")).filter((file) => file.endsWith(".bench.ts"));
  return files.map((file) => file.slice(0, -".bench.ts".length)).sort();
}

async function load(name: string): Promise<Bench> {
  return (await import(join(root, "bench", `${name}.bench.ts`))) as Bench;
}

/** Runs the benchmark in its own process. Prints each line of the benchmark at once, except the last line, which is the result as JSON. */
async function runInChild(name: string, overrides: readonly string[]): Promise<BenchResult> {
  const child = Bun.spawn([process.execPath, join(root, "scripts", "run.ts"), "bench", name, "--here", ...overrides], {
    cwd: root,
    stdio: ["ignore", "pipe", "inherit"],
  });
  let last: string | null = null;
  for await (const line of linesOf(child.stdout)) {
    if (last !== null) console.log(last);
    last = line;
  }
  const code = await child.exited;
  if (code !== 0 && last !== null) console.log(last);
  if (code !== 0 || last === null)
    throw new Error(`benchmark ${name} ended with ${child.signalCode ?? code}; see above`);
  const result = JSON.parse(last) as BenchResult;
  const { comparisons: _, ...numbers } = result;
  for (const [key, value] of Object.entries(numbers))
    console.log(`  ${key}: ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return result;
}
