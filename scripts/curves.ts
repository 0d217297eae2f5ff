/**
 * `bun run curves`: draws metrics of recorded runs side by side, as SVG or PNG. One panel for each metric, one line for each
 * run; runs of a group share a colour and have their mean drawn thick.
 */
import { isMetricName, METRIC_NAMES, type MetricName, metric } from "../actors/metrics/metrics.ts";
import { didYouMean, nearest } from "../envs/text/nearest.ts";
import { type Command, helped, parseOptions, UsageError } from "./cli/options.ts";
import { neededFor } from "./curves/contents.ts";
import { photograph } from "./curves/photograph.ts";
import { ENTRIES_MAX, picture } from "./curves/picture.ts";
import { readEntries } from "./curves/runs.ts";

const DEFAULT_METRICS: readonly MetricName[] = [
  "validate/success",
  "train/reward_mean",
  "train/in_group_std",
  "train/entropy",
  "train/grad_norm",
  "train/zero_std_groups",
  "train/reply_tokens",
];

const command = {
  name: "curves",
  summary: "draw metrics of recorded runs side by side, as SVG or PNG",
  words: { show: "RUN…", text: "Folders of runs, one line each", max: Number.POSITIVE_INFINITY },
  flags: {
    out: { type: "text", value: "FILE", text: "Where to, ending in .svg or .png (which needs Chromium)" },
    group: {
      type: "list",
      value: "LABEL=RUN,RUN",
      text: "Seeds of one setting: one colour, and their mean; may be repeated",
    },
    metrics: {
      type: "text",
      value: "A,B",
      text: "One panel each; success and six signs of learning or collapse if left out",
    },
    title: { type: "text", value: "TEXT", text: "Above the picture; the name of the env if left out" },
  },
  examples: [
    "bun run curves runs/2026-11-20-simplesokoban-1 --out curves.svg",
    "bun run curves --group StarPO=runs/a1,runs/a2,runs/a3 --group StarPO-S=runs/s1,runs/s2,runs/s3 --out echo-trap.png",
    "bun run curves runs/a1 runs/s1 --metrics train/grad_norm,train/entropy --title 'Before the collapse' --out signs.svg",
  ],
} as const satisfies Command;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const { flags, words } = parseOptions(command, args);
  const { out, group = [], title = null } = flags;
  if (out === undefined) throw new UsageError("say where to: --out FILE.svg or --out FILE.png");
  const format = /\.(svg|png)$/i.exec(out)?.[1]?.toLowerCase();
  if (format === undefined) throw new UsageError(`--out takes a file that ends in .svg or .png, got "${out}"`);
  if (words.length + group.length === 0)
    throw new UsageError("say what to draw: folders of runs, or --group LABEL=RUN,RUN");
  const metrics = flags.metrics === undefined ? DEFAULT_METRICS : metricsOf(flags.metrics);
  const entries = readEntries(words, group, neededFor(metrics));
  if (entries.length > ENTRIES_MAX) {
    throw new UsageError(
      `${entries.length} lines are more than colours can tell apart, which is ${ENTRIES_MAX}; join seeds with --group`,
    );
  }
  const svg = picture(entries, metrics, title);
  const bytes = format === "svg" ? svg : await photograph(svg);
  try {
    await Bun.write(out, bytes);
  } catch (error) {
    throw new Error(`cannot write ${out}: ${(error as Error).message}`, { cause: error });
  }
  console.log(`drew ${metrics.length} ${metrics.length === 1 ? "metric" : "metrics"} in ${out}`);
  return 0;
}

function metricsOf(text: string): MetricName[] {
  const names = text.split(",").map((name) => name.trim());
  return names.map((name, index) => {
    if (!isMetricName(name)) {
      const near = nearest(name, METRIC_NAMES);
      const hint = near === null ? "; actors/metrics/metrics.ts lists them" : didYouMean(near);
      throw new UsageError(`no metric named "${name}"${hint}`);
    }
    if (names.indexOf(name) !== index) throw new UsageError(`--metrics names ${name} twice`);
    if (metric(name).perActor) {
      throw new UsageError(`${name} has a value for each actor, and a run has one line; leave it out`);
    }
    return name;
  });
}
