/**
 * One chart: draws its lines, those of compared runs, and its guides, in the page's colours. Knows curves; does not know where
 * values come from.
 *
 * - Hovering one chart of updates reads all of them.
 * - Sizes come from the style sheet, so that nothing moves when values arrive.
 * - It draws again when a value that it shows has changed, at most once a frame, and no more points than it has room for.
 */
import { align, Curve, smoothed } from "./curve.ts";

const uPlot = window.uPlot;

export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const NOTHING = new Curve();
/** Points for each pixel of width: a low and a high. */
const POINTS_PER_PIXEL = 2;

export class Chart {
  #id;
  #spec;
  #curves;
  #look;
  #plot = null;
  #place;
  #values = [];
  #waiting = false;
  /** What is drawn, in the order of `#values`: curves as they are read by the legend. */
  #read = [];

  /**
   * @param curves  of this run, by metric
   * @param look    {smoothing, log, runs: [{name, color, curves}]}; may change, then `rebuild`
   */
  constructor(id, spec, curves, look) {
    this.#id = id;
    this.#spec = spec;
    this.#curves = curves;
    this.#look = look;
    this.#place = document.getElementById(`${id}-plot`);
    new ResizeObserver(() => this.#resize()).observe(this.#place);
    this.rebuild();
  }

  /** Anew: the colours, the lines or the axis have changed. */
  rebuild() {
    this.#plot?.destroy();
    this.#values = makeLegend(document.getElementById(`${this.#id}-legend`), this.#spec, this.#look);
    this.#plot = new uPlot(this.#options(), this.#data(), this.#place);
    this.#show();
  }

  redrawSoon() {
    if (this.#waiting) return;
    this.#waiting = true;
    requestAnimationFrame(() => {
      this.#waiting = false;
      this.#plot.setData(this.#data());
      this.#show();
    });
  }

  /** The lines, those of compared runs, and while smoothing the lines as measured. */
  #data() {
    const { lines } = this.#spec;
    const { smoothing, runs } = this.#look;
    const own = lines.map((line) => flipped(this.#curves.get(line.name), line));
    const others = runs.map(({ curves }) => flipped(curves.get(lines[0].name) ?? NOTHING, lines[0]));
    this.#read = [...own, ...others].map((curve) => smoothed(curve, smoothing));
    const shown = [...this.#read, ...(smoothing > 0 ? own : [])];
    const room = Math.max(200, this.#place.clientWidth) * POINTS_PER_PIXEL;
    const [steps, ...rows] = align(shown.map((curve) => curve.thinned(room)));
    return [steps, ...(this.#look.log ? rows.map((row) => row.map(positive)) : rows)];
  }

  #resize() {
    const { clientWidth: width, clientHeight: height } = this.#place;
    if (width === 0 || (width === this.#plot.width && height === this.#plot.height)) return;
    this.#plot.setSize({ width, height });
    this.redrawSoon();
  }

  /** The values under the cursor, or the latest ones. */
  #show() {
    const at = this.#plot?.cursor.idx ?? null;
    const step = at === null ? null : this.#plot.data[0][at];
    const texts = this.#read.map((curve, i) => {
      const value = step === null ? curve.last : curve.at(step);
      const text = value === null ? "–" : this.#spec.format(value);
      this.#values[i].textContent = text;
      const label = this.#spec.lines[i]?.label ?? this.#look.runs[i - this.#spec.lines.length].name;
      return label === "" ? text : `${label} ${text}`;
    });
    const empty = this.#plot === null || this.#plot.data[0].length === 0;
    if (!empty) delete this.#place.dataset.empty;
    if (at === null && !empty) {
      const title = document.getElementById(`${this.#id}-title`).textContent;
      this.#place.setAttribute("aria-label", `${title}: ${texts.join(", ")}`);
    }
  }

  #options() {
    const spec = this.#spec;
    const { log, smoothing, runs } = this.#look;
    const ink = color("--muted");
    const font = `12px ${color("--sans")}`;
    const axis = { stroke: ink, font, ticks: { show: false }, grid: { stroke: color("--line"), width: 1 } };
    const range = spec.range ?? null;
    const y = log ? { distr: 3 } : { range: (_, min, max) => range ?? rangeOf(min, max, spec.from0 === true) };
    const others = runs.map(({ color }) => ({ label: "", color, width: 1.25 }));
    const measured = smoothing > 0 ? spec.lines.map((line) => ({ ...line, width: 1, faint: true, dots: false })) : [];
    return {
      width: this.#place.clientWidth,
      height: this.#place.clientHeight,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, ...(spec.sync && { sync: { key: "updates" } }) },
      scales: {
        // A young run does not stretch over the whole chart: ten updates are the least that it spans.
        x: { time: false, range: (_, min, max) => [Math.min(min ?? 0, 0), Math.max(max ?? 0, 10)] },
        y,
      },
      axes: [
        { ...axis, grid: { show: false }, size: 28, space: 60 },
        {
          ...axis,
          size: 52,
          space: 34,
          values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : (spec.tick ?? tickText)(tick))),
        },
      ],
      series: [{}, ...[...spec.lines, ...others, ...measured].map(seriesOf)],
      hooks: {
        draw: [(plot) => drawGuides(plot, spec.guides ?? [], this.#curves, font)],
        setCursor: [() => this.#show()],
      },
    };
  }
}

const flipped = (curve, { flip = false }) => (flip ? curve.map((value) => 1 - value) : curve);
/** A logarithm has no place for the others. */
const positive = (value) => (value !== null && value > 0 ? value : null);
const tickText = (tick) => tick.toLocaleString("en", { maximumSignificantDigits: 4 });

function rangeOf(min, max, from0) {
  if (min === null || max === null) return [0, 1];
  const low = from0 ? Math.min(0, min) : min;
  const room = (max - low || Math.abs(max) || 1) * 0.08;
  return [from0 && low === 0 ? 0 : low - room, max + room];
}

function seriesOf({ label, color: name, width, dots = false, faint = false }) {
  const stroke = color(name);
  const points = { show: dots, size: 7, width: 1.5, stroke, fill: color("--card") };
  // A value every tenth update is still one line.
  return { label, stroke, width, spanGaps: true, points, alpha: faint ? 0.3 : 1 };
}

/** Dashed lines across the chart, each with its name. */
function drawGuides(plot, guides, curves, font) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = color("--muted");
  ctx.fillStyle = color("--muted");
  ctx.font = font.replace("12px", `${12 * ratio}px`);
  ctx.lineWidth = ratio;
  ctx.textAlign = "right";
  ctx.textBaseline = "bottom";
  for (const { name, label } of guides) {
    const value = curves.get(name).last;
    if (value === null) continue;
    const y = Math.round(plot.valToPos(value, "y", true)) + 0.5;
    if (!Number.isFinite(y)) continue;
    ctx.setLineDash([5 * ratio, 5 * ratio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.fillText(label, bbox.left + bbox.width - 4 * ratio, y - 3 * ratio);
  }
  ctx.restore();
}

/** Returns the element of each line's value: those of this run, then one for each compared run. */
function makeLegend(place, { lines }, { runs }) {
  place.replaceChildren();
  const entries = [...lines, ...runs.map(({ name, color }) => ({ label: "", color, title: name }))];
  return entries.map(({ label, color: name, title = "" }) => {
    const item = document.createElement("span");
    const swatch = document.createElement("i");
    const value = document.createElement("b");
    item.title = title;
    swatch.style.background = `var(${name})`;
    item.append(swatch, label, value);
    place.append(item);
    return value;
  });
}
