/** `train`: starts a run inside a program. Its settings have the keys of a YAML config. */
import { pause, realClock } from "../actors/clock.ts";
import type { RunConfig } from "../actors/config/config.ts";
import { type Layer, oneValue, type Tree } from "../actors/config/layers.ts";
import { composeWithEnvFile, DEFAULT_PRESET, PRETRAINED_PRESET, presetLayer } from "../actors/config/preset-files.ts";
import { checkPort } from "../actors/dashboard/port.ts";
import { ConfigError } from "../actors/errors.ts";
import { importEnvs } from "../actors/play/env-modules.ts";
import type { ClusterOptions } from "../actors/supervisor/cluster.ts";
import { checkRun, withModel } from "./chosen-model.ts";
import type { Settings } from "./config.ts";
import { lengthenRun, oldRun } from "./old-run.ts";
import { type Run, startRun } from "./run.ts";
import { newRun, type RunFolder } from "./run-folder.ts";

export interface TrainOptions extends Partial<Pick<ClusterOptions, "event" | "output">> {
  /** Folder of the new run. Default: the first free name in the folder runs. */
  readonly folder?: string;
  /** Name of a file of configs/. Default: quickstart; with `model.path`, pretrained. */
  readonly preset?: string;
  /** Folder of a run to continue. The run keeps its settings, but `settings` may make it longer (`learner.updates`, `learner.minutes`). */
  readonly resume?: string;
  /** Modules of envs: paths from the working directory that start with "./", or names of packages. */
  readonly envs?: readonly string[];
  /** When this signal is aborted, the run saves a checkpoint and ends. */
  readonly signal?: AbortSignal;
  /** Called with the progress of a model's download (`model.path: hf:OWNER/NAME`). */
  readonly notice?: (text: string) => void;
}

/** Defaults, which the preset may override. With workers, a program stays one process. Port 0 is any free port, so several runs can serve pages. */
const PROGRAM: Layer = { source: "train", values: { actors: "workers", metrics: { port: 0 } } };

const SETTINGS = "the settings";

const POLL_MS = 20;

/**
 * Starts a new run, or continues one. By default the actors of a new run are Bun workers of this process, and the run's page has any free port.
 * A continued run keeps its own setting of `actors`.
 *
 * @returns the run, as soon as its page is served or an abort has ended the run
 * @throws {ConfigError} with one line for each fault of the settings; {Error} if the run fails before its page is served; the
 *   reason of `signal` if the signal was aborted before the call
 */
export async function train(settings: Settings, options: TrainOptions = {}): Promise<Run> {
  const { envs = [], signal, event = () => {}, output = () => {} } = options;
  signal?.throwIfAborted();
  for (const specifier of envs) await importEnvs(specifier, process.cwd());
  const chosen = await (options.resume === undefined ? newRunOf : resumed)(settings as Tree, options);
  const run = await startRun({ ...chosen, event, output });
  const stop = () => void run.stop(`aborted: ${String(signal?.reason)}`).catch(() => {});
  signal?.addEventListener("abort", stop);
  let isOver = false;
  const over = () => {
    isOver = true;
    signal?.removeEventListener("abort", stop);
  };
  run.ended.then(over, over);
  if (signal?.aborted) stop();
  while (run.pageUrl === null && !isOver) await pause(realClock, POLL_MS);
  if (run.pageUrl === null) await run.ended;
  return run;
}

async function newRunOf(values: Tree, { folder, preset, notice = () => {} }: TrainOptions): Promise<RunFolder> {
  const { path } = (values["model"] ?? {}) as Tree;
  const standard = path == null ? DEFAULT_PRESET : PRETRAINED_PRESET;
  const config = composeWithEnvFile([PROGRAM, presetLayer(preset ?? standard), { source: SETTINGS, values }]);
  await check(config);
  return newRun(await withModel(config, notice), folder);
}

async function resumed(values: Tree, { resume = "", folder, preset }: TrainOptions): Promise<RunFolder> {
  if (folder !== undefined || preset !== undefined) {
    throw new ConfigError("resume names the folder of the run, which has its settings; leave folder and preset out");
  }
  const port = oneValue("train", "metrics.port", 0);
  const run = oldRun(resume, [port, { source: SETTINGS, values }]);
  await check(run.config);
  lengthenRun(run);
  return run;
}

async function check(config: RunConfig): Promise<void> {
  checkRun(config);
  await checkPort(config.metrics.host, config.metrics.port);
}
