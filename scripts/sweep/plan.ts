/**
 * The runs of a sweep: presets × variants × seeds of a YAML file. This file starts no process.
 *
 * - A group is a preset with a variant's settings; its runs differ in their seeds only.
 * - `planSweep` composes every run's config before the first run starts, as `bun run cluster` composes it from the same flags.
 */
import { basename, join } from "node:path";
import { z } from "zod";
import { type RunConfig, withoutSecrets } from "../../actors/config/config.ts";
import { merge, valuesByPath } from "../../actors/config/layers.ts";
import { DEFAULT_PRESET } from "../../actors/config/preset-files.ts";
import { schemaFaults } from "../../actors/errors.ts";
import type { MetricName } from "../../actors/metrics/metrics.ts";
import { didYouMean, nearest } from "../../envs/text/nearest.ts";
import { firstRepeated } from "../../envs/text/repeats.ts";
import { checkRun, withModel } from "../../library/chosen-model.ts";
import { type Override, UsageError } from "../cli/options.ts";
import { chooseConfig, fileLayer } from "../cli/presets.ts";
import { say } from "../cli/print.ts";
import { runMetric } from "../curves/entries.ts";

const NAME_CHARACTERS_MAX = 48;
const Name = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/, "takes letters, digits, dots, dashes and underscores")
  .max(NAME_CHARACTERS_MAX);
const Settings = z.record(z.string(), z.unknown());
/** A list without repeats. @param what  the kind of an entry */
const distinct = <T extends z.ZodType>(entry: T, what: string, params?: z.core.$ZodArrayParams) =>
  z.array(entry, params).refine((values) => firstRepeated(values) === undefined, {
    error: ({ input }) => `names the ${what} ${firstRepeated(input as unknown[])} twice; leave one out`,
  });

const KEYS = {
  presets: distinct(Name, "preset").min(1).default([DEFAULT_PRESET]),
  seeds: distinct(z.uint32(), "seed", {
    error: ({ input }) => (input === undefined ? "the file has none; write seeds: [1, 2, 3]" : undefined),
  }).min(1),
  /** Settings of every run, in the form of a preset file. */
  set: Settings.default({}),
  /** Settings of each variant, by its name. They override `set`. Without variants every preset is one group. */
  variants: z
    .record(Name, Settings.nullable())
    .refine((variants) => Object.keys(variants).length > 0, "has no variant; leave it out")
    .default({ "": null }),
  /** More metrics for the table, which shows the latest value of each. */
  metrics: distinct(z.string(), "metric").default([]),
};
const SweepFile = z.strictObject(KEYS, {
  error(issue) {
    if (issue.code !== "unrecognized_keys") return undefined;
    const names = Object.keys(KEYS);
    const hintFor = (key: string) => didYouMean(nearest(key, names)) || `; the keys are ${names.join(", ")}`;
    return issue.keys.map((key) => `unknown key ${key}${hintFor(key)}`).join("; ");
  },
});

/** Settings that the sweep chooses for its runs, so its file must not set them. */
const OWN: Readonly<Record<string, string>> = {
  seed: "a run of a sweep has one of the file's seeds",
  "metrics.port": "each run of a sweep has its page on a free port",
};

export interface PlannedRun {
  readonly group: string;
  readonly seed: number;
  readonly folder: string;
  /** Without secrets, as in the run's `config.json`. */
  readonly config: RunConfig;
  /** Flags for `bun run cluster`, without --run-dir. */
  readonly flags: readonly string[];
}

export interface Sweep {
  readonly groups: readonly string[];
  readonly seeds: readonly number[];
  readonly metrics: readonly MetricName[];
  /** The first seed of every group comes first, so that a user can compare the groups early. */
  readonly runs: readonly PlannedRun[];
}

export const sweepName = (file: string): string => basename(file).replace(/\.ya?ml$/, "");

/**
 * @param out   folder of the sweep; each run gets a folder in it
 * @param over  settings of every run; they override the settings of the file
 * @throws {UsageError} for a fault of the file; the error names the file.
 * @throws {ConfigError} for a config that is not valid, or a file that is not YAML
 */
export async function planSweep(file: string, out: string, over: readonly Override[]): Promise<Sweep> {
  const { presets, seeds, set, variants, metrics } = readSweepFile(file);
  const groups = presets.flatMap((preset) =>
    Object.entries(variants).map(([variant, own]) => {
      const namesPreset = presets.length > 1 || variant === "";
      const name = namesPreset ? [preset, variant].filter((part) => part !== "").join(".") : variant;
      const tree = merge([
        { source: file, values: set },
        { source: file, values: own ?? {} },
      ]);
      const flags = valuesByPath(tree).map(([path, value]): Override => {
        // An option of an env may have any type: without quotes the text 12 would become a number.
        const isPlain = typeof value === "string" && !path.startsWith("env.options.");
        const text = isPlain ? value : JSON.stringify(value);
        return { path, text, source: `${file}, ${name}: ${path}` };
      });
      const overrides = [...flags, ...over];
      for (const { path, source } of overrides) {
        if (Object.hasOwn(OWN, path)) throw new UsageError(`${source}: ${OWN[path]}; leave it out`);
      }
      return { name, preset, overrides };
    }),
  );
  const twice = firstRepeated(groups.map(({ name }) => name));
  if (twice !== undefined) throw new UsageError(`${file}: two groups have the name ${twice}; rename a variant`);
  const planned: Omit<PlannedRun, "seed" | "folder">[] = [];
  for (const { name, preset, overrides } of groups) {
    const set = [...overrides, { path: "metrics.port", text: "0", source: "sweep" }];
    const chosen = chooseConfig({ flags: { preset }, overrides: set });
    checkRun(chosen);
    planned.push({
      group: name,
      config: withoutSecrets(await withModel(chosen, say)),
      flags: ["--preset", preset, ...set.map(({ path, text }) => `--${path}=${text}`)],
    });
  }
  const runs = seeds.flatMap((seed) =>
    planned.map(({ group, config, flags }): PlannedRun => {
      const folder = join(out, `${group}-s${seed}`);
      return { group, seed, folder, config: { ...config, seed }, flags: [...flags, `--seed=${seed}`] };
    }),
  );
  return { seeds, metrics, runs, groups: groups.map(({ name }) => name) };
}

function readSweepFile(file: string) {
  const parsed = SweepFile.safeParse(fileLayer("the sweep", file).values);
  if (!parsed.success) throw new UsageError(`${file}: ${schemaFaults(parsed.error, "the sweep")}`);
  const metrics = parsed.data.metrics.map((name) => runMetric(name, `${file}: metrics`));
  return { ...parsed.data, metrics };
}
