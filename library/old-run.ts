/** The folder of a run to resume. run-folder.ts makes new folders. This file learns about other processes only from the run's lock. */
import { existsSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import { parsedJson, saveJson } from "../actors/checkpoint/json.ts";
import { RunConfig } from "../actors/config/config.ts";
import { isTree, type Layer, merge, oneValue, valueAt, valuesByPath } from "../actors/config/layers.ts";
import { brokenRules } from "../actors/config/rules.ts";
import { ConfigError, messageOf } from "../actors/errors.ts";
import { withLocalModules } from "../actors/play/env-modules.ts";
import { readRunConfig } from "../actors/policy/saved-policy.ts";
import { lockRun } from "../actors/supervisor/run-lock.ts";
import { earlierReportName, type Report } from "../actors/training/report.ts";
import { CONFIG_FILE, type RunFolder, reportFile } from "./run-folder.ts";

/** Sections and keys that a resumed run may change: its addresses, and the secrets that its folder does not hold. */
const CHANGEABLE = ["metrics.", "transport.", "join.", "engine.url"];

/** The length of a resumed run may change too. A finished run continues if its new length is greater. */
const LENGTH = ["learner.updates", "learner.minutes"];

/**
 * @param layers  settings of `CHANGEABLE` and `LENGTH`; every other setting must have the value that the run already has
 * @throws {ConfigError} if there is no run, if a setting cannot change or is invalid, or if the run is finished and the settings do not make it
 * longer
 */
export function oldRun(folder: string, layers: readonly Layer[]): RunFolder {
  const file = join(folder, CONFIG_FILE);
  if (!existsSync(file)) throw new ConfigError(`no run in ${folder}: there is no ${CONFIG_FILE}`);
  const kept = readRunConfig(folder);
  const set = layers.flatMap(({ source, values }) =>
    valuesByPath(values).map(([path, value]) => ({ source, path, value })),
  );
  const changeable = (path: string) => LENGTH.includes(path) || CHANGEABLE.some((section) => path.startsWith(section));
  const keptLayer = { source: file, values: { ...kept } };
  // The user may repeat the config file that started the run. The file's lists lack the defaults of their items, which the schema adds.
  const isKept = ({ source, path, value }: (typeof set)[number]) => {
    if (Bun.deepEquals(valueAt(keptLayer.values, path), value)) return true;
    const parsed = RunConfig.safeParse(merge([keptLayer, oneValue(source, path, value)]));
    return parsed.success && Bun.deepEquals(parsed.data, kept);
  };
  const fixed = set.find((one) => !changeable(one.path) && !isKept(one));
  if (fixed !== undefined) {
    throw new ConfigError(
      `${fixed.source}: a resumed run keeps its config, except for --updates, --minutes, metrics.*, transport.*, join.* and engine.url; leave ${fixed.path} out, or start a new run`,
    );
  }
  const config = resumable(file, [keptLayer, ...layers]);
  const [broken] = brokenRules(config);
  if (broken !== undefined) {
    const secrets = broken.includes("token")
      ? `. ${CONFIG_FILE} holds no secrets: give the file of --config again`
      : "";
    throw new ConfigError(`${file}: ${broken}${secrets}`);
  }
  const run = { folder, config };
  const isLonger = set.some(({ path }) => LENGTH.includes(path));
  if (existsSync(reportFile(run))) checkGrows(run, isLonger);
  return run;
}

function resumable(file: string, layers: readonly Layer[]): RunConfig {
  try {
    return withLocalModules(RunConfig.parse(merge(layers)));
  } catch (error) {
    throw new ConfigError(`${file}: ${messageOf(error)}`);
  }
}

function readReport(folder: string): Pick<Report, "updates" | "minutes"> {
  const file = reportFile({ folder });
  const report = parsedJson(readFileSync(file, "utf8"));
  if (isTree(report) && typeof report["updates"] === "number" && typeof report["minutes"] === "number")
    return { updates: report["updates"], minutes: report["minutes"] };
  throw new ConfigError(
    `${file} is damaged: it is not a report of a run; move the file away, and resume the run again`,
  );
}

/** @throws {ConfigError} if the run would end immediately */
function checkGrows({ folder, config: { learner } }: RunFolder, lengthGiven: boolean): void {
  const { updates, minutes } = readReport(folder);
  if (lengthGiven && learner.updates > updates && (learner.minutes === null || learner.minutes > minutes)) return;
  const most = learner.minutes === null ? "" : ` and --minutes M above ${minutes.toFixed(1)}`;
  throw new ConfigError(
    `the run in ${folder} is finished; to continue it, give --updates N above ${updates}${most}, or start a new run`,
  );
}

/**
 * Writes a run's new length into its config. Adds the number of the last update to the name of a finished run's report.
 *
 * @throws {Error} if the run is in progress; the function then changes no file
 */
export function lengthenRun(run: RunFolder): void {
  const { folder, config } = run;
  const lock = lockRun(folder);
  try {
    const kept = readRunConfig(folder);
    const { updates, minutes } = config.learner;
    if (kept.learner.updates !== updates || kept.learner.minutes !== minutes) {
      saveJson(join(folder, CONFIG_FILE), { ...kept, learner: { ...kept.learner, updates, minutes } });
    }
    const report = reportFile(run);
    if (existsSync(report)) renameSync(report, join(folder, earlierReportName(readReport(folder).updates)));
  } finally {
    lock.release();
  }
}
