/**
 * What one panel shows of which metric: lines, guides, marks, and what has to be said because it cannot be shown.
 * Knows no positions and no SVG.
 *
 * - Every run of every entry is a line, or is named in a note.
 */
import type { Unit } from "../../actors/metrics/metric.ts";
import { type MetricName, metric } from "../../actors/metrics/metrics.ts";
import { type Curve, meanCurve } from "./curve.ts";
import type { Entry, Run } from "./runs.ts";

export interface Colored extends Entry {
  readonly color: string;
}

export interface Line {
  readonly entry: Colored;
  readonly curve: Curve;
  /** A seed is drawn thin beside the mean of its group. */
  readonly kind: "seed" | "main";
}

/** A dashed line across the panel. */
export interface Guide {
  readonly name: "random" | "best possible";
  readonly value: number;
  /** null if all entries share it. */
  readonly color: string | null;
}

/** Where an entry stood before its first update. */
export interface Mark {
  readonly name: "taught" | "before";
  readonly value: number;
  readonly color: string;
}

export interface Contents {
  readonly metric: MetricName;
  readonly unit: Unit;
  readonly help: string;
  readonly stepName: "update" | "step of the warm start";
  readonly lines: readonly Line[];
  readonly guides: readonly Guide[];
  readonly marks: readonly Mark[];
  readonly notes: readonly string[];
}

/** The metric that has guides and marks, and where they are recorded. */
export const SUCCESS: MetricName = "validate/success";
const GUIDES = { random: "baseline/random", "best possible": "baseline/best" } as const;
const MARKS = { taught: "baseline/taught", before: "baseline/before" } as const;

/** Everything that has to be read from a run to draw these metrics. */
export const neededFor = (metrics: readonly MetricName[]): MetricName[] => [
  ...new Set([...metrics, ...(metrics.includes(SUCCESS) ? [...Object.values(GUIDES), ...Object.values(MARKS)] : [])]),
];

export function contentsOf(name: MetricName, entries: readonly Colored[]): Contents {
  const { unit, help } = metric(name);
  const drawn = entries.map((entry) => linesOf(name, entry));
  const missing = entries.flatMap((entry) => entry.runs.filter((run) => run.curve(name) === null));
  const apart = entries.filter((_, i) => drawn[i]!.length > 0 && drawn[i]!.every(({ kind }) => kind === "seed"));
  const any = drawn.some((lines) => lines.length > 0);
  return {
    metric: name,
    unit,
    help,
    stepName: name.startsWith("warm/") ? "step of the warm start" : "update",
    // Seeds first, so that no mean lies below one.
    lines: ["seed", "main"].flatMap((kind) => drawn.flat().filter((line) => line.kind === kind)),
    guides: name === SUCCESS ? guidesOf(entries) : [],
    marks: name === SUCCESS ? marksOf(entries) : [],
    notes: [
      ...(any && missing.length > 0 ? [`not recorded by ${namesOf(missing)}`] : []),
      ...apart.map(
        ({ label }) => `no mean of ${label}: its seeds share no ${name.startsWith("warm/") ? "step" : "update"}`,
      ),
    ],
  };
}

const namesOf = (runs: readonly Run[]) => [...new Set(runs.map(({ name }) => name))].join(", ");

function linesOf(name: MetricName, entry: Colored): Line[] {
  const curves = entry.runs.map((run) => run.curve(name)).filter((curve) => curve !== null);
  if (curves.length === 1) return [{ entry, curve: curves[0]!, kind: "main" }];
  const mean = meanCurve(curves);
  return [
    ...curves.map((curve): Line => ({ entry, curve, kind: "seed" })),
    ...(mean.steps.length > 0 ? [{ entry, curve: mean, kind: "main" } as const] : []),
  ];
}

/** The mean of a run's one value over the runs that have it; null if none has. */
function meanOf(name: MetricName, { runs }: Entry): number | null {
  const values = runs.map((run) => run.curve(name)?.values.at(-1)).filter((value) => value !== undefined);
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Closer than this, two baselines are one line: a fifth of a pixel. */
const SAME_SHARE = 0.001;

function guidesOf(entries: readonly Colored[]): Guide[] {
  return Object.entries(GUIDES).flatMap(([name, recorded]): Guide[] => {
    const found = entries.flatMap((entry) => {
      const value = meanOf(recorded, entry);
      return value === null ? [] : [{ name: name as Guide["name"], value, color: entry.color }];
    });
    if (found.length === 0) return [];
    const values = found.map(({ value }) => value);
    const same = Math.max(...values) - Math.min(...values) <= SAME_SHARE;
    return same ? [{ ...found[0]!, color: null }] : found;
  });
}

function marksOf(entries: readonly Colored[]): Mark[] {
  return Object.entries(MARKS).flatMap(([name, recorded]) =>
    entries.flatMap((entry): Mark[] => {
      const value = meanOf(recorded, entry);
      return value === null ? [] : [{ name: name as Mark["name"], value, color: entry.color }];
    }),
  );
}
