/** Charts that a person adds to the page, for any metric that the run has recorded. The page's address keeps the choice. */
import type { MetricName } from "../../metrics/metrics.ts";
import type { NamesAnswer, News } from "../answers.ts";
import { read } from "./api.ts";
import type { ChartList } from "./chart-list.ts";
import { chartOf } from "./charts.ts";
import { byId, inAddress, make, putInAddress } from "./dom.ts";

const ADDED_MAX = 24;

export class AddedCharts {
  readonly #charts: ChartList;
  readonly #select = document.querySelector<HTMLSelectElement>("#tools [name=add]")!;
  readonly #changed: () => Promise<unknown>;
  #known: NamesAnswer["metrics"] = [];
  #added: string[] = [];

  /** @param changed  called after a chart is added; reads the values of all charts */
  constructor(charts: ChartList, changed: () => Promise<unknown>) {
    this.#charts = charts;
    this.#changed = changed;
    this.#select.addEventListener("input", () => {
      this.#add(this.#select.value);
      putInAddress("chart", [...new Set([...inAddress("chart"), ...this.#added])]);
      this.#select.selectedIndex = 0;
      void this.#changed();
    });
    // Read the list again: the run may have recorded new metrics since the last time.
    this.#select.addEventListener("focus", () => void this.#list());
  }

  /** Adds the charts that the page's address names. The caller then reads the values of these charts. */
  async show(): Promise<void> {
    await this.#list();
    for (const name of inAddress("chart")) this.#add(name);
  }

  /** Adds charts that the address names and that the page lacks, if these points are the first values of their metrics. */
  take(points: News["points"]): void {
    const waiting = inAddress("chart").filter((name) => !this.#added.includes(name));
    if (points.some(([name]) => waiting.includes(name))) void this.show().then(this.#changed);
  }

  async #list(): Promise<void> {
    const { metrics } = await read("api/names");
    if (metrics.length === this.#known.length) return;
    this.#known = metrics;
    const names = metrics.map(({ name }) => name).sort();
    this.#select.replaceChildren(this.#select.options[0]!, ...names.map((name) => new Option(name, name)));
  }

  #add(name: string): void {
    const known = this.#known.find((metric) => metric.name === name);
    if (known === undefined || this.#added.includes(name) || this.#added.length === ADDED_MAX) return;
    this.#added.push(name);
    const id = `added-${this.#added.length}`;
    const title = Object.assign(make("h2", "", name), { id: `${id}-title` });
    const legend = Object.assign(make("div", "legend"), { id: `${id}-legend` });
    const plot = Object.assign(make("div", "plot"), { id: `${id}-plot`, role: "img" });
    const head = make("header", "card-head", title, make("p", "note", known.unit), legend);
    const section = make("section", "card chart", head, plot);
    section.title = known.help;
    section.setAttribute("aria-labelledby", title.id);
    byId("latest-card").before(section);
    this.#charts.add(id, chartOf(name as MetricName));
  }
}
