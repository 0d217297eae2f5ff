/**
 * Draws metrics of recorded runs as one SVG: a panel for each metric, a line for each entry. Other files read and write files.
 *
 * - The line of an entry with several runs is their mean, with a band from the lowest to the highest value. The line has only the steps that
 *   all of these runs have.
 * - Each panel draws every run, or has a note that says why a run is missing.
 * - This file escapes all text that it gets, so a folder's name or a title never becomes markup. Equal input gives equal bytes.
 */

import { type Band, bandOf, thin } from "../../actors/dashboard/client/curve.ts";
import { visible } from "../../actors/dashboard/client/text.ts";
import type { Unit } from "../../actors/metrics/metric.ts";
import { type MetricName, metric } from "../../actors/metrics/metrics.ts";
import { percent, plural } from "../../actors/number-text.ts";
import { mean } from "../../model/statistics.ts";
import type { Entry } from "./entries.ts";

/** Width of the picture in pixels, narrow enough for a README to show it unscaled. */
const WIDTH = 900;
const MARGIN = 20;
const GAP = 12;
const PAD = 16;
const INNER = WIDTH - 2 * MARGIN;
/** Height of a panel's plot, without its head and its axis. */
const PLOT_HEIGHT = { wide: 260, small: 140 } as const;
const HEAD = 84;
const FOOT = 42;

/** The light colors of the page's style sheet. */
const INK = { paper: "#f5f2ec", card: "#fffdf9", ink: "#211f1b", muted: "#635e54", line: "#e6e0d4", note: "#b3391f" };
/** One color for each entry. Each color has a contrast of at least 4.5 on the card. */
const PALETTE = ["#b3391f", "#3d6f8c", "#935d0d", "#6d4a8c", "#2f6b3c", "#b0446e", "#1f6f6b", "#4a453c"];
export const ENTRIES_MAX = PALETTE.length;

const STYLE = `text{font-family:-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",system-ui,sans-serif;font-size:11px;font-variant-numeric:tabular-nums;fill:${INK.muted}}
.title{font-size:20px;font-weight:650;fill:${INK.ink}}
.head{font-size:13px;font-weight:650;fill:${INK.ink}}
.entry{font-size:13px;fill:${INK.ink}}
.note{fill:${INK.note}}
.curve{fill:none;stroke-linejoin:round}
.dashed{stroke-dasharray:6 4}`;

/** Metrics of the baselines, drawn in the panel of validation success only. */
export const BASELINES = { random: "baseline/random", "best possible": "baseline/best" } as const;
export const SUCCESS: MetricName = "validate/success";

type Attributes = Readonly<Record<string, string | number>>;

/** Does not escape the attributes, which are our own text. The children are markup. */
function element(name: string, attributes: Attributes, ...children: readonly string[]): string {
  const written = Object.entries(attributes).map(
    ([key, value]) => ` ${key}="${typeof value === "number" ? rounded(value) : value}"`,
  );
  return children.length === 0
    ? `<${name}${written.join("")}/>`
    : `<${name}${written.join("")}>${children.join("")}</${name}>`;
}
const words = (text: string, attributes: Attributes) => element("text", attributes, escaped(text));
const rounded = (value: number) => String(Math.round(value * 100) / 100);

