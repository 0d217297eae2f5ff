/** The page about the run: success and its baselines, the charts, the events, and the latest episode. */
import { percent, whole } from "../../number-text.ts";
import type { CostsAnswer, EpisodeSummary, Overview } from "../answers.ts";
import { AddedCharts } from "./added-charts.ts";
import { read } from "./api.ts";
import { symbolsOf } from "./board.ts";
import { ChartList } from "./chart-list.ts";
import { RUN_CHARTS, successByEnv } from "./charts.ts";
import { chartTools } from "./compare.ts";
import { byId, eventRow, make, put, timeBar } from "./dom.ts";
import { detailOf } from "./episode-detail.ts";
import { EventLines } from "./event-lines.ts";
import { start } from "./live.ts";
import { visible } from "./text.ts";

const COSTS_EVERY_MS = 10_000;

const ROWS: readonly (readonly [key: keyof CostsAnswer["total"], label: string])[] = [
  ["tokens", "Tokens written"],
  ["actions", "Env actions"],
  ["cpuSeconds", "CPU seconds"],
  ["joules", "Joules"],
];

/** The activities that share the time of reinforcement. `kind` is a style class that gives the color, as in the bars of the page about actors. */
const PARTS: readonly (readonly [key: keyof CostsAnswer["seconds"], label: string, kind: string])[] = [
  ["rollout", "rollouts", "wait"],
  ["update", "updates", "work"],
  ["validation", "validations", "move"],
  ["checkpoints", "checkpoints", "idle"],
];

let readAtMs = Number.NEGATIVE_INFINITY;

async function showCosts(): Promise<void> {
  if (performance.now() - readAtMs < COSTS_EVERY_MS) return;
  readAtMs = performance.now();
  const { total, reinforcement, perPoint, seconds } = await read("api/costs");
  // A cost that the run did not measure has no row.
  const rows = ROWS.filter(([key]) => total[key] !== null).map(([key, label]) => {
    const cell = (amount: number | null) =>
      make("td", "", amount === null ? "–" : amount < 10 ? amount.toFixed(1) : whole(amount));
    return make("tr", "", make("th", "", label), cell(total[key]), cell(reinforcement[key]), cell(perPoint[key]));
  });
  byId("costs").replaceChildren(...rows);
  byId("time-spent").replaceChildren(...timesOf(seconds));
  byId("costs-card").hidden = rows.length === 0;
}

function timesOf(seconds: CostsAnswer["seconds"]): HTMLElement[] {
  const all = Object.values(seconds).reduce<number>((sum, part) => sum + (part ?? 0), 0);
  const parts = PARTS.map(([key, text, kind]) => ({ text, kind, share: (seconds[key] ?? 0) / all }));
  return all === 0 ? [] : timeBar(parts, `${whole(all)} s of reinforcement: `);
}

const EVENTS_MAX = 50;
const eventLines = new EventLines(EVENTS_MAX);
/** The page shows the latest episode for at least this time before it shows a newer episode, so that a person can read. */
const LATEST_EVERY_MS = 4000;

const envs = document.getElementById("mix")?.dataset["envs"]?.split("+");
const charts = new ChartList(envs === undefined ? RUN_CHARTS : { ...RUN_CHARTS, envs: successByEnv(envs) });
const compare = chartTools(charts);
const added = new AddedCharts(charts, () => Promise.all([charts.load(), compare.show()]));
const playing = read("api/play").catch(() => null);

function showSuccess({ success, status }: Overview): void {
  const plot = byId("success-plot");
  if ("empty" in plot.dataset) plot.dataset["empty"] = visible(status);
  const { nowUpdate, now, ...baselines } = success;
  for (const [name, share] of Object.entries({ ...baselines, now })) put(byId(`number-${name}`), percent(share));
  for (const name of ["best", "expert"] as const) byId(`number-${name}`).parentElement!.hidden = success[name] === null;
  put(byId("now-note"), nowUpdate === null ? "latest validation" : `validation at update ${nowUpdate}`);
  const marks = Object.entries({ fill: now, ...baselines }).flatMap(([kind, share]) => {
    if (share === null) return [];
    const mark = make("i", kind);
    mark.style[kind === "fill" ? "width" : "left"] = `${share * 100}%`;
    return [mark];
  });
  byId("scale").replaceChildren(...marks);
}

let latestAtMs = Number.NEGATIVE_INFINITY;

async function showLatest([episode]: readonly EpisodeSummary[]): Promise<void> {
  if (episode === undefined || performance.now() - latestAtMs < LATEST_EVERY_MS) return;
  latestAtMs = performance.now();
  try {
    const [played, play] = await Promise.all([read(`api/episodes/${episode.id}`), playing]);
    byId("latest").replaceChildren(...detailOf(played, symbolsOf(play, episode.env)));
  } catch (error) {
    // The store may no longer have the episode: for example, a resumed run has replaced it.
    byId("latest").replaceChildren(make("p", "empty", visible((error as Error).message)));
  }
}

await start(
  async (run) => {
    showSuccess(run);
    await added.show();
    const [{ events }, { rows }] = await Promise.all([
      read("api/events", { limit: EVENTS_MAX }),
      read("api/episodes", { limit: 1 }),
      charts.load(),
    ]);
    byId("events").replaceChildren(...eventLines.add(events).map(eventRow));
    await Promise.all([showLatest(rows), compare.show(), showCosts()]);
  },
  ({ run, points, events, episodes }) => {
    showSuccess(run);
    charts.take(points);
    added.take(points);
    byId("events").replaceChildren(...eventLines.add(events).map(eventRow));
    void showLatest(episodes);
    void showCosts();
  },
);
