/**
 * One chart: draws this run's lines, the lines of compared runs, and guides (dashed lines across the chart), in the page's colors. The
 * caller gives the curves; this file reads no API.
 *
 * - While the pointer is over a chart, all charts show their values at the same update. Charts of the warm start take no part, because their
 *   steps are not updates.
 * - Sizes come from the style sheet, so nothing moves when values arrive.
 * - The chart redraws when a value that it shows has changed, at most once a frame.
 */
import { type ChartSpec, type LineSpec, PLACES, type XAxis } from "./charts.ts";
import { align, Curve, smoothed } from "./curve.ts";
import { byId, make } from "./dom.ts";

type Curves = ReadonlyMap<string, Curve>;

/** What charts show together with the page's own run: another run, or the mean of runs that differ only in their seeds. */
export interface ComparedRun {
  readonly name: string;
  readonly color: string;
  readonly curves: Curves;
  /** Lowest and highest values of the seeds; null for one run. */
  readonly band: { readonly lows: Curves; readonly highs: Curves } | null;
}

export interface Look {
  smoothing: number;
  isLogarithmic: boolean;
  xAxis: XAxis;
  runs: readonly ComparedRun[];
}

/** Minimum length of an axis of updates or of warm-start steps, so that the first values do not fill the whole width. */
const UPDATES_MIN = 10;
/** Width of a character of an axis label, in pixels; most characters are narrower. */
const CHARACTER_WIDTH = 7;
const BAND_ALPHA = "2e";

