/**
 * How often each detector of a collapse is right: true and false positive rates over the runs of a log, with exact intervals.
 *
 *   bun bench/detector/rates.ts LOGS.parquet [--alarms ALARMS.json] [--held-out ENV]
 *
 * - Thresholds of Bunraku's detector and of the entropy floor are chosen on runs of odd seeds, without those of the env held out.
 *   The rates are of the other runs.
 * - A true positive is an alarm in a collapsed run, up to ten updates after success fell below half of its peak. The lead is the
 *   number of updates from the alarm to that moment.
 * - ALARMS.json is what bench/peers/alarms.py writes: first alarms of detectors in Python, by detector and run.
 */
import { parseArgs } from "node:util";
import { TRAP_RULE, type TrapRule } from "../../model/health/echo-trap/echo-trap.ts";
import { aligned } from "../../scripts/cli/aligned.ts";
import { shareOf } from "../../scripts/sweep/interval.ts";
import { bunraku, type Detector, entropyFloor, gradientThreeSigma, ragen } from "./alarms.ts";
import { type RunLog, readLogs } from "./logs.ts";
import { type Outcome, outcomeOf } from "./outcome.ts";

/** An alarm so many updates after the onset still counts as true. */
const LATE_MAX = 10;

interface Judged {
  readonly log: RunLog;
  readonly outcome: Outcome;
}

interface Rates {
  /** Alarms in collapsed runs, and in healthy ones. */
  readonly caught: number;
  readonly collapsed: number;
  readonly raised: number;
  readonly healthy: number;
  /** Updates from the true alarms to the onset; negative if the alarm came later. */
  readonly leads: readonly number[];
}

const HEAD = ["detector", "true positives", "95 %", "false positives", "95 %", "median lead"];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { alarms: { type: "string" }, "held-out": { type: "string", default: "FrozenLake" } },
});
const [path] = positionals;
if (path === undefined) throw new Error("usage: rates.ts LOGS.parquet [--alarms ALARMS.json] [--held-out ENV]");
const heldOut = values["held-out"];
const runs: Judged[] = readLogs(path).map((log) => ({
  log,
  outcome: outcomeOf(log.updates.map(({ values }) => values["train/success"]!)),
}));
const chosenOn = runs.filter(({ log }) => log.seed % 2 === 1 && log.env !== heldOut);
const reportedOn = runs.filter((run) => !chosenOn.includes(run));

console.log(aligned(outcomeRows(runs)));
const rule = bestOf(trapRules(), (candidate) => bunraku(["collapsed", "warning"], candidate));
const ruleCollapsed = bestOf(trapRules(), (candidate) => bunraku(["collapsed"], candidate));
const floor = bestOf([0.02, 0.05, 0.1, 0.15, 0.2, 0.3], entropyFloor);
console.log(
  `\nchosen on ${chosenOn.length} runs: ${JSON.stringify({ rule: changesOf(rule), ruleCollapsed: changesOf(ruleCollapsed), floor })}\n`,
);
const detectors: [string, (log: RunLog) => number | null][] = [
  ["bunraku, collapsed, default", byValues(bunraku(["collapsed"]))],
  ["bunraku, warning or collapsed, default", byValues(bunraku(["collapsed", "warning"]))],
  ["bunraku, collapsed, chosen", byValues(bunraku(["collapsed"], ruleCollapsed))],
  ["bunraku, warning or collapsed, chosen", byValues(bunraku(["collapsed", "warning"], rule))],
  ["RAGEN-2's early stops", byValues(ragen)],
  [`entropy below ${floor} nats`, byValues(entropyFloor(floor))],
  ["gradient above 3 σ", byValues(gradientThreeSigma)],
];
if (values.alarms !== undefined) {
  const alarms = (await Bun.file(values.alarms).json()) as Record<string, Record<string, number | null>>;
  for (const [name, byRun] of Object.entries(alarms)) detectors.push([name, ({ run }) => byRun[run] ?? null]);
}
for (const [where, part] of [
  ["other seeds", reportedOn.filter(({ log }) => log.env !== heldOut)],
  [`${heldOut}, held out`, reportedOn.filter(({ log }) => log.env === heldOut)],
  ["both", reportedOn],
] as const) {
  console.log(`${where}: ${part.length} runs`);
  console.log(`${aligned([HEAD, ...detectors.map(([name, detector]) => rateRow(name, ratesOf(part, detector)))])}\n`);
}

