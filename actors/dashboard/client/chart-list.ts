/** All charts of one page. `ChartList` keeps their curves, and redraws the charts whose values have changed. */
import type { News, Series } from "../answers.ts";
import { read } from "./api.ts";
import { Chart, type ComparedRun, type Look } from "./chart.ts";
import { AXIS_METRICS, type ChartSpec, type ChartTable } from "./charts.ts";
import { bandOf, Curve, takePoints } from "./curve.ts";

/** Maximum number of points of a series that the page asks for. The server thins longer series. */
const POINTS = 2000;

/** A comparison with this run. Charts draw the line of one other run, or the mean and band of several runs. */
export interface Comparison {
  readonly name: string;
  readonly color: string;
  /** Folder names of the other runs. */
  readonly runs: readonly string[];
  /** True if the mean includes this run. */
  readonly withOwn: boolean;
}

export class ChartList {
  readonly #curves = new Map<string, Curve>(AXIS_METRICS.map((name) => [name, new Curve()]));
  readonly #charts: { readonly chart: Chart; readonly metrics: readonly string[] }[] = [];
  /** Metrics that the page reads from compared runs: the first metric of each chart, and `AXIS_METRICS`. */
  readonly #comparedMetrics = new Set<string>(AXIS_METRICS);
  readonly #look: Look = { smoothing: 0, isLogarithmic: false, xAxis: "update", runs: [] };

  constructor(table: ChartTable) {
    for (const [id, spec] of Object.entries(table)) this.add(id, spec);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.look({}));
  }

  /** Adds a chart in the frame of this id. Then call `load`, and also `compare` if the page compares runs. */
  add(id: string, spec: ChartSpec): void {
    const metrics = metricsOf(spec);
    for (const name of metrics) if (!this.#curves.has(name)) this.#curves.set(name, new Curve());
    this.#comparedMetrics.add(spec.lines[0]!.name);
    const needed = [...metrics, ...AXIS_METRICS];
    this.#charts.push({ chart: new Chart(id, spec, this.#curves, this.#look), metrics: needed });
  }

  async load(): Promise<void> {
    const { series } = await read("api/metrics", { points: POINTS, names: [...this.#curves.keys()].join(",") });
    for (const [name, , step, value] of pointsOf(series)) this.#curves.get(name)?.set(step, value);
    this.#redraw(new Set(series.map(({ name }) => name)));
  }

  /** Takes new values of any metrics, in the order in which the run wrote them. Ignores metrics that no chart shows. */
  take(points: News["points"]): void {
    this.#redraw(takePoints(this.#curves, points));
  }

  #redraw(changed: ReadonlySet<string>): void {
    for (const { chart, metrics } of this.#charts) {
      if (metrics.some((name) => changed.has(name))) chart.redrawSoon();
    }
  }

  look(changes: Partial<Look>): void {
    Object.assign(this.#look, changes);
    for (const { chart } of this.#charts) chart.rebuild();
  }

  /** Draws these comparisons in every chart. @returns an error text for each run that cannot be read, which the charts leave out */
  async compare(comparisons: readonly Comparison[]): Promise<string[]> {
    const compared: ComparedRun[] = [];
    const faults: string[] = [];
    for (const { name, color, runs, withOwn } of comparisons) {
      const runCurves = withOwn ? [this.#curves] : [];
      try {
        // One run at a time, because the server refuses a read if 16 others wait.
        for (const run of runs) runCurves.push(await this.#curvesOf(run));
        compared.push({
          name,
          color,
          ...(runCurves.length === 1 ? { curves: runCurves[0]!, band: null } : meanOf(runCurves)),
        });
      } catch (error) {
        faults.push((error as Error).message);
      }
    }
    this.look({ runs: compared });
    return faults;
  }

  async #curvesOf(run: string): Promise<Map<string, Curve>> {
    const path = `api/runs/${encodeURIComponent(run)}/metrics` as const;
    const { series } = await read(path, { points: POINTS, names: [...this.#comparedMetrics].join(",") });
    return new Map(series.map(({ name, steps, values }) => [name, new Curve(steps, values)]));
  }
}

/** For each metric, the mean and band of runs that differ only in seed. Leaves out a metric that one of the runs lacks. */
function meanOf(runCurves: readonly ReadonlyMap<string, Curve>[]): Pick<ComparedRun, "curves" | "band"> {
  const bands = [...runCurves[0]!.keys()].flatMap((name) => {
    const band = bandOf(runCurves.map((curves) => curves.get(name) ?? new Curve()));
    return band === null ? [] : [{ name, ...band }];
  });
  const curves = (of: "means" | "lows" | "highs") =>
    new Map(bands.map((band) => [band.name, new Curve(band.steps, band[of])]));
  return { curves: curves("means"), band: { lows: curves("lows"), highs: curves("highs") } };
}

const metricsOf = ({ lines, guides = [] }: ChartSpec) => [...lines, ...guides].map(({ name }) => name);

const pointsOf = (series: readonly Series[]): News["points"] =>
  series.flatMap(({ name, actor, steps, values }) =>
    steps.map((step, i): News["points"][number] => [name, actor, step, values[i]!]),
  );

/** The last value of each series of these metrics. */
export async function latestPoints(names: readonly string[]): Promise<News["points"]> {
  const { series } = await read("api/metrics", { points: 4, names: names.join(",") });
  return pointsOf(
    series.map(({ steps, values, ...one }) => ({ ...one, steps: steps.slice(-1), values: values.slice(-1) })),
  );
}
