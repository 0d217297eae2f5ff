/** The panel of costs: what the run has spent, and how much of it for each point of success. */

import { percent, whole } from "../../number-text.ts";
import type { CostsAnswer } from "../answers.ts";
import { read } from "./api.ts";
import { byId, make, shareBar } from "./dom.ts";

/** Time between two readings while the run goes on. */
const EVERY_MS = 10_000;

const ROWS: readonly (readonly [key: keyof CostsAnswer["total"], label: string])[] = [
  ["tokens", "Tokens written"],
  ["actions", "Env actions"],
  ["cpuSeconds", "CPU seconds"],
  ["joules", "Joules"],
];

/** Parts of the time of reinforcement; the colors are those of an actor's activities. */
const PARTS: readonly (readonly [key: keyof CostsAnswer["seconds"], label: string, kind: string])[] = [
  ["rollout", "rollouts", "wait"],
  ["update", "updates", "work"],
  ["validation", "validations", "move"],
  ["checkpoints", "checkpoints", "idle"],
];

let readAtMs = Number.NEGATIVE_INFINITY;

/** Reads the costs again, at most every ten seconds. */
export async function showCosts(): Promise<void> {
  if (performance.now() - readAtMs < EVERY_MS) return;
  readAtMs = performance.now();
  const { total, reinforcement, perPoint, seconds } = await read("api/costs");
  // What was not measured has no row.
  const rows = ROWS.filter(([key]) => total[key] !== null).map(([key, label]) => {
    const cell = (amount: number | null) =>
      make("td", "", amount === null ? "–" : amount < 10 ? amount.toFixed(1) : whole(amount));
    return make("tr", "", make("th", "", label), cell(total[key]), cell(reinforcement[key]), cell(perPoint[key]));
  });
  byId("costs").replaceChildren(...rows);
  byId("time-spent").replaceChildren(...timeBar(seconds));
  byId("costs-card").hidden = rows.length === 0;
}

/** How the time of reinforcement was spent, as a bar and in words. */
function timeBar(seconds: CostsAnswer["seconds"]): HTMLElement[] {
  const all = Object.values(seconds).reduce<number>((sum, part) => sum + (part ?? 0), 0);
  if (all === 0) return [];
  const parts = PARTS.map(([key, label, kind]) => ({ label, kind, share: (seconds[key] ?? 0) / all }));
  const texts = parts.filter(({ share }) => share > 0).map(({ label, share }) => `${label} ${percent(share, 0)}`);
  return [shareBar(parts), make("p", "note", `${whole(all)} s of reinforcement: ${texts.join(" · ")}`)];
}
