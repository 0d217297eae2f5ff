/**
 * The folder of a run to resume, and of one to start from. library/run-folder.ts makes new ones. Knows no processes.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { latestCheckpoint } from "../../actors/checkpoint/checkpoint.ts";
import { RunConfig } from "../../actors/config/config.ts";
import { merge } from "../../actors/config/layers.ts";
import { brokenRules } from "../../actors/config/rules.ts";
import { withLocalModules } from "../../actors/play/env-modules.ts";
import { readRunConfig } from "../../actors/policy/saved-policy.ts";
import type { Report } from "../../actors/training/report.ts";
import { CONFIG_FILE, type RunFolder, reportFile } from "../../library/run-folder.ts";
import { asUsage } from "./env-choice.ts";
import { type Override, UsageError } from "./options.ts";
import { overrideLayer } from "./presets.ts";

/** Sections that a resumed run may change: its addresses, and the secrets that its folder does not hold. */
const CHANGEABLE = ["metrics.", "transport.", "join."];

/** Its length may change too, and a finished run continues if it grows. */
const LENGTH = ["learner.updates", "learner.minutes"];

/** @param overrides  of `CHANGEABLE` sections and of `LENGTH` only */
export function oldRun(folder: string, overrides: readonly Override[]): RunFolder {
  const file = join(folder, CONFIG_FILE);
  if (!existsSync(file)) throw new UsageError(`no run in ${folder}: there is no ${CONFIG_FILE}`);
  const changeable = ({ path }: Override) =>
    LENGTH.includes(path) || CHANGEABLE.some((section) => path.startsWith(section));
  const fixed = overrides.find((override) => !changeable(override));
  if (fixed !== undefined) {
    throw new UsageError(
      `${fixed.source}: a resumed run keeps its config, except for --updates, --minutes, metrics.*, transport.* and join.*`,
    );
  }
  const kept = { source: file, values: { ...readRunConfig(folder) } };
  const layers = overrides.map(({ path, text, source }) => overrideLayer(path, text, source));
  const config = asUsage(file, () => withLocalModules(RunConfig.parse(merge([kept, ...layers]))));
  const [broken] = brokenRules(config);
  if (broken !== undefined) throw new UsageError(`${file}: ${broken.path}: ${broken.text}`);
  const run = { folder, config };
  if (existsSync(reportFile(run))) {
    checkGrows(
      run,
      overrides.some(({ path }) => LENGTH.includes(path)),
    );
  }
  return run;
}

/** @throws {UsageError} if the run would end at once */
function checkGrows({ folder, config: { learner } }: RunFolder, lengthGiven: boolean): void {
  const { updates, minutes } = JSON.parse(readFileSync(reportFile({ folder }), "utf8")) as Report;
  if (lengthGiven && learner.updates > updates && (learner.minutes === null || learner.minutes > minutes)) return;
  const most = learner.minutes === null ? "" : ` and --minutes M above ${minutes.toFixed(1)}`;
  throw new UsageError(
    `the run in ${folder} is finished; to continue it, give --updates N above ${updates}${most}, or start a new run`,
  );
}

/** Keeps the new length of a run, and its report, if it had finished, under the name of its last update. */
export function lengthenRun(run: RunFolder): void {
  const { folder, config } = run;
  const kept = readRunConfig(folder);
  const { updates, minutes } = config.learner;
  if (kept.learner.updates !== updates || kept.learner.minutes !== minutes) {
    const file = join(folder, CONFIG_FILE);
    const changed = { ...kept, learner: { ...kept.learner, updates, minutes } };
    writeFileSync(`${file}.new`, `${JSON.stringify(changed, null, 2)}\n`, { flush: true });
    renameSync(`${file}.new`, file);
  }
  const report = reportFile(run);
  if (!existsSync(report)) return;
  const made = (JSON.parse(readFileSync(report, "utf8")) as Report).updates;
  renameSync(report, join(folder, `report-u${String(made).padStart(6, "0")}.json`));
}

/**
 * What a run sets to start from the policy of another run.
 *
 * @param from       a run's folder, or one of its checkpoints
 * @param overrides  of the new run; one that contradicts the policy is refused
 */
export async function startFrom(from: string, overrides: readonly Override[]): Promise<Override[]> {
  const isCheckpoint = basename(dirname(resolve(from))) === "checkpoints";
  const folder = isCheckpoint ? dirname(dirname(resolve(from))) : resolve(from);
  if (!existsSync(join(folder, CONFIG_FILE))) {
    throw new UsageError(`--from ${from}: no run in ${folder}; name a run's folder, or a checkpoint in it`);
  }
  const { model, env, prompt } = readRunConfig(folder);
  const checkpoint = isCheckpoint ? resolve(from) : await newestOf(join(folder, "checkpoints"));
  if (checkpoint === null) throw new UsageError(`--from ${from}: the run has no intact checkpoint yet`);
  const { path, width, layers, heads, kvHeads, hidden, lora } = model;
  const adapters =
    lora.rank > 0 ? { "lora.rank": lora.rank, "lora.alpha": lora.alpha, "lora.targets": lora.targets } : {};
  const shape = path === null ? { width, layers, heads, kvHeads, hidden } : { path, ...adapters };
  const keys = {
    "warmStart.enabled": false,
    "env.think": env.think,
    "prompt.compat": prompt.compat,
    "prompt.layout": prompt.layout,
    ...Object.fromEntries(Object.entries({ checkpoint, ...shape }).map(([key, value]) => [`model.${key}`, value])),
  };
  const fixed = Object.entries(keys).map(([path, value]) => {
    return { path, text: typeof value === "string" ? value : JSON.stringify(value), source: `--from ${from}` };
  });
  for (const { path, text, source } of overrides) {
    const its = fixed.find((one) => one.path === path);
    if (its === undefined || its.text === text) continue;
    throw new UsageError(`${source}: the policy of ${from} needs ${path} ${its.text}; leave it out`);
  }
  return fixed;
}

async function newestOf(checkpoints: string): Promise<string | null> {
  return existsSync(checkpoints) ? (await latestCheckpoint(checkpoints)).found : null;
}
