/** The panel of costs: what the run has spent, and how much of it for each point of success. */

import { whole } from "../../percent.ts";
import type { CostsAnswer } from "../answers.ts";
import { read } from "./api.ts";
import { byId, make } from "./dom.ts";

/** Time between two readings while the run goes on. */
const EVERY_MS = 10_000;

const ROWS: readonly (readonly [key: keyof CostsAnswer["total"], label: string])[] = [
  ["tokens", "Tokens written"],
  ["actions", "Env actions"],
  ["cpuSeconds", "CPU seconds"],
  ["joules", "Joules"],
];

let readAtMs = Number.NEGATIVE_INFINITY;

/** Reads the costs anew, at most every ten seconds. */
export async function showCosts(): Promise<void> {
  if (performance.now() - readAtMs < EVERY_MS) return;
  readAtMs = performance.now();
  const { total, reinforcement, perPoint } = await read("api/costs");
  // What was not measured has no row.
  const rows = ROWS.filter(([key]) => total[key] !== null).map(([key, label]) => {
    const cell = (amount: number | null) =>
      make("td", "", amount === null ? "–" : amount < 10 ? amount.toFixed(1) : whole(amount));
    return make("tr", "", make("th", "", label), cell(total[key]), cell(reinforcement[key]), cell(perPoint[key]));
  });
  byId("costs").replaceChildren(...rows);
  byId("costs-card").hidden = rows.length === 0;
}
