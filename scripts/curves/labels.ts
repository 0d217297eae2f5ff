/**
 * Names on the picture: at the ends of curves, of marks, and the legend. Knows no runs and no files.
 *
 * - Labels beside curves never overlap; one that had to move is joined to its curve by a thin line.
 */
import type { Unit } from "../../actors/metrics/metric.ts";
import type { Colored, Contents, Mark } from "./contents.ts";
import type { Plot } from "./panel.ts";
import { element, escapeText, INK, polyline, shorten, widthOf, words } from "./svg.ts";

/** Of the text, and of what its bold letters take. */
const LABEL_PX = 12 * 1.12;
const LABEL_APART = 16;
const LABEL_WIDTH_MAX = 220;
/** From the end of a curve to its label. */
const LABEL_GAP = 16;

interface Label {
  readonly text: string;
  readonly color: string;
  /** In the metric's unit. */
  readonly value: number;
  /** Where the curve ends; null is the right end of the plot. */
  readonly step: number | null;
}

function labelsOf({ lines, guides, unit }: Pick<Contents, "lines" | "guides" | "unit">): Label[] {
  const curves = lines.filter(({ kind }) => kind === "main");
  const last = Math.max(...lines.map(({ curve }) => curve.steps.at(-1)!));
  return [
    ...curves.map(({ entry, curve }) => {
      const [value, step] = [curve.values.at(-1)!, curve.steps.at(-1)!];
      // A value of an earlier update is not to be compared with the others unawares.
      const number = valueText(value, unit) + (step < last ? ` at ${step}` : "");
      return { ...fitted(entry.label, number), value, color: entry.color, step };
    }),
    ...guides
      .filter(({ color }) => color === null)
      .map(({ name, value }) => {
        return {
          ...fitted(name, valueText(value, unit)),
          value,
          color: name === "random" ? INK.muted : INK.good,
          step: null,
        };
      }),
  ];
}

/** The name gives way to the number. */
function fitted(name: string, number: string): { text: string } {
  return { text: `${shorten(name, LABEL_PX, LABEL_WIDTH_MAX - widthOf(` ${number}`, LABEL_PX))} ${number}` };
}

/** One value for people: a share in percent with one decimal, anything else with three digits. */
function valueText(value: number, unit: Unit): string {
  if (unit === "share") return `${(100 * value).toFixed(1)} %`;
  const text = Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
  return text.replace("-", "−");
}

export const labelWidth = (contents: Pick<Contents, "lines" | "guides" | "unit">) =>
  LABEL_GAP + Math.max(0, ...labelsOf(contents).map(({ text }) => widthOf(text, LABEL_PX)));

export function endLabels(contents: Contents, plot: Plot): string[] {
  const labels = labelsOf(contents).sort((a, b) => b.value - a.value);
  const wanted = labels.map(({ value }) => plot.yOf(value));
  const placed = spread(wanted, LABEL_APART, plot.top, plot.bottom);
  return labels.flatMap(({ text, color, step }, i) => {
    const [from, to] = [wanted[i]!, placed[i]!];
    const end = step === null ? plot.right : plot.xOf(step);
    const moved = Math.abs(to - from) > 1 || plot.right - end > 1;
    const joint = polyline(
      [
        [end + 4, from],
        [Math.max(end + 4, plot.right + 2), from],
        [plot.right + LABEL_GAP - 4, to],
      ],
      {
        stroke: color,
        "stroke-opacity": 0.5,
        "stroke-dasharray": plot.right - end > 1 ? "1 4" : undefined,
      },
    );
    const label = { x: plot.right + LABEL_GAP, y: to + 4, class: "label", style: `fill:${color}` };
    return [...(moved ? [joint] : []), words(text, label)];
  });
}

/** Move ascending positions apart, as little as that takes, and keep them between two ends if there is room. */
function spread(wanted: readonly number[], apart: number, top: number, bottom: number): number[] {
  const placed = [...wanted];
  for (let i = 1; i < placed.length; i++) placed[i] = Math.max(placed[i]!, placed[i - 1]! + apart);
  for (let i = placed.length - 1, max = bottom; i >= 0; i--, max = placed[i + 1]! - apart) {
    placed[i] = Math.min(placed[i]!, max);
  }
  for (let i = 0, min = top; i < placed.length; i++, min = placed[i - 1]! + apart)
    placed[i] = Math.max(placed[i]!, min);
  return placed;
}

export function markSymbol(name: Mark["name"], x: number, y: number, color: string): string {
  const look = { fill: INK.card, stroke: color, "stroke-width": 1.75 };
  if (name === "before") return element("circle", { cx: x, cy: y, r: 4, ...look });
  return element("path", { d: `M${x} ${y - 5.5}l5.5 5.5l-5.5 5.5l-5.5 -5.5z`, ...look });
}

/**
 * What the marks are, and lines that have no label of their own, as the inside of a text; empty if there are none.
 * With values if there is one entry.
 */
export function markKey({ marks, guides, unit }: Contents): string {
  const symbols = { taught: "◇", before: "○" } as const;
  const keys = [...new Set(marks.map(({ name }) => name))].map((name) => {
    const [mark, other] = marks.filter((one) => one.name === name);
    return other === undefined
      ? { symbol: symbols[name], tone: mark!.color, text: `${name} ${valueText(mark!.value, unit)}` }
      : { symbol: symbols[name], tone: INK.muted, text: name };
  });
  const unnamed = new Set(guides.filter(({ color }) => color !== null).map(({ name }) => name));
  return [...keys, ...[...unnamed].map((text) => ({ symbol: "╌╌", tone: INK.muted, text }))]
    .map(
      ({ symbol, tone, text }, i) =>
        element("tspan", { style: `fill:${tone}`, dx: i === 0 ? undefined : 12 }, symbol) +
        element("tspan", { class: "muted", dx: 4 }, escapeText(text)),
    )
    .join("");
}

/** A line and a label for each entry, in as many rows as they need. */
export function legend(
  entries: readonly Colored[],
  x: number,
  y: number,
  width: number,
): { markup: string[]; height: number } {
  const rowHeight = 22;
  let [left, row] = [0, 0];
  const markup = entries.flatMap(({ label, color, group, runs }) => {
    const seeds = group ? ` (${runs.length} ${runs.length === 1 ? "seed" : "seeds"})` : "";
    const text = shorten(label, 13, width - 40 - widthOf(seeds, 13)) + seeds;
    const room = 26 + widthOf(text, 13) + 20;
    if (left > 0 && left + room - 20 > width) [left, row] = [0, row + 1];
    const [at, line] = [x + left, y + row * rowHeight];
    left += room;
    return [
      polyline(
        [
          [at, line - 4.5],
          [at + 18, line - 4.5],
        ],
        { stroke: color, "stroke-width": 3 },
      ),
      words(text, { x: at + 26, y: line, class: "entry" }),
    ];
  });
  return { markup, height: (row + 1) * rowHeight };
}
