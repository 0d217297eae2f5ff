/** `bun run compare`: prints the numbers of recorded runs side by side, and the settings that differ. A run may still be in progress. */
import { resolve } from "node:path";
import { differingSettings } from "../actors/config/layers.ts";
import type { MetricName } from "../actors/metrics/metrics.ts";
import { percent, whole } from "../actors/number-text.ts";
import { readRunConfig } from "../actors/policy/saved-policy.ts";
import { RecordedRun } from "../actors/record/recorded-run.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { alignedWithin, amountText, COST_NAMES } from "./cli/texts.ts";

export const command = {
  words: { show: "RUN…", text: "Folders of two or more runs", max: Number.POSITIVE_INFINITY },
  flags: { json: flag.switch("End standard output with one JSON object") },
  examples: [
    "bun run compare runs/2026-11-20-simplesokoban-1 runs/2026-11-20-simplesokoban-2",
    "bun run compare runs/starpo runs/starpo-s --json",
  ],
} as const satisfies Command;

/** Head, JSON key, the metric whose latest value is shown, and its format. */
const COLUMNS: readonly (readonly [head: string, key: string, name: MetricName, show: (value: number) => string])[] = [
  ["updates", "updates", "total/updates", String],
  ["random", "random", "baseline/random", percent],
  ["taught", "taught", "baseline/taught", percent],
  ["before", "before", "baseline/before", percent],
  ["success", "success", "validate/success", percent],
  ["best possible", "best", "baseline/best", percent],
  ["expert", "expert", "baseline/expert", percent],
  ["reward", "reward", "train/reward_mean", (value) => value.toFixed(2)],
  ["in-group std", "inGroupStd", "train/in_group_std", (value) => value.toFixed(2)],
  ["entropy", "entropy", "train/entropy", (value) => value.toFixed(3)],
  ["gradient", "gradNorm", "train/grad_norm", (value) => value.toFixed(2)],
  ["tokens/s", "tokensPerSecond", "speed/tokens_per_second", whole],
];

export async function main({ flags, words }: Parsed<typeof command>): Promise<number> {
  if (words.length < 2) throw new UsageError(`name two or more runs, got ${words.length}`);
  const folders = words.map((word) => resolve(word));
  const twice = words.find((_, index) => folders.indexOf(folders[index]!) !== index);
  if (twice !== undefined) throw new UsageError(`${twice} is named twice; leave one out`);
  const runs = words.map(read);
  const differences = differingSettings(runs.map(({ config }) => config));
  const width = Math.max(WIDTH, process.stdout.columns ?? WIDTH);
  console.log(table(runs, width));
  console.log(`\ncosts of reinforcement, in all and per point of success gained:\n${costTable(runs, width)}`);
  console.log(`\n${settingsText(runs.length, differences, width)}`);
  if (flags.json) {
    const summaries = runs.map(({ folder: run, env, seed, highest, values, costs }) => {
      return { run, env, seed, ...values, highest, costs };
    });
    console.log(JSON.stringify({ runs: summaries, differences }));
  }
  return 0;
}

type Compared = ReturnType<typeof read>;

/** `values` are the latest values by key; null if never measured. */
function read(folder: string) {
  const config = readRunConfig(folder);
  using run = new RecordedRun(folder);
  const { env, seed } = run.facts;
  const latest = run.latest();
  const values = Object.fromEntries(COLUMNS.map(([, key, name]) => [key, latest.get(name) ?? null]));
  return { folder, env, seed, values, highest: highestOf(run), costs: run.costs(), config };
}

/** The highest validation success and its update; null if never measured. */
function highestOf(run: RecordedRun) {
  const curve = run.curve("validate/success");
  if (curve === null) return null;
  const success = Math.max(...curve.values);
  return { success, update: curve.steps[curve.values.indexOf(success)]! };
}

/** Minimum width for tables, in characters, even on a narrower terminal. */
const WIDTH = 80;
/** Longest path and value in the table, in characters: both fit into `WIDTH`. Settings with a longer path or value follow below the table. */
const CELL = { path: 50, value: 20 };

const TIME_PARTS = ["rollout", "update", "validation", "checkpoints"] as const;

/** The text for a value that the run did not measure, and for a setting that is not set. */
const UNKNOWN = "–";

/** A numbered list of the runs, then a row for each value. */
function table(runs: readonly Compared[], width: number): string {
  const names = runs.map(({ folder, env, seed }, i) => `${i + 1}  ${folder} (${env}, seed ${seed})`);
  const measured = COLUMNS.filter(([, key]) => runs.some(({ values }) => values[key] !== null));
  const rows = measured.map(([title, key, , show]) => [
    title,
    ...runs.map(({ values }) => (values[key] === null ? UNKNOWN : show(values[key]!))),
  ]);
  const highest = runs.map((run) =>
    run.highest === null ? UNKNOWN : `${percent(run.highest.success)} (u${run.highest.update})`,
  );
  return [...names, "", alignedWithin(width, [numbersOf(runs.length), ...rows, ["highest", ...highest]])].join("\n");
}

/** Costs by run; energy only if at least one run measured it. */
function costTable(runs: readonly Compared[], width: number): string {
  const shown = COST_NAMES.filter(([key]) => key !== "joules" || runs.some(({ costs }) => costs.total[key] !== null));
  const rows = shown.flatMap(([key, title]) => [
    [title, ...runs.map(({ costs }) => amountText(costs.reinforcement[key]))],
    ["  per point", ...runs.map(({ costs }) => amountText(costs.perPoint[key]))],
  ]);
  const seconds = TIME_PARTS.map((key) => [`${key} s`, ...runs.map(({ costs }) => amountText(costs.seconds[key]))]);
  const points = runs.map(({ costs }) => costs.points?.toFixed(1) ?? UNKNOWN);
  return alignedWithin(width, [numbersOf(runs.length), ["points", ...points], ...rows, ...seconds]);
}

const numbersOf = (runs: number) => ["", ...Array.from({ length: runs }, (_, i) => String(i + 1))];

/**
 * A table of the settings whose path and values are short. Then each other setting: a line for each value, with the numbers of the runs
 * that have this value.
 */
function settingsText(runs: number, differences: Readonly<Record<string, unknown[]>>, width: number): string {
  const text = (value: unknown) => (value === null ? UNKNOWN : JSON.stringify(value));
  const rows = Object.entries(differences).map(([path, values]) => [path, ...values.map(text)] as const);
  if (rows.length === 0) return "all settings are equal, the seed included";
  const isShort = ([path, ...values]: readonly string[]) =>
    path!.length <= CELL.path && values.every((value) => value.length <= CELL.value);
  const short = rows.filter(isShort);
  const long = rows.filter((row) => !isShort(row)).map(([path, ...values]) => longText(path, values, width));
  const tables = short.length === 0 ? [] : [alignedWithin(width, [numbersOf(runs), ...short])];
  return ["settings that differ:", ...tables, ...long].join("\n");
}

function longText(path: string, values: readonly string[], width: number): string {
  const lines = [...new Set(values)].map((value) => {
    const owners = values.flatMap((one, i) => (one === value ? [i + 1] : []));
    return `  ${owners.join(", ")}: ${value}`;
  });
  const parts = new RegExp(`.{1,${width - 4}}`, "gu");
  return [path, ...lines].map((line) => line.match(parts)!.join("\n    ")).join("\n");
}
