/**
 * Measures how often each detector of a collapse is right: true and false positive rates over many runs, with exact intervals.
 *
 * - The report uses the runs of odd seeds, without those of the held-out env, to choose the thresholds of Bunraku's detector and the entropy
 *   floor. All other runs give the rates.
 * - A true positive is an alarm in a collapsed run, at most ten updates after success fell below half of its peak. Its lead is the number
 *   of updates from the alarm to that moment; the lead of a late alarm is negative.
 */
import { readFileSync } from "node:fs";
import { z } from "zod";
import { parsedJson } from "../../actors/checkpoint/json.ts";
import { messageOf } from "../../actors/errors.ts";
import { TRAP_RULE, type TrapRule } from "../../model/health/echo-trap/echo-trap.ts";
import { shareOf } from "../../model/interval.ts";
import { median } from "../../model/statistics.ts";
import { UsageError } from "../cli/options.ts";
import { aligned } from "../cli/texts.ts";
import {
  bunraku,
  type Detector,
  entropyFloor,
  gradientThreeSigma,
  type LoggedUpdate,
  loggedUpdate,
  type Outcome,
  outcomeOf,
  ragenStops,
} from "./detectors.ts";
import type { RunLog } from "./run-logs.ts";

/** An alarm up to this many updates after the onset still counts as true. */
const LATE_MAX = 10;
/** Most detectors compare a run with its own first updates, so they cannot raise an alarm before a collapse in these updates. */
const EARLY_ONSETS = 20;

/** First alarms of other projects' detectors, as bench/peers/alarms.py writes them: by detector and run, the index of the update, or null. */
const Alarms = z.record(z.string(), z.record(z.string(), z.int().nullable()));

interface JudgedRun {
  readonly log: RunLog;
  readonly updates: readonly LoggedUpdate[];
  readonly outcome: Outcome;
}

type FirstAlarm = (run: JudgedRun) => number | null;

/**
 * @param heldOut  env whose runs choose no threshold; null: none
 * @param alarms   file of first alarms of other detectors; null: none
 */
export function ratesReport(
  logs: readonly RunLog[],
  { heldOut, alarms }: { readonly heldOut: string | null; readonly alarms: string | null },
) {
  const runs = logs.map((log): JudgedRun => {
    const values = log.updates.map((update) => update.values);
    const outcome = outcomeOf(values.map((one) => one["train/success"]!));
    return { log, updates: values.map(loggedUpdate), outcome };
  });
  const envs = [...new Set(logs.map(({ env }) => env))];
  if (heldOut !== null && !envs.includes(heldOut))
    throw new UsageError(`--held-out ${heldOut}: no run has this env; name one of ${envs.join(", ")}`);
  const isHeldOut = ({ log }: JudgedRun) => log.env === heldOut;
  const chosenOn = runs.filter((run) => run.log.seed % 2 === 1 && !isHeldOut(run));
  const others = runs.filter((run) => !chosenOn.includes(run));
  const rule = bestOf(trapRules(), (candidate) => bunraku(["collapsed"], candidate), chosenOn);
  const warningRule = bestOf(trapRules(), (candidate) => bunraku(["warning", "collapsed"], candidate), chosenOn);
  const floor = bestOf([0.02, 0.05, 0.1, 0.15, 0.2, 0.3], entropyFloor, chosenOn);
  const detectors: [string, FirstAlarm][] = [
    ["collapsed, default thresholds", bunraku(["collapsed"])],
    ["warning or collapsed, default", bunraku(["warning", "collapsed"])],
    ["collapsed, chosen thresholds", bunraku(["collapsed"], rule)],
    ["warning or collapsed, chosen", bunraku(["warning", "collapsed"], warningRule)],
    ["RAGEN-2's early stops", ragenStops],
    ["entropy below the chosen floor", entropyFloor(floor)],
    ["gradient above 3 σ", gradientThreeSigma],
    ...(alarms === null ? [] : readAlarms(alarms)),
  ];
  const judged = runs.map(outcomeOfRun);
  const isEarly = ({ outcome }: JudgedRun) => outcome.kind === "collapsed" && outcome.onset < EARLY_ONSETS;
  const parts = {
    ...(heldOut === null
      ? { "even seeds": others }
      : {
          "even seeds, other envs": others.filter((run) => !isHeldOut(run)),
          [`${heldOut}, held out`]: others.filter(isHeldOut),
          both: others,
        }),
    [`all of these except collapses in the first ${EARLY_ONSETS} updates`]: others.filter((run) => !isEarly(run)),
  };
  return {
    runs: judged,
    outcomes: outcomesOf(judged),
    // The chosen thresholds that differ from the default, the entropy floor in nats, and the number of runs on which they were chosen.
    chosen: { runs: chosenOn.length, collapsed: changesOf(rule), warning: changesOf(warningRule), floor },
    parts: Object.entries(parts).map(([of, some]) => {
      return { of, runs: some.length, rates: detectors.map(([alarm, first]) => ratesOf(some, alarm, first)) };
    }),
  };
}

export function ratesText({ outcomes, chosen, parts }: ReturnType<typeof ratesReport>): string {
  const { runs, ...choice } = chosen;
  const head = ["alarm", "true positives", "95 %", "false positives", "95 %", "median lead"];
  return [
    aligned([["runs", ...KINDS, "median onset"], ...outcomes.map(outcomeRow)]),
    `chosen on ${runs} runs: ${JSON.stringify(choice)}`,
    ...parts.map(({ of, runs, rates }) => `${of}: ${runs} runs\n${aligned([head, ...rates.map(rateRow)])}`),
  ].join("\n\n");
}

