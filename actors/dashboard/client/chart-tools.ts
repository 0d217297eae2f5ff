/** The form above a page's charts: smoothing, scale and axis of all charts, and the runs that they are compared with. */
import type { ChartList } from "./chart-list.ts";
import type { XAxis } from "./charts.ts";
import { Compare } from "./compare.ts";
import { byId, put } from "./dom.ts";

/** @returns the compared runs, which are not drawn yet */
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
