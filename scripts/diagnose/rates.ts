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

export interface RatesOptions {
  readonly heldOut: string | null;
  /** A file of first alarms of other detectors. */
  readonly alarms: string | null;
}

interface JudgedRun {
  readonly log: RunLog;
  readonly updates: readonly LoggedUpdate[];
  readonly outcome: Outcome;
}

type FirstAlarm = (run: JudgedRun) => number | null;

interface Rates {
  readonly alarm: string;
  readonly collapsed: number;
  /** Collapsed runs with a true alarm. */
  readonly caught: number;
  readonly healthy: number;
  /** Healthy runs with an alarm. */
  readonly falseAlarms: number;
  /** Leads of the true alarms, in updates. */
  readonly leads: readonly number[];
}

interface OutcomeOfRun {
  readonly run: string;
  readonly outcome: Outcome["kind"];
  /** The update at which success fell below half of its peak; null unless the run collapsed. */
  readonly onset: number | null;
}

interface OutcomesOfSetting extends Readonly<Record<Outcome["kind"], number>> {
  readonly setting: string;
  /** Median onset of the collapsed runs; null if none collapsed. */
  readonly onset: number | null;
}

export interface RatesReport {
  readonly runs: readonly OutcomeOfRun[];
  /** Runs by setting, which is the folder's name without its seed. */
  readonly outcomes: readonly OutcomesOfSetting[];
  /** The chosen thresholds that differ from the default, the chosen entropy floor in nats, and the number of runs on which they were chosen. */
  readonly chosen: {
    readonly runs: number;
    readonly collapsed: object;
    readonly warning: object;
    readonly floor: number;
  };
  readonly parts: readonly { readonly of: string; readonly runs: number; readonly rates: readonly Rates[] }[];
}

export function ratesReport(logs: readonly RunLog[], { heldOut, alarms }: RatesOptions): RatesReport {
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
  const part = (of: string, some: readonly JudgedRun[]) => {
    return { of, runs: some.length, rates: detectors.map(([alarm, first]) => ratesOf(some, alarm, first)) };
  };
  const judged = runs.map(outcomeOfRun);
  const isEarly = ({ outcome }: JudgedRun) => outcome.kind === "collapsed" && outcome.onset < EARLY_ONSETS;
  const later = part(
    `all of these except collapses in the first ${EARLY_ONSETS} updates`,
    others.filter((run) => !isEarly(run)),
  );
  return {
    runs: judged,
    outcomes: outcomesOf(judged),
    chosen: { runs: chosenOn.length, collapsed: changesOf(rule), warning: changesOf(warningRule), floor },
    parts:
      heldOut === null
        ? [part("even seeds", others), later]
        : [
            part(
              "even seeds, other envs",
              others.filter((run) => !isHeldOut(run)),
            ),
            part(`${heldOut}, held out`, others.filter(isHeldOut)),
            part("both", others),
            later,
          ],
  };
}

export function ratesText({ outcomes, chosen, parts }: RatesReport): string {
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

function ratesOf(part: readonly JudgedRun[], name: string, firstAlarm: FirstAlarm): Rates {
  let [collapsed, caught, healthy, falseAlarms] = [0, 0, 0, 0];
  const leads: number[] = [];
  for (const run of part) {
    const { outcome } = run;
    if (outcome.kind === "unclear") continue;
    const alarm = firstAlarm(run);
    if (outcome.kind === "healthy") {
      healthy++;
      if (alarm !== null) falseAlarms++;
      continue;
    }
    collapsed++;
    if (alarm === null || alarm > outcome.onset + LATE_MAX) continue;
    caught++;
    leads.push(outcome.onset - alarm);
  }
  return { alarm: name, collapsed, caught, healthy, falseAlarms, leads };
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

const outcomeOfRun = ({ log, outcome }: JudgedRun): OutcomeOfRun => ({
  run: log.run,
  outcome: outcome.kind,
  onset: outcome.kind === "collapsed" ? log.updates[outcome.onset]!.update : null,
});

function outcomesOf(runs: readonly OutcomeOfRun[]): RatesReport["outcomes"] {
  const settingOf = ({ run }: OutcomeOfRun) => run.replace(/-s\d+$/, "");
  return [...Map.groupBy(runs, settingOf)].map(([setting, some]) => {
    const count = (kind: Outcome["kind"]) => some.filter(({ outcome }) => outcome === kind).length;
    const onsets = some.flatMap(({ onset }) => (onset === null ? [] : [onset]));
    const onset = onsets.length === 0 ? null : median(onsets);
    return { setting, healthy: count("healthy"), collapsed: count("collapsed"), unclear: count("unclear"), onset };
  });
}

const outcomeRow = ({ setting, onset, ...counts }: OutcomesOfSetting): string[] => [
  setting,
  ...KINDS.map((kind) => String(counts[kind])),
  onset === null ? "–" : String(onset),
];

function rateRow({ alarm, collapsed, caught, healthy, falseAlarms, leads }: Rates): string[] {
  const positives = [`${caught}/${collapsed}`, intervalText(caught, collapsed)];
  const negatives = [`${falseAlarms}/${healthy}`, intervalText(falseAlarms, healthy)];
  return [alarm, ...positives, ...negatives, leads.length === 0 ? "–" : String(median(leads))];
}

function intervalText(hits: number, tries: number): string {
  if (tries === 0) return "–";
  const { low, high } = shareOf(hits, tries);
  return `${low.toFixed(2)} to ${high.toFixed(2)}`;
}
