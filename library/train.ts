/** `train`: a run inside a program, from settings as in a YAML file. */
import { resolve } from "node:path";
import { realClock } from "../actors/clock.ts";
import type { RunConfig } from "../actors/config/config.ts";
import { ConfigError } from "../actors/config/error.ts";
import type { Layer, Tree } from "../actors/config/layers.ts";
import { composeWithEnvFile, DEFAULT_PRESET, PRETRAINED_PRESET, presetLayer } from "../actors/config/preset-files.ts";
import { checkPort } from "../actors/dashboard/serve.ts";
import { importEnvs } from "../actors/play/env-modules.ts";
import { lessonsOf } from "../actors/play/envs-of-run.ts";
import { isHubName } from "../actors/policy/hub.ts";
import { checkPretrained } from "../actors/policy/pretrained.ts";
import type { ClusterOptions } from "../actors/supervisor/cluster.ts";
import type { Settings } from "./config.ts";
import { checkPresent } from "./policy.ts";
import { type Run, startRun } from "./run.ts";
import { newRun } from "./run-folder.ts";

export interface TrainOptions extends Partial<Pick<ClusterOptions, "event" | "output">> {
  /** Folder of the new run. Default: the next free one under runs/. */
  readonly folder?: string;
  /** A file of configs/. Default: quickstart; with `model.path`, pretrained. */
  readonly preset?: string;
  /** Modules of envs: paths from the working directory that start with "./", or names of packages. */
  readonly envs?: readonly string[];
  /** Saves and ends the run when it is aborted. */
  readonly signal?: AbortSignal;
}

/** Below the preset: a program may have several runs, and stays one process. */
const PROGRAM: Layer = { source: "train", values: { actors: "workers", metrics: { port: 0 } } };

const POLL_MS = 20;

/**
 * Starts a new run. Its actors are Bun workers of this process, unless `actors` says otherwise, and its page has any free port.
 *
 * @returns once the page is served
 * @throws {ConfigError} with one line for each fault of the settings; {Error} if the run fails before its page is served; the
 *   reason of `signal` if that was aborted before
 */
export async function train(settings: Settings, options: TrainOptions = {}): Promise<Run> {
  const { folder, preset, envs = [], signal, event = () => {}, output = () => {} } = options;
  signal?.throwIfAborted();
  for (const specifier of envs) await importEnvs(specifier, process.cwd());
  const config = await settled(settings, preset);
  const run = await startRun({ ...newRun(config, folder), event, output });
  const stop = () => void run.stop(`aborted: ${String(signal?.reason)}`).catch(() => {});
  signal?.addEventListener("abort", stop);
  let isOver = false;
  const over = () => {
    isOver = true;
    signal?.removeEventListener("abort", stop);
  };
  run.ended.then(over, over);
  if (signal?.aborted) stop();
  while (run.pageUrl === null && !isOver) await new Promise<void>((resume) => realClock.after(POLL_MS, resume));
  if (run.pageUrl === null) await run.ended;
  return run;
}

async function settled(settings: Settings, preset: string | undefined): Promise<RunConfig> {
  const values = settings as Tree;
  const standard = settings.model?.path == null ? DEFAULT_PRESET : PRETRAINED_PRESET;
  const config = composeWithEnvFile([PROGRAM, presetLayer(preset ?? standard), { source: "the settings", values }]);
  for (const { tag } of lessonsOf(config)) checkPresent(tag);
  await checkPort(config.metrics.host, config.metrics.port);
  const { path } = config.model;
  if (path === null) return config;
  if (isHubName(path))
    throw new ConfigError(`model.path: ${path} must be a folder here; bun run cluster --model downloads it`);
  await checkPretrained(resolve(path));
  return { ...config, model: { ...config.model, path: resolve(path) } };
}
