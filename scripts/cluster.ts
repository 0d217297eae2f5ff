/** `bun run cluster`: trains an agent. Shows progress, serves the run's page, and prints the success before and after reinforcement. */
import { existsSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { latestCheckpoint } from "../actors/checkpoint/checkpoint.ts";
import { type RunConfig, runKeys } from "../actors/config/config.ts";
import { valuesByPath } from "../actors/config/layers.ts";
import { checkPort } from "../actors/dashboard/port.ts";
import { messageOf } from "../actors/errors.ts";
import { plural } from "../actors/number-text.ts";
import { envsText, envsWithRules, tooSmallBudgets } from "../actors/play/envs-of-run.ts";
import { readRunConfig } from "../actors/policy/saved-policy.ts";
import { hasRecord, RecordedRun } from "../actors/record/recorded-run.ts";
import { addStart } from "../actors/record/starts.ts";
import { lockRun } from "../actors/supervisor/run-lock.ts";
import { checkRun, withModel } from "../library/chosen-model.ts";
import { lengthenRun, oldRun } from "../library/old-run.ts";
import { startRun } from "../library/run.ts";
import { CONFIG_FILE, newRun, type RunFolder } from "../library/run-folder.ts";
import { Memory } from "./cli/memory.ts";
import { type Command, flag, type Override, type Parsed, UsageError } from "./cli/options.ts";
import { chooseConfig, configFlags, fileLayer, overrideLayer, runsFolder } from "./cli/presets.ts";
import { say, warn } from "./cli/print.ts";
import { resultTable, thisStart } from "./cli/run-result.ts";
import { RunView } from "./cli/run-view.ts";
import { onStopSignal, type StopSignal } from "./cli/stop-signals.ts";
import { shellWord } from "./cli/texts.ts";

export const command = {
  flags: {
    ...configFlags,
    "run-dir": flag.text(
      "DIR",
      "Folder of the new run (default: the next free name in runs/, or in runsFolder of bunraku.config.ts)",
    ),
    smoke: flag.switch("Run two tiny updates of this config, to test the config"),
    from: flag.text(
      "DIR",
      "Start a new run from the policy in this folder: the folder of a run, or one of its checkpoints",
    ),
    resume: flag.text(
      "DIR",
      "Continue the run in this folder with the run's config; --updates N makes the run longer, --config FILE adds secrets",
    ),
    transport: flag.text("ADDRESS", "Broker for messages: nats://HOST:PORT", "transport.listen"),
    actors: flag.text(
      "HOW",
      "Where actors run: processes (default), workers (of one process) or one-thread (for debugging)",
      "actors",
    ),
    exit: flag.switch(
      "End when the run ends; without --exit, on a terminal, the command then serves the page until Ctrl-C",
    ),
    quiet: flag.switch("Print warnings and the result only"),
    json: flag.switch("End standard output with one JSON object"),
  },
  examples: [
    "bun run cluster",
    "bun run cluster --env FrozenLake --minutes 2",
    "bun run cluster --preset starpo-ppo --seed 7 --learner.learningRate=1e-4",
    "bun run cluster --model hf:Qwen/Qwen2.5-0.5B-Instruct --env Bandit --updates 20",
    "bun run cluster --config mine.yaml --smoke",
    "bun run cluster --resume runs/2026-11-20-simplesokoban-1",
    "bun run cluster --resume runs/2026-11-20-simplesokoban-1 --updates 400",
    "bun run cluster --from runs/2026-11-20-simplesokoban-1 --env LargerSokoban",
  ],
  overrides: runKeys,
} as const satisfies Command;

const MEMORY_SAMPLE_MS = 1000;

export async function main(options: Parsed<typeof command>, typed: readonly string[]): Promise<number> {
  const { quiet = false, json = false, exit = false } = options.flags;
  const prepared = await openRun(options);
  const { folder, config } = prepared;
  const began = thisStart("cluster", typed, new Date());
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
  const starting = startRun({
    ...prepared,
    event: (event) => view.event(event),
    output: (actor, line) => view.line(actor, line),
  });
  const asked = Promise.withResolvers<StopSignal>();
  let isRunning = true;
  onStopSignal((signal) => {
    asked.resolve(signal);
    if (!isRunning) return;
    view.note(`${signal}: saving and stopping; a second signal ends the run at once`);
    void starting.then((run) => run.stop(signal)).catch(() => {});
  });
  const run = await starting.catch((error: unknown) => {
    crashed(error);
    throw error;
  });
  // From here on, this process has the lock of the folder.
  try {
    addStart(folder, began);
  } catch (error) {
    view.note(`warning: this start is missing in ${join(folder, "starts.jsonl")}: ${messageOf(error)}`);
  }
  const memory = new Memory();
  const sampling = setInterval(() => {
    const now = performance.now();
    if (config.actors !== "processes") memory.sample("all actors", now, process.memoryUsage.rss());
    else for (const { name, rssBytes } of run.actors) memory.sample(name, now, rssBytes);
  }, MEMORY_SAMPLE_MS);
  const { report, reason } = await run.ended
    .finally(() => {
      isRunning = false;
      clearInterval(sampling);
      view.clear();
    })
    .catch((error: unknown) => {
      throw new Error(`${messageOf(error)}; the log of the run is ${join(folder, "log.jsonl")}`, { cause: error });
    });
  if (report === null) {
    console.log(`stopped (${reason}); go on with: bun run cluster --resume ${shellWord(folder)}`);
    if (json) console.log(JSON.stringify({ run: basename(folder), env: envsText(config), stopped: reason }));
    return 0;
  }
  using record = new RecordedRun(folder);
  console.log(resultTable(report, config.validate.temperature, folder, memory.report(), record.costs()));
  if (json) console.log(JSON.stringify({ ...report, memory: memory.report() }));
  const stays = !exit && !options.flags.smoke && process.stdout.isTTY && process.stderr.isTTY;
  if (stays) await keepPage(prepared, view.pageUrl, asked.promise);
  return 0;
}

/** Serves the page of the finished run at the same address as before, until the user asks to stop. */
async function keepPage({ folder, config }: RunFolder, url: string | null, asked: Promise<StopSignal>): Promise<void> {
  // Imported on demand: only a finished run on a terminal serves the page in this process.
  const { serveRecorded } = await import("./cli/recorded-page.ts");
  const { host, port, token } = config.metrics;
  const page = await serveRecorded(folder, { host, port: url === null ? port : Number(new URL(url).port), token });
  console.log(`the page of the run stays at ${page.url} until Ctrl-C; with --exit the command ends with the run`);
  await asked;
  await page.stop();
}

/**
 * Reads secrets from the environment, because other users can see a command line. Removes the secrets from the environment, because the
 * actors do not need them.
 */
function fromEnvironment(): Override[] {
  const secrets = { BUNRAKU_TOKEN: "join.token", BUNRAKU_BROKER_TOKEN: "transport.token" };
  return Object.entries(secrets).flatMap(([source, path]) => {
    const text = process.env[source] ?? "";
    delete process.env[source];
    return text === "" ? [] : [{ path, text, source }];
  });
}

/** The run that the flags ask for. The function checks everything that it can before it creates a folder. */
async function openRun(options: Parsed<typeof command>): Promise<RunFolder> {
  const { resume, from, "run-dir": runDir, smoke = false } = options.flags;
  const overrides = [...fromEnvironment(), ...options.overrides];
  if (resume !== undefined) {
    if (runDir !== undefined) throw new UsageError("--resume names the folder; leave --run-dir out");
    if (from !== undefined) throw new UsageError("--from starts a new run; leave --resume out");
    if (smoke) throw new UsageError("--smoke starts a new run; leave --resume out");
    const { preset, config: file } = options.flags;
    if (preset !== undefined) throw new UsageError("a resumed run keeps its config; leave --preset out");
    const layers = file === undefined ? [] : [fileLayer("--config", file)];
    const run = oldRun(resume, [...layers, ...overrides.map(overrideLayer)]);
    // Test the lock before `check`. A run in progress also holds the port, but the error about the lock is clearer than the error about the port.
    lockRun(run.folder).release();
    if (!hasRecord(run.folder))
      warn(`${run.folder} has no run.sqlite: a new record starts, without the earlier episodes`);
    await check(run.config);
    lengthenRun(run);
    return run;
  }
  const before = from === undefined ? [] : await startFrom(from, overrides);
  const chosen = chooseConfig({ ...options, overrides: [...before, ...overrides] });
  for (const line of tooSmallBudgets(chosen)) warn(line);
  const config = smoke ? smokeConfig(chosen) : chosen;
  if (smoke && options.flags.quiet !== true) say(smokeText(config));
  await check(config);
  return newRun(await withModel(config, say), runDir, runsFolder());
}

async function check(config: RunConfig): Promise<void> {
  checkRun(config);
  const { path, checkpoint } = config.model;
  if (path === null && checkpoint === null && !config.warmStart.enabled)
    warn(
      "the built-in policy starts from random weights, because warmStart.enabled is false; at first its replies are noise",
    );
  await checkPort(config.metrics.host, config.metrics.port);
}

const UPDATES = 2;
const TURNS = 2;
const REPLY_TOKENS = 16;
const WARM_START_STEPS = 4;

/**
 * `--smoke`: the smallest run of a config. It does everything that the full run would do (warm start, rollouts, updates, validation,
 * checkpoint) within about a minute, and learns nothing.
 */
export function smokeConfig(config: RunConfig): RunConfig {
  const { env, rollout, sampler, envServer, warmStart, learner, validate } = config;
  const played = envsWithRules(config);
  return {
    ...config,
    env: {
      ...env,
      turnsMax: Math.min(env.turnsMax, TURNS),
      mix: env.mix.map((one, i) => ({ ...one, groups: null, turnsMax: Math.min(played[i]!.rules.turnsMax, TURNS) })),
    },
    rollout: {
      ...rollout,
      groups: Math.max(2, played.length),
      groupSize: Math.min(rollout.groupSize, 2),
      onlineK: 1,
      curriculum: { ...rollout.curriculum, by: "none" },
      // Shorter replies could not imitate the demonstrations.
      replyTokensMax: warmStart.enabled ? rollout.replyTokensMax : Math.min(rollout.replyTokensMax, REPLY_TOKENS),
    },
    sampler: { ...sampler, count: Math.min(sampler.count, 1), slots: Math.min(sampler.slots, 4) },
    envServer: { ...envServer, count: Math.min(envServer.count, 1) },
    warmStart: {
      ...warmStart,
      boards: Math.min(warmStart.boards, 16),
      stages: warmStart.stages.map((stage) => ({
        ...stage,
        steps: Math.min(stage.steps, WARM_START_STEPS),
        batch: Math.min(stage.batch, 4),
        warmUpSteps: 0,
      })),
    },
    learner: {
      ...learner,
      updates: UPDATES,
      minutes: null,
      minibatch: null,
      resampleRoundsMax: 0,
      filter: { ...learner.filter, strategy: "all" },
    },
    validate: { ...validate, episodes: 2, groupSize: 1 },
  };
}

/** What a smoke run does, in one line. @param config  a result of `smokeConfig` */
export function smokeText({ env, rollout, learner }: RunConfig): string {
  const { groups, groupSize, replyTokensMax } = rollout;
  const episodes = `${plural(groups, "group")} of ${plural(groupSize, "episode")}`;
  const limits = `${plural(env.turnsMax, "turn")} and ${plural(replyTokensMax, "token")} a reply`;
  return `smoke run: ${plural(learner.updates, "update")} of ${episodes}, at most ${limits}; it shows that the config works, and learns nothing`;
}

/**
 * The settings of a run that starts from the policy of another run.
 *
 * @param from       a run's folder, or one of its checkpoints
 * @param overrides  settings of the new run; the function refuses a setting that contradicts the policy
 */
export async function startFrom(from: string, overrides: readonly Override[]): Promise<Override[]> {
  const isCheckpoint = basename(dirname(resolve(from))) === "checkpoints";
  const folder = isCheckpoint ? dirname(dirname(resolve(from))) : resolve(from);
  if (!existsSync(join(folder, CONFIG_FILE))) {
    throw new UsageError(`--from ${from}: no run in ${folder}; name a run's folder, or a checkpoint in it`);
  }
  const { model, env, prompt } = readRunConfig(folder);
  const checkpoint = isCheckpoint ? resolve(from) : (await latestCheckpoint(join(folder, "checkpoints"))).found;
  if (checkpoint === null)
    throw new UsageError(`--from ${from}: the run has no intact checkpoint yet; wait for one, or name another run`);
  if (!existsSync(checkpoint))
    throw new UsageError(
      `--from ${from}: there is no such checkpoint; name another checkpoint, or name the run to use its newest checkpoint`,
    );
  const { path, width, layers, heads, kvHeads, hidden, lora } = model;
  const adapters = lora.rank > 0 ? { lora: { rank: lora.rank, alpha: lora.alpha, targets: lora.targets } } : {};
  const shape = path === null ? { width, layers, heads, kvHeads, hidden } : { path, ...adapters };
  const settings = {
    warmStart: { enabled: false },
    env: { think: env.think },
    prompt: { compat: prompt.compat, layout: prompt.layout },
    model: { checkpoint, ...shape },
  };
  const fixed = valuesByPath(settings).map(([path, value]) => {
    return { path, text: typeof value === "string" ? value : JSON.stringify(value), source: `--from ${from}` };
  });
  for (const { path, text, source } of overrides) {
    const needed = fixed.find((one) => one.path === path);
    if (needed === undefined || needed.text === text) continue;
    throw new UsageError(`${source}: the policy of ${from} needs ${path} ${needed.text}; leave it out`);
  }
  return fixed;
}
