/** All charts of one page: keeps their curves, and redraws the charts whose values have changed. */
import type { News, Series } from "../answers.ts";
import { read } from "./api.ts";
import { Chart, type ComparedRun, type Look } from "./chart.ts";
import type { ChartSpec, ChartTable } from "./charts.ts";
import { Curve } from "./curve.ts";

/** Points asked for per series; the server thins longer ones. */
const POINTS = 2000;

export class ChartList {
  readonly #curves: ReadonlyMap<string, Curve>;
  readonly #charts: readonly { readonly chart: Chart; readonly metrics: readonly string[] }[];
  /** The first metric of each chart, which is drawn of compared runs. */
  readonly #comparedMetrics: readonly string[];
  readonly #look: Look = { smoothing: 0, isLogarithmic: false, runs: [] };

  constructor(table: ChartTable) {
    const specs = Object.entries(table);
    this.#curves = new Map(specs.flatMap(([, spec]) => metricsOf(spec).map((name) => [name, new Curve()])));
    this.#charts = specs.map(([id, spec]) => {
      return { chart: new Chart(id, spec, this.#curves, this.#look), metrics: metricsOf(spec) };
    });
    this.#comparedMetrics = [...new Set(specs.map(([, { lines }]) => lines[0]!.name))];
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.look({}));
  }

  /** Draw what is recorded so far. */
  async load(): Promise<void> {
    const { series } = await read("api/metrics", { points: POINTS, names: [...this.#curves.keys()].join(",") });
    this.take(pointsOf(series));
  }

  /** Take values of any metrics; those that no chart shows are ignored. */
  take(points: News["points"]): void {
    const changed = new Set<string>();
    for (const [name, , step, value] of points) {
      this.#curves.get(name)?.set(step, value);
      changed.add(name);
    }
    for (const { chart, metrics } of this.#charts) {
      if (metrics.some((name) => changed.has(name))) chart.redrawSoon();
    }
  }

  /** Change how all charts are drawn. */
  look(changes: Partial<Look>): void {
    Object.assign(this.#look, changes);
    for (const { chart } of this.#charts) chart.rebuild();
  }

  /** Draw these runs too. @throws {Error} naming a run that cannot be read */
  async compare(runs: readonly { readonly name: string; readonly color: string }[]): Promise<void> {
    const names = this.#comparedMetrics.join(",");
    const compared = runs.map(async ({ name, color }): Promise<ComparedRun> => {
      const path = `api/runs/${encodeURIComponent(name)}/metrics` as const;
      const { series } = await read(path, { points: POINTS, names });
      const curves = new Map(this.#comparedMetrics.map((metric) => [metric, new Curve()]));
      for (const [metric, , step, value] of pointsOf(series)) curves.get(metric)!.set(step, value);
      return { name, color, curves };
    });
    this.look({ runs: await Promise.all(compared) });
  }
}

const metricsOf = ({ lines, guides = [] }: ChartSpec) => [...lines, ...guides].map(({ name }) => name);

const pointsOf = (series: readonly Series[]): News["points"] =>
  series.flatMap(({ name, actor, steps, values }) =>
    steps.map((step, i): News["points"][number] => [name, actor, step, values[i]!]),
  );

/** The last value of each series of a few metrics. */
export async function latestPoints(names: readonly string[]): Promise<News["points"]> {
  const { series } = await read("api/metrics", { points: 4, names: names.join(",") });
  return pointsOf(
    series.map(({ steps, values, ...one }) => ({ ...one, steps: steps.slice(-1), values: values.slice(-1) })),
  );
}
