/** `bun run metrics`: lists what a run measures, each with its unit and what it means. Runs nothing. */
import { prometheusName } from "../actors/dashboard/prometheus.ts";
import { METRIC_NAMES, type Metric, type MetricName, metric } from "../actors/metrics/metrics.ts";
import { type Command, helped, parseOptions, UsageError } from "./cli/options.ts";
import { table } from "./config.ts";

const command = {
  name: "metrics",
  summary: "list what a run measures, each with its unit and what it means",
  words: { show: "PART", text: "Of names; only those that begin with it", max: 1 },
  flags: {
    json: { type: "switch", text: "As one JSON object" },
    markdown: { type: "switch", text: "As docs/metrics.md has them" },
  },
  examples: ["bun run metrics", "bun run metrics train/", "bun run metrics --json"],
} as const satisfies Command;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const { flags, words } = parseOptions(command, args);
  const [part = ""] = words;
  const names = METRIC_NAMES.filter((name) => name.startsWith(part));
  if (names.length === 0) throw new UsageError(`no metric begins with ${part}; \`bun run metrics\` lists them`);
  const rows = names.map((name) => ({ name, ...metric(name) }));
  if (flags.json) console.log(JSON.stringify(rows));
  else if (flags.markdown) console.log(markdown(rows));
  else for (const { name, unit, help } of rows) console.log(`${name.padEnd(36)} ${unit.padEnd(12)} ${help}`);
  return 0;
}

function markdown(rows: readonly (Metric & { readonly name: MetricName })[]): string {
  const notes = ({ kind, timed, perActor, parts }: Metric) => [
    ...(kind === "counter" ? ["counts on over the run"] : []),
    ...(timed ? ["depends on the clock"] : []),
    ...(perActor ? ["of each actor"] : []),
    ...(parts === "env" ? ["of a mix also of each env"] : parts === "k" ? ["for each k"] : []),
  ];
  const cells = rows.map((row) => {
    const { name, unit, help } = row;
    return [
      `\`${name}\``,
      unit,
      help.replaceAll("|", "\\|").replaceAll("<", "&lt;"),
      notes(row).join("; "),
      `\`${prometheusName(name)}\``,
    ];
  });
  return [
    "# Metrics",
    "",
    "Everything that a run measures, made by `bun run metrics --markdown` from [`actors/metrics/metrics.ts`](../actors/metrics/metrics.ts). A share is 0 to 1; `reward`",
    "is the env's own unit. What does not depend on the clock is the same in two runs of equal seeds in sync mode.",
    "",
    ...table([["metric", "unit", "meaning", "", "in `/metrics`"], ...cells]),
  ].join("\n");
}