const ESCAPES: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
/** Control characters become visible; XML allows neither U+FFFE nor U+FFFF. */
const escaped = (text: string) =>
  visible(text.replaceAll(/[\ufffe\uffff]/g, "\ufffd")).replaceAll(/[&<>"]/g, (char) => ESCAPES[char]!);

const shortened = (text: string, charsMax: number) =>
  text.length <= charsMax ? text : `${text.slice(0, charsMax - 1)}…`;

/** @param entries  at least one, at most `ENTRIES_MAX` */
export function picture(entries: readonly Entry[], metrics: readonly MetricName[], title: string | null): string {
  const runs = [...new Set(entries.flatMap((entry) => entry.runs))];
  const envs = [...new Set(runs.map(({ env }) => env))].join(", ");
  const shownTitle = title ?? envs;
  const subtitle = [
    ...(envs === shownTitle ? [] : [envs]),
    runs.length === 1 ? `run ${runs[0]!.name}` : `${runs.length} runs`,
    ...(entries.some((entry) => entry.runs.length > 1) ? ["line: mean over seeds; band: lowest to highest seed"] : []),
  ].join(" · ");
  const markup = [
    words(shortened(shownTitle, 70), { x: MARGIN, y: 42, class: "title" }),
    words(shortened(subtitle, 115), { x: MARGIN, y: 64, class: "entry" }),
    ...entries.flatMap((entry, i) => legendOf(entry, MARGIN + (i % 2) * (INNER / 2), 92 + 22 * (i >> 1), PALETTE[i]!)),
  ];
  let y = 92 + 22 * Math.ceil(entries.length / 2);
  for (const row of rowsOf(metrics)) {
    const width = (INNER - GAP * (row.columns - 1)) / row.columns;
    const height = HEAD + row.plotHeight + FOOT;
    for (const [i, name] of row.metrics.entries()) {
      markup.push(panelOf(name, entries, { x: MARGIN + i * (width + GAP), y, width, height }));
    }
    y += height + GAP;
  }
  const height = y - GAP + MARGIN;
  const described = `${shownTitle}: ${metrics.join(", ")} of ${entries.map(({ label }) => label).join(", ")}`;
  const size = { width: WIDTH, height, viewBox: `0 0 ${WIDTH} ${height}` };
  return `${element(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", ...size, role: "img" },
    element("title", {}, escaped(described)),
    element("style", {}, STYLE),
    element("rect", { width: WIDTH, height, fill: INK.paper }),
    ...markup,
  )}\n`;
}

function legendOf({ label, isGroup, isDashed, runs }: Entry, x: number, y: number, color: string): string[] {
  const seeds = isGroup ? ` (${plural(runs.length, "seed")})` : "";
  const swatch = { x1: x, y1: y - 4.5, x2: x + 18, y2: y - 4.5, stroke: color, "stroke-width": 3 };
  return [
    element("line", { ...swatch, class: isDashed ? "dashed" : "solid" }),
    words(shortened(label, 48) + seeds, { x: x + 26, y, class: "entry" }),
  ];
}

/**
 * Validation success as the first metric, or a single metric, has a wide row of its own. Four other panels make two rows of two, not a row
 * of three and a row of one.
 */
function rowsOf(metrics: readonly MetricName[]) {
  const first = metrics[0] === SUCCESS || metrics.length === 1 ? metrics.slice(0, 1) : [];
  const small = metrics.slice(first.length);
  const columns = small.length === 4 ? 2 : Math.min(3, small.length);
  const rows = Map.groupBy(small, (_, i) => Math.floor(i / columns)).values();
  return [
    ...(first.length === 0 ? [] : [{ metrics: first, plotHeight: PLOT_HEIGHT.wide, columns: 1 }]),
    ...rows.map((row) => ({ metrics: row, plotHeight: PLOT_HEIGHT.small, columns })),
  ];
}

interface Line extends Band {
  readonly color: string;
  readonly isDashed: boolean;
}

/** Baselines that differ by less than this, in the metric's unit, share one line. */
const SAME = 0.001;

/** One gray line if all entries share a baseline. Otherwise each entry has a line in its color. */
function baselinesOf(entries: readonly Entry[]) {
  return Object.entries(BASELINES).flatMap(([label, name]) => {
    const found = entries.flatMap(({ runs }, i) => {
      const values = runs.flatMap((run) => run.curve(name)?.values.at(-1) ?? []);
      return values.length === 0 ? [] : [{ label, value: mean(values), color: PALETTE[i]! }];
    });
    if (found.length === 0) return [];
    const values = found.map(({ value }) => value);
    const isShared = found.length === entries.length && Math.max(...values) - Math.min(...values) <= SAME;
    return isShared ? [{ ...found[0]!, color: INK.muted }] : found;
  });
}

type Box = Readonly<Record<"x" | "y" | "width" | "height", number>>;

function panelOf(name: MetricName, entries: readonly Entry[], box: Box): string {
  const { unit, help } = metric(name);
  const stepName = name.startsWith("warm/") ? "step of the warm start" : "update";
  const apart: string[] = [];
  const lines = entries.flatMap(({ label, isDashed, runs }, i) => {
    const curves = runs.flatMap((run) => run.curve(name) ?? []);
    const band = curves.length === 0 ? null : bandOf(curves);
    if (curves.length > 0 && band === null) apart.push(label);
    return band === null ? [] : { ...band, color: PALETTE[i]!, isDashed };
  });
  const notes: string[] = [];
  if (apart.length > 0)
    notes.push(`no mean of ${apart.join(", ")}: ${apart.length === 1 ? "its" : "their"} seeds share no ${stepName}`);
  const missing = entries.flatMap(({ label, runs }) => {
    const without = runs.filter((run) => run.curve(name) === null).map((run) => run.name);
    return without.length === runs.length ? [label] : without;
  });
  if (missing.length > 0) notes.push(`not recorded by ${[...new Set(missing)].join(", ")}`);
  const baselines = name === SUCCESS ? baselinesOf(entries) : [];
  const charsMax = Math.floor((box.width - 2 * PAD) / 5.6);
  // Three lines fit: two lines of help and one note, or one line of help and two notes.
  const helpLines = wrapped(help, charsMax);
  const shown = helpLines.slice(0, Math.min(2, 3 - notes.length));
  if (shown.length < helpLines.length) shown.push(`${wrapped(shown.pop()!, charsMax - 2)[0]} …`);
  const head = [...shown, ...notes.map((note) => shortened(note, charsMax))];
  const at = { x: box.x + PAD, y: box.y + 27, class: "head" };
  return element(
    "g",
    { "data-metric": name },
    element("rect", { ...box, rx: 14, fill: INK.card, stroke: INK.line }),
    words(unit === "number" ? name : `${name} (${unit})`, at),
    ...head.map((text, i) =>
      words(text, { x: at.x, y: at.y + 18 + 15 * i, class: i < shown.length ? "help" : "note" }),
    ),
    ...(lines.length > 0
      ? plotOf(lines, baselines, unit, stepName, box)
      : [words("no run recorded this metric", { x: at.x, y: box.y + box.height / 2 })]),
  );
}

function wrapped(text: string, charsMax: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const longer = lines.length === 0 ? word : `${lines.at(-1)} ${word}`;
    if (lines.length > 0 && longer.length <= charsMax) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

function plotOf(
  lines: readonly Line[],
  baselines: ReturnType<typeof baselinesOf>,
  unit: Unit,
  stepName: string,
  box: Box,
): string[] {
  const values = [...lines.flatMap(({ lows, highs }) => [...lows, ...highs]), ...baselines.map(({ value }) => value)];
  const y = axisOf(values, unit, 7);
  const lastStep = lines.reduce((last, { steps }) => Math.max(last, steps.at(-1)!), 1);
  // The labels of two ticks must differ, so percentages may need more digits.
  const digits = Math.max(0, Math.ceil(-Math.log10(100 * (y.ticks[1]! - y.ticks[0]!)) - 1e-9));
  const tickTexts = y.ticks.map((value) => valueText(value, unit, digits));
  const left = box.x + PAD + 8 + 6.5 * Math.max(...tickTexts.map((text) => text.length));
  const [right, top, bottom] = [box.x + box.width - PAD, box.y + HEAD, box.y + box.height - FOOT];
  const x = axisOf([0, lastStep], "updates", Math.floor((right - left) / 44));
  const xOf = (step: number) => left + (step / lastStep) * (right - left);
  const yOf = (value: number) => bottom - ((value - y.low) / (y.high - y.low)) * (bottom - top);
  const dashed = { "stroke-dasharray": "5 4", "stroke-width": 1.25 };
  return [
    ...y.ticks.flatMap((value, i) => [
      element("line", { x1: left, y1: yOf(value), x2: right, y2: yOf(value), stroke: INK.line }),
      words(tickTexts[i]!, { x: left - 8, y: yOf(value) + 4, "text-anchor": "end" }),
    ]),
    ...x.ticks
      .filter((step) => step <= lastStep && Number.isInteger(step))
      .map((step) => words(valueText(step, "updates"), { x: xOf(step), y: bottom + 16, "text-anchor": "middle" })),
    words(stepName, { x: (left + right) / 2, y: bottom + 31, "text-anchor": "middle" }),
    ...lines.flatMap((line) => lineMarkup(line, xOf, yOf, right - left)),
    ...baselines.flatMap(({ label, value, color }) => [
      element("line", { x1: left, y1: yOf(value), x2: right, y2: yOf(value), stroke: color, ...dashed }),
      ...(color === INK.muted
        ? [words(`${label} ${valueText(value, unit, 1)}`, { x: right, y: yOf(value) - 4, "text-anchor": "end" })]
        : []),
    ]),
  ];
}

function lineMarkup(
  { color, isDashed, steps, means, lows, highs }: Line,
  xOf: (step: number) => number,
  yOf: (value: number) => number,
  width: number,
): string[] {
  // Keeps the lowest, highest, first and last point of each column of pixels, so that the line and the band keep their spikes.
  const keptOf = (values: readonly number[]) => thin(steps, values, 4 * Math.floor(width)) ?? [...steps.keys()];
  const points = (values: readonly number[]) =>
    keptOf(values).map((i) => `${rounded(xOf(steps[i]!))},${rounded(yOf(values[i]!))}`);
  const kept = keptOf(means);
  const hasBand = steps.some((_, i) => lows[i] !== highs[i]);
  const band = [...points(lows), ...points(highs).reverse()].join(" ");
  const isDotted = width / kept.length >= 12;
  return [
    ...(hasBand ? [element("polygon", { points: band, fill: color, "fill-opacity": "0.15" })] : []),
    element("polyline", {
      points: points(means).join(" "),
      class: isDashed ? "curve dashed" : "curve",
      stroke: color,
      "stroke-width": 2,
    }),
    ...(isDotted ? kept : []).map((i) =>
      element("circle", { cx: xOf(steps[i]!), cy: yOf(means[i]!), r: 2.5, fill: color }),
    ),
  ];
}

/** An axis from tick to tick that covers the values. Zero is on the axis unless the values are far from zero. */
function axisOf(values: readonly number[], unit: Unit, ticksMax: number) {
  let low = values.reduce((least, value) => Math.min(least, value), Number.POSITIVE_INFINITY);
  let high = values.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
  if (low > 0 && (unit === "share" || low < high / 2)) low = 0;
  if (high < 0 && high > low / 2) high = 0;
  if (low === high) [low, high] = low === 0 ? [0, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  // The step is 1, 2 or 5 times a power of ten: the smallest such number that needs at most `ticksMax` ticks.
  const least = (high - low) / Math.max(1, ticksMax - 2);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= least * (1 - 1e-9)) ?? 10);
  const [first, last] = [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
  const ticks = Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
  return { low: ticks[0]!, high: ticks.at(-1)!, ticks };
}

/** @param digits  number of digits after the point of a percentage */
function valueText(value: number, unit: Unit, digits = 0): string {
  if (unit === "share") return percent(value, digits);
  const notation = Math.abs(value) >= 10_000 ? "compact" : "standard";
  return new Intl.NumberFormat("en", { notation, maximumSignificantDigits: 4 }).format(value).replace("-", "−");
}