/** Value of a custom property of the style sheet. */
const property = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  readonly #id: string;
  readonly #spec: ChartSpec;
  readonly #curves: Curves;
  readonly #look: Readonly<Look>;
  readonly #place: HTMLElement;
  #plot: uPlot;
  #isWaiting = false;
  /** Curves whose values the legend shows: this run's, then one of each compared run. `#legend` has the elements for these values. */
  #shown: readonly Curve[] = [];
  #legend: readonly HTMLElement[] = [];

  /** @param look  settings that all charts share; call `rebuild` after a change */
  constructor(id: string, spec: ChartSpec, curves: Curves, look: Readonly<Look>) {
    this.#id = id;
    this.#spec = spec;
    this.#curves = curves;
    this.#look = look;
    this.#place = byId(`${id}-plot`);
    this.#plot = this.#build();
    new ResizeObserver(() => this.#resize()).observe(this.#place);
  }

  /** Call after a change of colors, lines or the axis. */
  rebuild(): void {
    this.#plot.destroy();
    this.#plot = this.#build();
  }

  redrawSoon(): void {
    const hasValues = this.#spec.lines.some(({ name }) => (this.#curves.get(name)?.last ?? null) !== null);
    if (hasValues) this.#place.closest("section")!.hidden = false;
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    requestAnimationFrame(() => {
      this.#isWaiting = false;
      this.#plot.setData(this.#data());
      this.#showValues(this.#plot);
    });
  }

  #build(): uPlot {
    this.#legend = makeLegend(byId(`${this.#id}-legend`), this.#spec, this.#look);
    const plot = new uPlot(this.#options(), this.#data(), this.#place);
    this.#showValues(plot);
    return plot;
  }

  /** What uPlot draws: this run's lines, the lines of compared runs and the edges of bands. With smoothing, also this run's unsmoothed lines. */
  #data(): uPlot.AlignedData {
    const { lines } = this.#spec;
    const { smoothing, runs, isLogarithmic } = this.#look;
    const own = lines.map((line) => this.#drawn(this.#curves, line));
    const compared = runs.map(({ curves }) => this.#drawn(curves, lines[0]!));
    const edges = runs.flatMap(({ curves, band }) =>
      band === null ? [] : [band.highs, band.lows].map((edge) => this.#drawn(edge, lines[0]!, curves)),
    );
    this.#shown = [...own, ...compared].map((curve) => smoothed(curve, smoothing));
    const smoothEdges = edges.map((curve) => smoothed(curve, smoothing));
    const [steps, ...rows] = align([...this.#shown, ...(smoothing > 0 ? own : []), ...smoothEdges]);
    return [steps, ...(isLogarithmic ? rows.map((row) => row.map(positive)) : rows)];
  }

  /** A line over the chosen axis. @param times  has the curves of `AXIS_METRICS`, which give the place of a step on this axis */
  #drawn(curves: Curves, { name, isComplement = false }: LineSpec, times = curves): Curve {
    const curve = curves.get(name) ?? new Curve();
    const values = isComplement ? curve.map((value) => 1 - value) : curve;
    const place = this.#spec.isWarmStart ? null : PLACES[this.#look.xAxis];
    if (place === null) return values;
    return values.over((step) => place(step, (metric) => times.get(metric)?.at(step) ?? null));
  }

  #resize(): void {
    const { clientWidth: width, clientHeight: height } = this.#place;
    if (width === 0 || (width === this.#plot.width && height === this.#plot.height)) return;
    this.#plot.setSize({ width, height });
    this.redrawSoon();
  }

  /** Puts the values under the cursor into the legend; without a cursor, the latest values. */
  #showValues({ cursor, data }: uPlot): void {
    const index = cursor.idx ?? null;
    const step = index === null ? null : data[0][index]!;
    const { lines, format } = this.#spec;
    const texts = this.#shown.map((curve, i) => {
      const value = step === null ? curve.last : curve.at(step);
      const text = value === null ? "–" : format(value);
      this.#legend[i]!.textContent = text;
      const label = lines[i]?.label ?? this.#look.runs[i - lines.length]!.name;
      return label === "" ? text : `${label} ${text}`;
    });
    const isEmpty = data[0].length === 0;
    if (!isEmpty) delete this.#place.dataset["empty"];
    if (index === null && !isEmpty) {
      this.#place.setAttribute("aria-label", `${byId(`${this.#id}-title`).textContent}: ${texts.join(", ")}`);
    }
  }

  #options(): uPlot.Options {
    const { lines, guides = [], range, from0 = false, tick = tickText, isWarmStart = false } = this.#spec;
    const { isLogarithmic, smoothing, runs, xAxis } = this.#look;
    const xMin = xAxis === "update" || isWarmStart ? UPDATES_MIN : 0;
    const font = `12px ${property("--sans")}`;
    const grid = { stroke: property("--line"), width: 1 };
    const axis = { stroke: property("--muted"), font, ticks: { show: false } };
    const banded = runs.filter(({ band }) => band !== null);
    const compared = runs.map(({ color }): LineSpec => ({ ...lines[0]!, color, width: 1.25, hasDots: false }));
    return {
      width: this.#place.clientWidth,
      height: this.#place.clientHeight,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, ...(!isWarmStart && { sync: { key: "updates" } }) },
      scales: {
        x: { time: false, range: (_, min, max) => [Math.min(min ?? 0, 0), Math.max(max ?? 0, xMin) || 1] },
        y: isLogarithmic
          ? { distr: 3 }
          : { range: (_, min, max) => (range === undefined ? rangeOf(min, max, from0) : [...range]) },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 28, space: 60 },
        {
          ...axis,
          grid,
          size: (_, texts) =>
            Math.max(52, 12 + CHARACTER_WIDTH * Math.max(...(texts ?? []).map(({ length }) => length))),
          space: 34,
          values: (_, ticks) => ticks.map((value) => (value === null ? "" : tick(value))),
        },
      ],
      series: [
        {},
        ...[...lines, ...compared].map((line) => seriesOf(line, 1)),
        ...(smoothing > 0 ? lines : []).map((line) => seriesOf({ ...line, width: 1, hasDots: false }, 0.3)),
        ...banded.flatMap(() =>
          [1, 2].map((): uPlot.Series => ({ width: 0, points: { show: false }, spanGaps: true })),
        ),
      ],
      bands: banded.map(({ color }, i) => {
        const first = 1 + lines.length * (smoothing > 0 ? 2 : 1) + runs.length + 2 * i;
        return { series: [first, first + 1], fill: property(color) + BAND_ALPHA };
      }),
      hooks: {
        draw: [(plot) => drawGuides(plot, guides, this.#curves, font)],
        setCursor: [(plot) => this.#showValues(plot)],
      },
    };
  }
}

/** The value, or null if a logarithmic axis cannot show the value. */
const positive = (value: number | null) => (value !== null && value > 0 ? value : null);
const tickText = (tick: number) => tick.toLocaleString("en", { maximumSignificantDigits: 4 });

function rangeOf(min: number | null, max: number | null, from0: boolean): uPlot.Range.MinMax {
  if (min === null || max === null) return [0, 1];
  const low = from0 ? Math.min(0, min) : min;
  const room = (max - low || Math.abs(max) || 1) * 0.08;
  return [from0 && low === 0 ? 0 : low - room, max + room];
}

function seriesOf({ label, color, width, hasDots = false }: LineSpec, alpha: number): uPlot.Series {
  const stroke = property(color);
  // A line needs two values to be visible, so show a single value as a dot.
  const hasOne = ({ data }: uPlot, at: number) => [...data[at]!].filter((value) => value !== null).length === 1;
  const show: uPlot.Series.Points.Show = (plot, at) => hasDots || hasOne(plot, at);
  const points = { show, size: 7, width: 1.5, stroke, fill: property("--card") };
  // Draw across missing values: a metric may have a value only at every tenth update.
  return { label, stroke, width, spanGaps: true, points, alpha };
}

function drawGuides(plot: uPlot, guides: NonNullable<ChartSpec["guides"]>, curves: Curves, font: string): void {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const right = bbox.left + bbox.width;
  ctx.save();
  ctx.strokeStyle = property("--muted");
  ctx.fillStyle = property("--muted");
  ctx.font = font.replace("12px", `${12 * ratio}px`);
  ctx.lineWidth = ratio;
  ctx.textAlign = "right";
  ctx.textBaseline = "bottom";
  ctx.setLineDash([5 * ratio, 5 * ratio]);
  for (const { name, label } of guides) {
    const value = curves.get(name)!.last;
    if (value === null) continue;
    const y = Math.round(plot.valToPos(value, "y", true)) + 0.5;
    if (!Number.isFinite(y)) continue;
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(right, y);
    ctx.stroke();
    ctx.fillText(label, right - 4 * ratio, y - 3 * ratio);
  }
  ctx.restore();
}

/** Makes the legend. @returns the elements that show values: one for each line of this run, then one for each compared run */
function makeLegend(place: HTMLElement, { lines }: ChartSpec, { runs }: Readonly<Look>): HTMLElement[] {
  place.replaceChildren();
  const entries = [
    ...lines.map(({ label, color }) => ({ label, color, title: "" })),
    ...runs.map(({ name, color }) => ({ label: "", color, title: name })),
  ];
  return entries.map(({ label, color, title }) => {
    const swatch = make("i", "");
    const value = make("b", "");
    const item = make("span", "", swatch, label, value);
    item.title = title;
    swatch.style.background = `var(${color})`;
    place.append(item);
    return value;
  });
}
