/**
 * One panel: a card with a metric's name, what it means, its curves and axes. Knows no runs and no files.
 *
 * - Text takes the lines it needs: `headHeight` says how many pixels, so that panels of a row can agree.
 * - Nothing is clipped: the axes cover every value, guide and mark.
 */
import type { Contents } from "./contents.ts";
import { type Axis, type Pixel, stepAxis, thin, valueAxis } from "./curve.ts";
import { endLabels, labelWidth, markKey, markSymbol } from "./labels.ts";
import { element, escapeText, INK, line, polyline, widthOf, words, wrap } from "./svg.ts";

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** Where values lie on the picture. */
export interface Plot {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
  readonly x: Axis;
  readonly y: Axis;
  readonly xOf: (step: number) => number;
  readonly yOf: (value: number) => number;
}

const PAD = 16;
const TEXT_LINE = 15;
/** Below the plot: tick labels and the axis title. */
const FOOT = 42;
/** A curve gets a dot for each point if they are on average so many pixels apart. */
const DOTS_APART = 12;

/** Pixels above the plot: the name, what it means, what is not shown. */
export const headHeight = (contents: Contents, width: number, wide: boolean) =>
  50 + TEXT_LINE * headLines(contents, width, wide).length;

function headLines(contents: Contents, width: number, wide: boolean): string[] {
  const lines = (text: string, look: string) =>
    wrap(text, 11, width - 2 * PAD).map((words) => element("tspan", { class: look }, escapeText(words)));
  return [
    ...lines(contents.help, "muted"),
    ...(wide || markKey(contents) === "" ? [] : [markKey(contents)]),
    ...contents.notes.flatMap((note) => lines(note, "note")),
  ];
}

/**
 * @param head pixels above the plot, at least `headHeight`
 * @param wide with labels at the ends of the curves
 * @param lastStep where the axis of updates ends
 */
export function panel(contents: Contents, box: Box, head: number, wide: boolean, lastStep: number): string {
  const { x, y, width, height } = box;
  const card = {
    x: x + 0.5,
    y: y + 0.5,
    width: width - 1,
    height: height - 1,
    rx: 14,
    fill: INK.card,
    stroke: INK.line,
  };
  const unit = contents.unit === "number" ? [] : [element("tspan", { class: "unit", dx: 7 }, contents.unit)];
  const key = wide && markKey(contents) !== "" ? [markKey(contents)] : [];
  return element(
    "g",
    { "data-metric": contents.metric },
    element("rect", card),
    element("text", { x: x + PAD, y: y + 27, class: "head" }, contents.metric, ...unit),
    ...key.map((text) => element("text", { x: x + width - PAD, y: y + 27, "text-anchor": "end" }, text)),
    ...headLines(contents, width, wide).map((text, i) =>
      element("text", { x: x + PAD, y: y + 45 + TEXT_LINE * i }, text),
    ),
    ...plotted(contents, box, head, wide, lastStep),
  );
}

function plotted(contents: Contents, box: Box, head: number, wide: boolean, lastStep: number): string[] {
  const frame = {
    left: box.x + PAD,
    right: box.x + box.width - PAD,
    top: box.y + head,
    bottom: box.y + box.height - FOOT,
  };
  if (contents.lines.length === 0) {
    const middle = { x: (frame.left + frame.right) / 2, y: (frame.top + frame.bottom) / 2 };
    return [words("none of the runs recorded this", { ...middle, class: "muted", "text-anchor": "middle" })];
  }
  const plot = plotOf(contents, frame, wide, lastStep);
  return [
    ...grid(plot, contents.stepName),
    ...guides(contents, plot, wide),
    ...contents.lines.flatMap(({ entry, curve, kind }) => {
      const points = curve.steps.map((step, i): Pixel => [plot.xOf(step), plot.yOf(curve.values[i]!)]);
      return curveMarkup(points, entry.color, kind === "seed", wide);
    }),
    ...contents.marks.map(({ name, value, color }) => markSymbol(name, plot.xOf(0), plot.yOf(value), color)),
    ...(wide ? endLabels(contents, plot) : []),
  ];
}

function plotOf(
  { lines, guides, marks, unit, stepName }: Contents,
  { left, right, top, bottom }: Pick<Plot, "left" | "right" | "top" | "bottom">,
  wide: boolean,
  lastUpdate: number,
): Plot {
  const values = [...lines.flatMap(({ curve }) => curve.values), ...[...guides, ...marks].map(({ value }) => value)];
  const y = valueAxis(values, unit, wide ? 7 : 6);
  const plotLeft = left + Math.max(...y.ticks.map(({ text }) => widthOf(text, 11))) + 8;
  const plotRight = right - (wide ? labelWidth({ lines, guides, unit }) : 6);
  const last = stepName === "update" ? lastUpdate : Math.max(...lines.map(({ curve }) => curve.steps.at(-1)!));
  const x = stepAxis(last, Math.max(2, Math.floor((plotRight - plotLeft) / (wide ? 52 : 44))));
  return {
    left: plotLeft,
    right: plotRight,
    top,
    bottom,
    x,
    y,
    xOf: (step) => plotLeft + ((step - x.low) / (x.high - x.low)) * (plotRight - plotLeft),
    yOf: (value) => bottom - ((value - y.low) / (y.high - y.low)) * (bottom - top),
  };
}

function grid({ left, right, bottom, x, y, xOf, yOf }: Plot, stepName: string): string[] {
  return [
    ...y.ticks.flatMap(({ value, text }) => [
      line(left, yOf(value), right, yOf(value), { stroke: value === 0 ? INK.edge : INK.line }),
      words(text, { x: left - 8, y: yOf(value) + 4, class: "muted", "text-anchor": "end" }),
    ]),
    line(left, bottom, right, bottom, { stroke: INK.edge }),
    ...x.ticks.flatMap(({ value, text }) => [
      line(xOf(value), bottom, xOf(value), bottom + 4, { stroke: INK.edge }),
      words(text, { x: xOf(value), y: bottom + 16, class: "muted", "text-anchor": "middle" }),
    ]),
    words(stepName, { x: (left + right) / 2, y: bottom + 31, class: "muted", "text-anchor": "middle" }),
  ];
}

/** Beside its curves a wide panel names them; another has the names on the lines, if all entries share them. */
function guides({ guides }: Contents, { left, right, yOf }: Plot, wide: boolean): string[] {
  return guides.flatMap(({ name, value, color }) => {
    const tone = color ?? (name === "random" ? INK.muted : INK.good);
    const at = yOf(value);
    const dashed = line(left, at, right, at, { stroke: tone, "stroke-width": 1.25, "stroke-dasharray": "5 4" });
    if (wide || color !== null) return [dashed];
    return [dashed, words(name, { x: right, y: at - 4, style: `fill:${tone}`, "text-anchor": "end" })];
  });
}

function curveMarkup(points: readonly Pixel[], color: string, thinLine: boolean, wide: boolean): string[] {
  const look = thinLine
    ? { class: "curve", stroke: color, "stroke-width": 1, "stroke-opacity": 0.4 }
    : { class: "curve", stroke: color, "stroke-width": wide ? 2.25 : 1.6 };
  const span = points.at(-1)![0] - points[0]![0];
  const dotted = !thinLine && span >= DOTS_APART * (points.length - 1);
  const dots = dotted || points.length === 1 ? points : [];
  return [
    polyline(thin(points), look),
    ...dots.map(([cx, cy]) => element("circle", { cx, cy, r: wide ? 3 : 2, fill: color })),
  ];
}