function readAlarms(path: string): [string, FirstAlarm][] {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw new UsageError(`cannot read the alarms ${path}: ${messageOf(error)}`);
  }
  const parsed = Alarms.safeParse(parsedJson(text));
  if (!parsed.success)
    throw new UsageError(`${path} is not a file of alarms; bench/peers/alarms.py writes such a file`);
  return Object.entries(parsed.data).map(([name, byRun]) => [name, ({ log }) => alarmOf(byRun, log.run, path)]);
}

function alarmOf(byRun: Readonly<Record<string, number | null>>, run: string, path: string): number | null {
  const alarm = byRun[run];
  if (alarm === undefined)
    throw new UsageError(`${path} has no entry for the run ${run}; make the file from the same logs`);
  return alarm;
}

/** `caught` and `falseAlarms` are collapsed runs with a true alarm and healthy runs with an alarm; `leads` are those of the true alarms. */
function ratesOf(part: readonly JudgedRun[], alarm: string, firstAlarm: FirstAlarm) {
  const rates = { alarm, collapsed: 0, caught: 0, healthy: 0, falseAlarms: 0, leads: [] as number[] };
  for (const run of part) {
    const { outcome } = run;
    if (outcome.kind === "unclear") continue;
    rates[outcome.kind]++;
    const at = firstAlarm(run);
    if (at === null) continue;
    if (outcome.kind === "healthy") rates.falseAlarms++;
    else if (at <= outcome.onset + LATE_MAX) rates.leads.push(outcome.onset - at);
  }
  rates.caught = rates.leads.length;
  return rates;
}

/** The candidate with the largest true positive rate minus false positive rate; if several have the same difference, the first. */
function bestOf<T>(candidates: readonly T[], detectorOf: (candidate: T) => Detector, on: readonly JudgedRun[]): T {
  const judged = candidates.map((candidate) => {
    const { collapsed, caught, healthy, falseAlarms } = ratesOf(on, "", detectorOf(candidate));
    return { candidate, quality: caught / Math.max(1, collapsed) - falseAlarms / Math.max(1, healthy) };
  });
  return judged.reduce((best, other) => (other.quality > best.quality ? other : best)).candidate;
}

/** Thresholds tried in every combination, each list with its default. */
const TRIED = {
  patience: [2, 3, 5],
  successShare: [0.5, 0.65],
  successFallAlone: [0.2, 0.15, 0.3],
  validityFall: [0.4, 0.1, 0.2],
  repetitionRise: [0.1, 0.05, 0.2],
  spreadShare: [0.3, 0.6],
  entropyRise: [20, 2, 5],
  surpriseRise: [2, 4, 16],
} as const satisfies Partial<Record<keyof TrapRule, readonly number[]>>;

/** The default comes first, so that a rule with equal rates does not replace the default. */
function trapRules(): TrapRule[] {
  const entries = Object.entries(TRIED);
  return entries.reduce<TrapRule[]>(
    (rules, [name, values]) => values.flatMap((value) => rules.map((rule) => ({ ...rule, [name]: value }))),
    [TRAP_RULE],
  );
}

function changesOf(rule: TrapRule) {
  const changed = ([name, value]: [string, number]) => value !== TRAP_RULE[name as keyof TrapRule];
  return Object.fromEntries(Object.entries(rule).filter(changed));
}

const KINDS = ["healthy", "collapsed", "unclear"] as const;

/** `onset` is the update at which success fell below half of its peak; null unless the run collapsed. */
const outcomeOfRun = ({ log, outcome }: JudgedRun) => ({
  run: log.run,
  outcome: outcome.kind,
  onset: outcome.kind === "collapsed" ? log.updates[outcome.onset]!.update : null,
});

/** Outcomes by setting, which is the folder's name without its seed. `onset` is the median onset; null if no run collapsed. */
function outcomesOf(runs: readonly ReturnType<typeof outcomeOfRun>[]) {
  return [...Map.groupBy(runs, ({ run }) => run.replace(/-s\d+$/, ""))].map(([setting, some]) => {
    const count = (kind: Outcome["kind"]) => some.filter(({ outcome }) => outcome === kind).length;
    const onsets = some.flatMap(({ onset }) => (onset === null ? [] : [onset]));
    const onset = onsets.length === 0 ? null : median(onsets);
    return { setting, healthy: count("healthy"), collapsed: count("collapsed"), unclear: count("unclear"), onset };
  });
}

const outcomeRow = ({ setting, onset, ...counts }: ReturnType<typeof outcomesOf>[number]): string[] => [
  setting,
  ...KINDS.map((kind) => String(counts[kind])),
  onset === null ? "–" : String(onset),
];

function rateRow({ alarm, collapsed, caught, healthy, falseAlarms, leads }: ReturnType<typeof ratesOf>): string[] {
  const positives = [`${caught}/${collapsed}`, intervalText(caught, collapsed)];
  const negatives = [`${falseAlarms}/${healthy}`, intervalText(falseAlarms, healthy)];
  return [alarm, ...positives, ...negatives, leads.length === 0 ? "–" : String(median(leads))];
}

function intervalText(hits: number, tries: number): string {
  if (tries === 0) return "–";
  const { low, high } = shareOf(hits, tries);
  return `${low.toFixed(2)} to ${high.toFixed(2)}`;
}
