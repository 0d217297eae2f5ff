/**
 * `bun run cluster`: trains an agent, with everything it takes as processes on this machine. Shows progress, serves the run's
 * page, and ends with what reinforcement changed beside what was taught and what chance gives.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { startCluster } from "../actors/cluster.ts";
import { type RunConfig, RunConfig as RunConfigSchema, runKeys, withoutSecrets } from "../actors/config.ts";
import type { Report } from "../actors/run-report.ts";
import { startSingleProcess } from "../actors/single-process.ts";
import { Memory, type MemoryOf } from "./memory.ts";
import { type Command, helped, parseOptions, UsageError } from "./options.ts";
import { chooseConfig, configFlags } from "./presets.ts";
import { RunView } from "./run-view.ts";

const command = {
  name: "cluster",
  summary: "train an agent, with everything it takes as processes on this machine",
  flags: {
    ...configFlags,
    "run-dir": { type: "text", value: "DIR", text: "Folder of the run; a new one under runs/ if left out" },
    resume: { type: "text", value: "DIR", text: "Go on with the run in this folder, with its config" },
    "single-process": { type: "switch", text: "All actors on one thread, for debugging" },
    quiet: { type: "switch", text: "Only warnings and the result" },
    json: { type: "switch", text: "End standard output with one JSON object" },
  },
  examples: [
    "bun run cluster",
    "bun run cluster --env FrozenLake --minutes 2",
    "bun run cluster --preset starpo-ppo --seed 7 --learner.learningRate=1e-4",
    "bun run cluster --resume runs/2026-11-20-simplesokoban-1",
  ],
  overrides: runKeys,
} as const satisfies Command;

/** Between looks at the memory of the actors. */
const MEMORY_SAMPLE_MS = 1000;

/** The settings of a run, in its folder; secrets are not in it. */
const CONFIG_FILE = "config.json";

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const options = parseOptions(command, args);
  const { resume, "run-dir": wanted, quiet = false, json = false } = options.flags;
  if (resume !== undefined && wanted !== undefined)
    throw new UsageError("--resume names the folder; leave --run-dir out");
  const { folder, config } =
    resume === undefined ? newRun(chooseConfig(options), wanted) : oldRun(resume, options.overrides.length);
  const view = new RunView({
    config,
    folder,
    quiet,
    terminal: process.stderr.isTTY === true,
    write: (text) => process.stderr.write(text),
  });
  const start = options.flags["single-process"] ? startSingleProcess : startCluster;
  const cluster = await start({
    run: basename(folder),
    ...{ folder, config },
    event: (event) => view.event(event),
    output: (actor, line) => view.line(actor, line),
  });
  const memory = new Memory();
  const sampling = setInterval(() => {
    for (const { name, rssBytes } of cluster.children()) memory.sample(name, performance.now(), rssBytes);
  }, MEMORY_SAMPLE_MS);
  let signals = 0;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (++signals > 1) process.exit(1);
      view.note(`${signal}: saving and stopping; once more to leave at once`);
      void cluster.stop(signal);
    });
  }
  const end = await cluster.ended;
  clearInterval(sampling);
  view.close();
  if (!end.ok) throw new Error(`the run ended: ${end.reason}; its log is ${join(folder, "log.jsonl")}`);
  const reportFile = join(folder, "report.json");
  if (!existsSync(reportFile)) {
    console.log(`stopped (${end.reason}); go on with: bun run cluster --resume ${folder}`);
    return 0;
  }
  const report = JSON.parse(readFileSync(reportFile, "utf8")) as Report;
  console.log(table(report, folder, memory.report()));
  if (json) console.log(JSON.stringify({ ...report, memory: memory.report() }));
  return 0;
}

function newRun(config: RunConfig, wanted: string | undefined): { folder: string; config: RunConfig } {
  const folder = wanted ?? freshFolder(config.env.tag);
  if (existsSync(folder)) {
    throw new UsageError(`${folder} exists; name another --run-dir, or go on with it: --resume ${folder}`);
  }
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, CONFIG_FILE), `${JSON.stringify(withoutSecrets(config), null, 2)}\n`);
  return { folder, config };
}

function oldRun(folder: string, overrides: number): { folder: string; config: RunConfig } {
  const file = join(folder, CONFIG_FILE);
  if (!existsSync(file)) throw new UsageError(`no run in ${folder}: there is no ${CONFIG_FILE}`);
  if (overrides > 0) throw new UsageError("a resumed run keeps its config; leave the settings out");
  if (existsSync(join(folder, "report.json")))
    throw new UsageError(`the run in ${folder} is finished; start a new one`);
  return { folder, config: RunConfigSchema.parse(JSON.parse(readFileSync(file, "utf8"))) };
}

/** runs/2026-11-20-simplesokoban-1: the first of these names that is free. */
function freshFolder(tag: string): string {
  const day = new Date().toISOString().slice(0, 10);
  for (let n = 1; ; n++) {
    const folder = join("runs", `${day}-${tag.toLowerCase()}-${n}`);
    if (!existsSync(folder)) return folder;
  }
}

/** What a person wants to know first: success side by side. */
function table(report: Report, folder: string, memory: readonly MemoryOf[]): string {
  const { success, successAtOne, minutes, minutesInAll, updates, tokensPerSecond } = report;
  const percent = (share: number | null) => (share === null ? "–" : `${(100 * share).toFixed(1)} %`).padStart(8);
  const rows: [string, number | null, number | null, string][] = [
    ["random", success.random, null, "a player that chooses every action by chance"],
    ["taught", success.taught, successAtOne.taught, "the warm start, before it was blurred"],
    ["before", success.before, null, "where reinforcement began"],
    ["after", success.after, successAtOne.after, `${updates} updates later`],
    ["best possible", success.best, null, "the optimal player on the same boards"],
  ];
  return [
    "",
    "success          T 0.5    T 1.0",
    ...rows.map(([name, cool, one, text]) => `${name.padEnd(13)} ${percent(cool)} ${percent(one)}   ${text}`),
    "",
    `${minutes.toFixed(1)} min of reinforcement, ${minutesInAll.toFixed(1)} min in all; ${tokensPerSecond.toFixed(0)} tokens/s`,
    ...memoryLines(memory),
    `the run is in ${folder}`,
  ].join("\n");
}

function memoryLines(memory: readonly MemoryOf[]): string[] {
  const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(0);
  const total = memory.reduce((sum, { peakBytes }) => sum + peakBytes, 0);
  const parts = memory.map(({ actor, peakBytes, slopeBytesPerMinute: slope }) => {
    return `${actor} ${mib(peakBytes)}${slope === null ? "" : ` (${slope >= 0 ? "+" : ""}${(slope / 2 ** 20).toFixed(1)}/min)`}`;
  });
  return memory.length === 0 ? [] : [`memory at most ${mib(total)} MiB: ${parts.join(", ")}`];
}
