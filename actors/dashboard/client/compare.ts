/** Chooses the runs that are drawn beside this one, and keeps the choice in the page's address. */

import { percent } from "../../percent.ts";
import type { OtherRun } from "../answers.ts";
import { read } from "./api.ts";
import type { ChartList } from "./chart-list.ts";
import { byId, make, put } from "./dom.ts";
import { visible } from "./text.ts";

const COLORS = ["--run-1", "--run-2", "--run-3", "--run-4", "--run-5"];

export class Compare {
  readonly #charts: ChartList;
  readonly #menu = byId<HTMLDetailsElement>("compare");
  readonly #list = byId("compare-list");
  #chosen = new URLSearchParams(location.search).getAll("with").slice(0, COLORS.length);
  #isListed = false;

  constructor(charts: ChartList) {
    this.#charts = charts;
    this.#menu.addEventListener("toggle", () => this.#showList());
    this.#list.addEventListener("change", ({ target }) => this.#choose(target as HTMLInputElement));
    document.addEventListener("keydown", ({ key }) => {
      if (key === "Escape") this.#menu.open = false;
    });
  }

  /** Draw the chosen runs. */
  async show(): Promise<void> {
    const runs = this.#chosen.map((name, i) => ({ name, color: COLORS[i]! }));
    const chips = runs.map(({ name, color }) => {
      const swatch = make("i", "");
      swatch.style.background = `var(${color})`;
      return make("li", "", swatch, visible(name));
    });
    byId("compared").replaceChildren(...chips);
    try {
      await this.#charts.compare(runs);
    } catch (error) {
      byId("compared").append(make("li", "bad", visible((error as Error).message)));
    }
  }

  async #showList(): Promise<void> {
    if (!this.#menu.open || this.#isListed) return;
    this.#isListed = true;
    put(this.#list, "");
    try {
      const { runs, unreadable } = await read("api/runs");
      this.#list.append(
        ...runs.map((run) => this.#rowOf(run)),
        ...unreadable.map(({ name, reason }) => make("li", "note", `${visible(name)}: ${visible(reason)}`)),
      );
      if (this.#list.children.length === 0) this.#list.append(make("li", "note", "There is no other run here."));
    } catch (error) {
      this.#list.append(make("li", "bad", visible((error as Error).message)));
    }
  }

  #rowOf({ name, env, update, success }: OtherRun): HTMLElement {
    const box = make("input", "");
    box.type = "checkbox";
    box.value = name;
    box.checked = this.#chosen.includes(name);
    const facts = `${visible(env)} · update ${update ?? "–"} · ${percent(success)}`;
    return make("li", "", make("label", "", box, make("b", "", visible(name)), make("span", "note", facts)));
  }

  #choose(box: HTMLInputElement): void {
    this.#chosen = this.#chosen.filter((name) => name !== box.value);
    if (box.checked && this.#chosen.length === COLORS.length) box.checked = false;
    else if (box.checked) this.#chosen.push(box.value);
    const query = new URLSearchParams(this.#chosen.map((name) => ["with", name]));
    history.replaceState(null, "", query.size === 0 ? location.pathname : `?${query}`);
    void this.show();
  }
}
