/**
 * The charts: which metrics each one draws, and how. Knows curves and the page's colours; does not know where values
 * come from.
 *
 * - Hovering one chart of updates reads all of them.
 * - Sizes come from the style sheet, so that nothing moves when values arrive.
 */
import { align, Curve } from "./curve.ts";

const uPlot = window.uPlot;

const percent = (value) => `${(value * 100).toFixed(1)} %`;
const digits = (count) => (value) => value.toFixed(count);
const whole = (value) => Math.round(value).toLocaleString("en");

/** `from0`: the axis starts at 0. `sync`: hovers together with the others. `dots`: a dot for each value. */
const CHARTS = {
  success: {
    lines: [
      { name: "validate/success", label: "validation", color: "--accent", width: 2.25, dots: true },
      { name: "train/success", label: "training", color: "--second", width: 1.25 },
    ],
    guides: [
      { name: "baseline/random", label: "random" },
      { name: "baseline/best", label: "best possible" },
    ],
    range: [0, 1.06],
    format: percent,
    tick: (value) => (value > 1 ? "" : `${Math.round(value * 100)} %`),
    sync: true,
  },
  reward: {
    lines: [
      { name: "train/reward_mean", label: "mean", color: "--accent", width: 1.75 },
      { name: "train/in_group_std", label: "in-group std", color: "--second", width: 1.75 },
    ],
    format: digits(2),
    sync: true,
  },
  entropy: {
    lines: [{ name: "train/entropy", label: "", color: "--accent", width: 1.75 }],
    format: digits(3),
    from0: true,
    sync: true,
  },
  gradient: {
    lines: [{ name: "train/grad_norm", label: "", color: "--accent", width: 1.75 }],
    format: digits(2),
    from0: true,
    sync: true,
  },
  length: {
    lines: [
      { name: "train/reply_tokens", label: "written", color: "--accent", width: 1.75 },
      { name: "train/think_tokens", label: "thinking", color: "--second", width: 1.75 },
    ],
    format: digits(1),
    from0: true,
    sync: true,
  },
  speed: {
    lines: [{ name: "speed/tokens_per_second", label: "", color: "--accent", width: 1.75 }],
    format: whole,
    from0: true,
    sync: true,
  },
  warm: {
    lines: [{ name: "warm/loss", label: "", color: "--accent", width: 1.75 }],
    format: digits(3),
    from0: true,
    sync: false,
  },
};

/** Everything that any chart draws. */
export const CHARTED = Object.values(CHARTS).flatMap(({ lines, guides = [] }) =>
  [...lines, ...guides].map(({ name }) => name),
);

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** One chart on the page. It draws again when a value that it shows has changed, at most once a frame. */
class Chart {
  #id;
  #spec;
  #curves;
  #plot = null;
  #place;
  #values;
  #waiting = false;

  constructor(id, spec, curves) {
    this.#id = id;
    this.#spec = spec;
    this.#curves = curves;
    this.#place = document.getElementById(`${id}-plot`);
    this.#values = makeLegend(document.getElementById(`${id}-legend`), spec);
    new ResizeObserver(() => this.#resize()).observe(this.#place);
    this.rebuild();
  }

  /** Anew, in the colours that hold now. */
  rebuild() {
    this.#plot?.destroy();
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

  #data() {
    return align(this.#spec.lines.map(({ name }) => this.#curves.get(name)));
  }

  #resize() {
    const { clientWidth: width, clientHeight: height } = this.#place;
    if (width > 0 && (width !== this.#plot.width || height !== this.#plot.height))
      this.#plot.setSize({ width, height });
  }

  /** The values under the cursor, or the latest ones. */
  #show() {
    const at = this.#plot?.cursor.idx ?? null;
    const texts = this.#spec.lines.map(({ name, label }, i) => {
      const value =
        (at === null ? null : this.#plot.data[i + 1][at]) ?? (at === null ? this.#curves.get(name).last : null);
      const text = value === null ? "–" : this.#spec.format(value);
      this.#values[i].textContent = text;
      return label === "" ? text : `${label} ${text}`;
    });
    const empty = this.#plot === null || this.#plot.data[0].length === 0;
    if (!empty) delete this.#place.dataset.empty;
    if (at === null) {
      const title = document.getElementById(`${this.#id}-title`).textContent;
      this.#place.setAttribute("aria-label", empty ? `${title}: no values yet` : `${title}: ${texts.join(", ")}`);
    }
  }

  #options() {
    const spec = this.#spec;
    const ink = color("--muted");
    const font = `12px ${color("--sans")}`;
    const axis = { stroke: ink, font, ticks: { show: false }, grid: { stroke: color("--line"), width: 1 } };
    return {
      width: this.#place.clientWidth,
      height: this.#place.clientHeight,
      padding: [8, 12, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, ...(spec.sync && { sync: { key: "updates" } }) },
      scales: {
        // A young run does not stretch over the whole chart: ten updates are the least that it spans.
        x: { time: false, range: (_, min, max) => [Math.min(min ?? 0, 0), Math.max(max ?? 0, 10)] },
        y: { range: (_, min, max) => spec.range ?? rangeOf(min, max, spec.from0 === true) },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 28, space: 60 },
        {
          ...axis,
          size: 52,
          space: 34,
          values: (_, ticks) => ticks.map(spec.tick ?? ((tick) => tick.toLocaleString("en"))),
        },
      ],
      series: [{}, ...spec.lines.map(seriesOf)],
      hooks: {
        draw: [(plot) => drawGuides(plot, spec.guides ?? [], this.#curves, font)],
        setCursor: [() => this.#show()],
      },
    };
  }
}

function rangeOf(min, max, from0) {
  if (min === null || max === null) return [0, 1];
  const low = from0 ? 0 : min;
  const room = (max - low || Math.abs(max) || 1) * 0.08;
  return [from0 ? 0 : low - room, max + room];
}

function seriesOf({ label, color: name, width, dots = false }) {
  const stroke = color(name);
  const points = { show: dots, size: 7, width: 1.5, stroke, fill: color("--card") };
  // A value every tenth update is still one line.
  return { label, stroke, width, spanGaps: true, points };
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
    ctx.setLineDash([5 * ratio, 5 * ratio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.fillText(label, bbox.left + bbox.width - 4 * ratio, y - 3 * ratio);
  }
  ctx.restore();
}

/** Returns the element of each line's value. */
function makeLegend(place, { lines }) {
  return lines.map(({ label, color: name }) => {
    const item = document.createElement("span");
    const swatch = document.createElement("i");
    const value = document.createElement("b");
    swatch.style.background = `var(${name})`;
    item.append(swatch, label, value);
    place.append(item);
    return value;
  });
}

export class Charts {
  #curves = new Map(CHARTED.map((name) => [name, new Curve()]));
  #charts = new Map();

  constructor() {
    for (const [id, spec] of Object.entries(CHARTS)) this.#charts.set(id, new Chart(id, spec, this.#curves));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const chart of this.#charts.values()) chart.rebuild();
    });
  }

  /** Take values of any metrics: [name, step, value]; those that no chart shows are passed over. */
  take(points) {
    const changed = new Set();
    for (const [name, step, value] of points) {
      this.#curves.get(name)?.set(step, value);
      changed.add(name);
    }
    for (const [id, { lines, guides = [] }] of Object.entries(CHARTS)) {
      if ([...lines, ...guides].some(({ name }) => changed.has(name))) this.#charts.get(id).redrawSoon();
    }
  }
}
