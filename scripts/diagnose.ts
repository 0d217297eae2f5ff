/**
 * `bun run diagnose`: feeds recorded runs through the Echo Trap detector and the early stops. Shows when and why the verdict changed,
 * and what a ladder or an early stop would have done. Flags set other thresholds.
 */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { runKeys } from "../actors/config/config.ts";
import { EARLY_STOPS, HealthConfig } from "../actors/config/health.ts";
import { type Layer, merge } from "../actors/config/layers.ts";
import { upgraded } from "../actors/config/renamed.ts";
import { schemaFaults } from "../actors/errors.ts";
import { type MetricName, type MetricValues, partName, splitName } from "../actors/metrics/metrics.ts";
import { Store } from "../actors/metrics-sink/store.ts";
import { envNames } from "../actors/play/envs-of-run.ts";
import { checkup, endsRun, HEALTH_START, type HealthNotice, MEASURED, measuredOf } from "../actors/training/health.ts";
import { type Command, helped, type Override, parseOptions, UsageError } from "./cli/options.ts";
import { overrideLayer } from "./cli/presets.ts";

const command = {
  name: "diagnose",
  words: { show: "RUN…", text: "Folders of runs", max: Number.POSITIVE_INFINITY },
  flags: { json: { type: "switch", text: "End standard output with one JSON object" } },
  examples: [
    "bun run diagnose runs/2026-11-20-simplesokoban-1",
    "bun run diagnose runs/a runs/b --health.trap.spreadShare=0.3",
    'bun run diagnose runs/a --health.ladder=\'["lower-step-size","roll-back"]\' --health.interveneAt=warning',
  ],
  overrides: runKeys,
} as const satisfies Command;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const { flags, words, overrides } = parseOptions(command, args);
  if (words.length === 0) throw new UsageError("say which: the folders of runs");
  const diagnoses = words.map((folder) => diagnose(folder, overrides));
  console.log(diagnoses.map(described).join("\n\n"));
  if (flags.json) console.log(JSON.stringify({ runs: diagnoses }));
  return 0;
}

interface Said extends HealthNotice {
  readonly update: number;
}

interface Diagnosis {
  readonly run: string;
  readonly updates: number;
  /** The last verdict; null if no update could be judged. */
  readonly verdict: string | null;
  /** Changes of the verdict, and the rungs that the ladder would have taken. */
  readonly told: readonly Said[];
  /** The first time that each of RAGEN-2's early stops would have ended the run. */
  readonly earlyStops: readonly Said[];
}

function diagnose(run: string, overrides: readonly Override[]): Diagnosis {
  const config = healthConfig(run, overrides);
  const values = readValues(run);
  const updates = [...values.keys()].filter((step) => values.get(step)!["train/success"] !== undefined);
  const told: Said[] = [];
  const earlyStops: Said[] = [];
  let verdict: string | null = null;
  let state = HEALTH_START;
  let watched = HEALTH_START;
  let over = false;
  for (const update of updates.sort((a, b) => a - b)) {
    // A validation is recorded at the update that it came before.
    const measured = measuredOf(values.get(update)!, lowestSuccess(values.get(update - 1)));
    if (measured === null) continue;
    const one = checkup(state, measured, { ...config, stopEarly: [] });
    state = one.state;
    verdict = state.verdict;
    if (!over) told.push(...one.notices.map((said) => ({ update, ...said })));
    over ||= one.due !== null && endsRun(one.due);
    const all = checkup(watched, measured, { ...config, ladder: [], stopEarly: [...EARLY_STOPS] });
    watched = all.state;
    const [stop] = all.notices.filter(({ kind }) => kind === "early-stop");
    const known = ({ text }: Said) => text.split(":")[0] === stop?.text.split(":")[0];
    if (stop !== undefined && !earlyStops.some(known)) earlyStops.push({ update, ...stop });
  }
  return { run, updates: updates.length, verdict, told, earlyStops };
}

/** Lowest validation success over the envs. */
function lowestSuccess(values: MetricValues = {}): number | undefined {
  const shares = Object.entries(values).filter(([name]) => splitName(name).row === "validate/success");
  return shares.length === 0 ? undefined : Math.min(...shares.map(([, share]) => share));
}

/** The run's health settings, or the defaults for an old run without them, with the flags on top. */
function healthConfig(run: string, overrides: readonly Override[]): HealthConfig {
  const fixed = overrides.find(({ path }) => !path.startsWith("health."));
  if (fixed !== undefined) throw new UsageError(`${fixed.source}: only health.… can be changed for a recorded run`);
  const file = join(run, "config.json");
  const kept: Layer = { source: file, values: { health: {} } };
  if (existsSync(file)) {
    const { health } = upgraded(JSON.parse(readFileSync(file, "utf8")));
    if (health !== undefined) kept.values["health"] = health;
  }
  const layers = overrides.map(({ path, text, source }) => overrideLayer(path, text, source));
  const parsed = HealthConfig.safeParse(merge([kept, ...layers])["health"]);
  if (parsed.success) return parsed.data;
  throw new UsageError(schemaFaults(parsed.error, "health"));
}

/** Metrics by update. Of a repeated update, after a resume or a rollback, the last one counts. */
function readValues(run: string): Map<number, MetricValues> {
  const path = join(run, "run.sqlite");
  if (!existsSync(path)) throw new UsageError(`no run in ${run}: there is no run.sqlite`);
  const store = new Store({ path, durability: "normal", wallClock: Date.now });
  try {
    const byUpdate = new Map<number, Partial<Record<MetricName, number>>>();
    const envs = envNames(store.run()?.env ?? "").map((env) => partName("validate/success", "env", env));
    for (const { name, steps, values } of store.series([...MEASURED, "validate/success", ...envs], 0)) {
      steps.forEach((step, i) => {
        const one = byUpdate.get(step) ?? {};
        one[name as MetricName] = values[i]!;
        byUpdate.set(step, one);
      });
    }
    return byUpdate;
  } finally {
    store.close();
  }
}

function described({ run, updates, verdict, told, earlyStops }: Diagnosis): string {
  if (verdict === null) return `${run}: no update was recorded that could be judged`;
  const line = ({ update, kind, text }: Said) => `  update ${update}: ${kind === "health" ? "" : `${kind}: `}${text}`;
  return [
    `${run}: ${verdict} after ${updates} updates`,
    ...(told.length === 0 ? ["  healthy all the time"] : told.map(line)),
    ...earlyStops.map(({ update, text }) => `  RAGEN-2 would have stopped it at update ${update}: ${text}`),
  ].join("\n");
}
