/**
 * The folder of a new run.
 *
 * - A new folder always has the run's config. If the config cannot be written, the folder is removed. A new run never uses an existing folder.
 */
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { saveJson } from "../actors/checkpoint/json.ts";
import { type RunConfig, withoutSecrets } from "../actors/config/config.ts";
import { ConfigError, messageOf } from "../actors/errors.ts";
import { shortText } from "../actors/play/envs-of-run.ts";

export interface RunFolder {
  readonly folder: string;
  readonly config: RunConfig;
}

/** The file with the run's config, without secrets. */
export const CONFIG_FILE = "config.json";

export const reportFile = ({ folder }: Pick<RunFolder, "folder">): string => join(folder, "report.json");

/** Longest name of a run, in characters: messages carry the name. */
const NAME_MAX = 64;

/** @param wanted  path of the folder; default: the first free name in the folder `runs` */
export function newRun(config: RunConfig, wanted: string | undefined, runs = "runs"): RunFolder {
  const folder = wanted ?? freshFolder(runs, shortText(config));
  const name = basename(folder);
  if (name.length > NAME_MAX) {
    throw new ConfigError(
      `the name of a run has at most ${NAME_MAX} characters, but ${name} has ${name.length}; choose a shorter name`,
    );
  }
  if (existsSync(folder)) {
    throw new ConfigError(`${folder} exists; choose another --run-dir, or resume it: --resume ${folder}`);
  }
  try {
    mkdirSync(dirname(folder), { recursive: true });
    mkdirSync(folder);
  } catch (error) {
    throw new ConfigError(`cannot make ${folder}, the folder of the run: ${messageOf(error)}; choose another one`);
  }
  try {
    saveJson(join(folder, CONFIG_FILE), withoutSecrets(config));
  } catch (error) {
    rmSync(folder, { recursive: true });
    throw new Error(`cannot start a run in ${folder}: ${messageOf(error)}`);
  }
  return { folder, config };
}

/** runs/2026-11-20-simplesokoban-1, with the first number that is free. */
function freshFolder(runs: string, tag: string): string {
  const day = new Date().toISOString().slice(0, 10);
  for (let n = 1; ; n++) {
    const folder = join(runs, `${day}-${tag.toLowerCase()}-${n}`);
    if (!existsSync(folder)) return folder;
  }
}