function byValues(detector: Detector): (log: RunLog) => number | null {
  return ({ updates }) => detector(updates.map(({ values }) => values));
}

function ratesOf(part: readonly Judged[], detector: (log: RunLog) => number | null): Rates {
  let [caught, collapsed, raised, healthy] = [0, 0, 0, 0];
  const leads: number[] = [];
  for (const { log, outcome } of part) {
    if (outcome.kind === "unclear") continue;
    const alarm = detector(log);
    if (outcome.kind === "healthy") {
      healthy++;
      if (alarm !== null) raised++;
      continue;
    }
    collapsed++;
    if (alarm === null || alarm > outcome.onset + LATE_MAX) continue;
    caught++;
    leads.push(outcome.onset - alarm);
  }
  return { caught, collapsed, raised, healthy, leads };
}

/** The candidate with the largest true minus false positive rate on the runs to choose on; the first of equals. */
function bestOf<T>(candidates: readonly T[], detectorOf: (candidate: T) => Detector): T {
  const quality = (candidate: T) => {
    const { caught, collapsed, raised, healthy } = ratesOf(chosenOn, byValues(detectorOf(candidate)));
    return caught / Math.max(1, collapsed) - raised / Math.max(1, healthy);
  };
  return candidates
    .map((candidate) => [candidate, quality(candidate)] as const)
    .reduce((a, b) => (b[1] > a[1] ? b : a))[0];
}

/** The default rule first, so that an equal one does not replace it. */
function trapRules(): TrapRule[] {
  const rules: TrapRule[] = [TRAP_RULE];
  for (const patience of [3, 2, 5])
    for (const successShare of [0.65, 0.5, 0.8])
      for (const validityFall of [0.2, 0.1, 0.4])
        for (const repetitionRise of [0.1, 0.05, 0.2])
          for (const spreadShare of [0.6, 0.3])
            for (const entropyRise of [2, 3]) {
              const entropyShare = spreadShare === 0.6 ? 0.25 : 0.1;
              rules.push({
                ...TRAP_RULE,
                patience,
                successShare,
                validityFall,
                repetitionRise,
                spreadShare,
                entropyRise,
                entropyShare,
              });
            }
  return rules;
}

function changesOf(rule: TrapRule) {
  return Object.fromEntries(
    Object.entries(rule).filter(([name, value]) => value !== TRAP_RULE[name as keyof TrapRule]),
  );
}

function outcomeRows(all: readonly Judged[]): string[][] {
  const groups = [...new Set(all.map(({ log }) => log.run.replace(/-s\d+$/, "")))];
  const count = (group: string, kind: Outcome["kind"]) =>
    all.filter(({ log, outcome }) => log.run.replace(/-s\d+$/, "") === group && outcome.kind === kind).length;
  const kinds = ["healthy", "collapsed", "unclear"] as const;
  return [["runs", ...kinds], ...groups.map((group) => [group, ...kinds.map((kind) => String(count(group, kind)))])];
}

function rateRow(name: string, { caught, collapsed, raised, healthy, leads }: Rates): string[] {
  const middle = leads.toSorted((a, b) => a - b)[Math.floor(leads.length / 2)];
  return [
    name,
    `${caught}/${collapsed}`,
    interval(caught, collapsed),
    `${raised}/${healthy}`,
    interval(raised, healthy),
    String(middle ?? "–"),
  ];
}

function interval(count: number, of: number): string {
  if (of === 0) return "–";
  const { low, high } = shareOf(count, of);
  return `${low.toFixed(2)} to ${high.toFixed(2)}`;
}
