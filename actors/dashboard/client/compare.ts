/**
 * Lets a person choose the runs that the charts show together with the page's own run, and keeps the choice in the page's address. With the
 * choice "seeds", the charts show a mean and a band in place of each chosen run, and also for the page's own run. The mean of a run is over this
 * run and all runs of the folder that differ from it only in the seed.
 */
import { percent } from "../../number-text.ts";
import { read } from "./api.ts";
import type { ChartList, Comparison } from "./chart-list.ts";
import type { XAxis } from "./charts.ts";
import { byId, inAddress, make, put, putInAddress } from "./dom.ts";
import { visible } from "./text.ts";

const COLORS = ["--run-1", "--run-2", "--run-3", "--run-4", "--run-5"];
const OWN_COLOR = "--ink";

export class Compare {
  readonly #charts: ChartList;
  readonly #menu = byId<HTMLDetailsElement>("compare");
  readonly #list = byId("compare-list");
  readonly #seeds = document.querySelector<HTMLInputElement>("#tools [name=seeds]")!;
  #chosen = inAddress("with").slice(0, COLORS.length);
  #shown = Promise.resolve();

  constructor(charts: ChartList) {
    this.#charts = charts;
    this.#menu.addEventListener("toggle", () => this.#showList());
    this.#list.addEventListener("change", ({ target }) => this.#choose(target as HTMLInputElement));
    this.#seeds.checked = inAddress("seeds").length > 0;
    this.#seeds.addEventListener("input", () => {
      putInAddress("seeds", this.#seeds.checked ? ["mean"] : []);
      void this.show();
    });
    document.addEventListener("keydown", ({ key }) => {
      if (key === "Escape") this.#menu.open = false;
    });
  }

  /** Draws the chosen runs. Waits until an earlier call has ended, so that the last choice stays on the page. */
  show(): Promise<void> {
    this.#shown = this.#shown.then(() => this.#show());
    return this.#shown;
  }

  async #show(): Promise<void> {
    try {
      const comparisons = await this.#comparisons();
      const chips = comparisons.map(({ name, color }) => {
        const swatch = make("i", "");
        swatch.style.background = `var(${color})`;
        return make("li", "", swatch, visible(name));
      });
      byId("compared").replaceChildren(...chips);
      const faults = await this.#charts.compare(comparisons);
      byId("compared").append(...faults.map((fault) => make("li", "bad", visible(fault))));
    } catch (error) {
      byId("compared").append(make("li", "bad", visible((error as Error).message)));
    }
  }

  async #comparisons(): Promise<Comparison[]> {
    const single = this.#chosen.map((name, i) => ({ name, color: COLORS[i]!, runs: [name], withOwn: false }));
    if (!this.#seeds.checked) return single;
    const { runs, settings } = await read("api/runs");
    const seedsOf = (wanted: string | null) =>
      wanted === null ? [] : runs.filter((run) => run.settings === wanted).map(({ name }) => name);
    const own = { name: "this run", color: OWN_COLOR, runs: seedsOf(settings), withOwn: true };
    const others = single.flatMap((one) => {
      const wanted = runs.find(({ name }) => name === one.name)?.settings ?? null;
      return wanted !== null && wanted === settings
        ? []
        : [{ ...one, runs: [...new Set([one.name, ...seedsOf(wanted)])] }];
    });
    return [own, ...others].map((one) => {
      const count = one.runs.length + Number(one.withOwn);
      return {
        ...one,
        name: count === 1 ? `${one.name}: no run with another seed` : `${one.name}: mean of ${count} runs`,
      };
    });
  }

  async #showList(): Promise<void> {
    if (!this.#menu.open) return;
    try {
      const { runs, unreadable } = await read("api/runs");
      const gone = this.#chosen.filter((chosen) => !runs.some(({ name }) => name === chosen));
      const rows = [
        ...runs.map(({ name, env, update, success }) =>
          this.#rowOf(name, `${visible(env)} · update ${update ?? "–"} · ${percent(success)}`),
        ),
        ...gone.map((name) => this.#rowOf(name, "chosen, but not in the folder")),
        ...unreadable.map(({ name, reason }) => make("li", "note", `${visible(name)}: ${visible(reason)}`)),
      ];
      this.#list.replaceChildren(...(rows.length > 0 ? rows : [make("li", "note", "There is no other run here.")]));
    } catch (error) {
      this.#list.replaceChildren(make("li", "bad", visible((error as Error).message)));
    }
  }

  #rowOf(name: string, facts: string): HTMLElement {
    const box = make("input", "");
    box.type = "checkbox";
    box.value = name;
    box.checked = this.#chosen.includes(name);
    return make("li", "", make("label", "", box, make("b", "", visible(name)), make("span", "note", facts)));
  }

  #choose(box: HTMLInputElement): void {
    this.#chosen = this.#chosen.filter((name) => name !== box.value);
    if (box.checked && this.#chosen.length === COLORS.length) box.checked = false;
    else if (box.checked) this.#chosen.push(box.value);
    putInAddress("with", this.#chosen);
    void this.show();
  }
}

/** Connects the form of chart settings to the charts. @returns the choice of runs, which `show` draws */
export function chartTools(charts: ChartList): Compare {
  const form = byId<HTMLFormElement>("tools");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    const { name, checked, value } = target as HTMLInputElement;
    if (name === "log") charts.look({ isLogarithmic: checked });
    if (name === "axis") charts.look({ xAxis: value as XAxis });
    if (name !== "smoothing") return;
    put(byId("smoothing-now"), Number(value).toFixed(2));
    charts.look({ smoothing: Number(value) });
  });
  return new Compare(charts);
}
