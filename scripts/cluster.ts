/**
 * `bun run cluster`: trains an agent, with everything it takes as processes on this machine. Shows progress, serves the run's
 * page, and ends with what reinforcement changed beside what was taught and what chance gives.
 */
import { existsSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { type RunConfig, runKeys } from "../actors/config/config.ts";
import { checkPort } from "../actors/dashboard/serve.ts";
import { envsText } from "../actors/play/envs-of-run.ts";
import { startCluster } from "../actors/supervisor/cluster.ts";
import { lockRun } from "../actors/supervisor/run-lock.ts";
import { startSingleProcess } from "../actors/supervisor/single-process.ts";
import type { Report } from "../actors/training/report.ts";
import { withModel } from "./cli/chosen-model.ts";
import { checkData } from "./cli/env-choice.ts";
import { Memory, type MemoryOf } from "./cli/memory.ts";
import { type Command, helped, type Override, parseOptions, UsageError } from "./cli/options.ts";
import { chooseConfig, configFlags } from "./cli/presets.ts";
import { newRun, oldRun, type RunFolder, reportFile } from "./cli/run-folder.ts";
import { RunView } from "./cli/run-view.ts";
import { onStopSignal } from "./cli/stop-signals.ts";

const command = {
  name: "cluster",
  flags: {
    ...configFlags,
    "run-dir": { type: "text", value: "DIR", text: "Folder of the run; a new one under runs/ if left out" },
    resume: { type: "text", value: "DIR", text: "Go on with the run in this folder, with its config" },
    transport: { type: "text", value: "ADDRESS", text: "nats://HOST:PORT of a broker", key: "transport.listen" },
    "single-process": { type: "switch", text: "All actors on one thread, for debugging" },
    quiet: { type: "switch", text: "Only warnings and the result" },
    json: { type: "switch", text: "End standard output with one JSON object" },
  },
  examples: [
    "bun run cluster",
    "bun run cluster --env FrozenLake --minutes 2",
    "bun run cluster --preset starpo-ppo --seed 7 --learner.learningRate=1e-4",
    "bun run cluster --model hf:Qwen/Qwen2.5-0.5B-Instruct --env Bandit --updates 20",
    "bun run cluster --resume runs/2026-11-20-simplesokoban-1",
  ],
  overrides: runKeys,
} as const satisfies Command;

/** Between looks at the memory of the actors. */
const MEMORY_SAMPLE_MS = 1000;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const options = parseOptions(command, args);
  const { resume, "run-dir": wanted, quiet = false, json = false } = options.flags;
  if (resume !== undefined && wanted !== undefined)
    throw new UsageError("--resume names the folder; leave --run-dir out");
  const overrides = [...fromEnvironment(), ...options.overrides];
  const run =
    resume === undefined ? await begin(chooseConfig({ ...options, overrides }), wanted) : await goOn(resume, overrides);
  const { folder, config } = run;
  if (options.flags["single-process"] && Math.min(config.sampler.count, config.envServer.count) === 0) {
    throw new UsageError("nobody can join a single process; it needs a sampler and an env server of its own");
  }
  const lock = lockRun(folder);
  const view = new RunView({
    config,
    folder,
    quiet,
    terminal: process.stderr.isTTY === true,
    write: (text) => process.stderr.write(text),
    columns: () => process.stderr.columns ?? 120,
  });
  const crashed = (error: unknown) => view.crashed(error);
  for (const kind of ["uncaughtException", "unhandledRejection"]) process.prependListener(kind, crashed);
  const start = options.flags["single-process"] ? startSingleProcess : startCluster;
  const cluster = await start({
    run: basename(folder),
    folder,
    config,
    event: (event) => view.event(event),
    output: (actor, line) => view.line(actor, line),
  }).catch((error: unknown) => {
    crashed(error);
    throw error;
  });
  const memory = new Memory();
  const sampling = setInterval(() => {
    for (const { name, rssBytes } of cluster.children()) memory.sample(name, performance.now(), rssBytes);
  }, MEMORY_SAMPLE_MS);
  onStopSignal((signal) => {
    view.note(`${signal}: saving and stopping; once more to leave at once`);
    void cluster.stop(signal);
  });
  const end = await cluster.ended;
  clearInterval(sampling);
  view.close();
  lock.release();
  if (!end.ok) throw new Error(`the run ended: ${end.reason}; its log is ${join(folder, "log.jsonl")}`);
  if (!existsSync(reportFile(run))) {
    console.log(`stopped (${end.reason}); go on with: bun run cluster --resume ${folder}`);
    if (json) console.log(JSON.stringify({ run: basename(folder), env: envsText(config), stopped: end.reason }));
    return 0;
  }
  const report = JSON.parse(readFileSync(reportFile(run), "utf8")) as Report;
  console.log(table(report, config.validate.temperature, folder, memory.report()));
  if (json) console.log(JSON.stringify({ ...report, memory: memory.report() }));
  return 0;
}

/** A secret may come from where no process list shows it. */
function fromEnvironment(): Override[] {
  // The actors do not need it.
  return Object.entries({ BUNRAKU_TOKEN: "join.token", BUNRAKU_BROKER_TOKEN: "transport.token" }).flatMap(
    ([source, path]) => {
      const text = process.env[source] ?? "";
      delete process.env[source];
      return text === "" ? [] : [{ path, text, source }];
    },
  );
}

/** What can be known to fail is found out before there is a folder. */
async function begin(config: RunConfig, wanted: string | undefined): Promise<RunFolder> {
  checkData(config);
  await checkPort(config.metrics.host, config.metrics.port);
  return newRun(await withModel(config), wanted);
}

async function goOn(folder: string, overrides: readonly Override[]): Promise<RunFolder> {
  const run = oldRun(folder, overrides);
  checkData(run.config);
  await checkPort(run.config.metrics.host, run.config.metrics.port);
  return run;
}

/** What a person wants to know first: success side by side. */
function table(report: Report, cool: number, folder: string, memory: readonly MemoryOf[]): string {
  const { success, successAtOne, minutes, minutesInAll, updates, tokensPerSecond } = report;
  const percent = (share: number | null) => (share === null ? "–" : `${(100 * share).toFixed(1)} %`).padStart(8);
  const rows: [string, number | null, number | null, string][] = [
    ["random", success.random, null, "a player that chooses every action by chance"],
    ["taught", success.taught, successAtOne.taught, "the warm start, before it was blurred"],
    ["before", success.before, null, "where reinforcement began"],
    ["after", success.after, successAtOne.after, `${updates} updates later`],
    ["best possible", success.best, null, "the optimal player on the same boards"],
  ];
  if (success.expert !== null)
    rows.push(["expert", success.expert, null, "a scripted player; the best possible is unknown"]);
  return [
    "",
    `${"success".padEnd(13)} ${`T ${cool}`.padStart(8)} ${"T 1".padStart(8)}`,
    ...rows.map(([name, at, atOne, text]) => `${name.padEnd(13)} ${percent(at)} ${percent(atOne)}   ${text}`),
    ...envLines(report.envs, percent),
    "",
    `${minutes.toFixed(1)} min of reinforcement, ${minutesInAll.toFixed(1)} min in all; ${tokensPerSecond.toFixed(0)} tokens/s`,
    ...memoryLines(memory),
    `the run is in ${folder}`,
  ].join("\n");
}

/** Of a mix, each env's way from chance to the best possible. */
function envLines(envs: Report["envs"], percent: (share: number | null) => string): string[] {
  if (envs === null) return [];
  const width = Math.max(...Object.keys(envs).map((name) => name.length));
  const cells = (of: Readonly<Record<"random" | "before" | "after" | "best", number | null>>) =>
    [of.random, of.before, of.after, of.best].map(percent).join(" ");
  return [
    "",
    `${"".padEnd(width)} ${["random", "before", "after", "best"].map((name) => name.padStart(8)).join(" ")}`,
    ...Object.entries(envs).map(([name, of]) => `${name.padEnd(width)} ${cells(of)}`),
  ];
}

function memoryLines(memory: readonly MemoryOf[]): string[] {
  const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(0);
  const total = memory.reduce((sum, { peakBytes }) => sum + peakBytes, 0);
  const parts = memory.map(({ actor, peakBytes, slopeBytesPerMinute: slope }) => {
    return `${actor} ${mib(peakBytes)}${slope === null ? "" : ` (${slope >= 0 ? "+" : ""}${(slope / 2 ** 20).toFixed(1)}/min)`}`;
  });
  return memory.length === 0 ? [] : [`memory at most ${mib(total)} MiB: ${parts.join(", ")}`];
}
