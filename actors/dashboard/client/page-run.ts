/** The page about the run: success beside its baselines, the charts, the events, and the latest episode. */

import { percent } from "../../number-text.ts";
import type { EpisodeSummary, Overview } from "../answers.ts";
import { AddedCharts } from "./added-charts.ts";
import { read } from "./api.ts";
import { symbolsOf } from "./board.ts";
import { ChartList } from "./chart-list.ts";
import { chartTools } from "./chart-tools.ts";
import { RUN_CHARTS, successByEnv } from "./charts.ts";
import { showCosts } from "./costs.ts";
import { byId, eventRow, make, put } from "./dom.ts";
import { detailOf } from "./episode-detail.ts";
import { EventLines } from "./event-lines.ts";
import { start } from "./live.ts";
import { visible } from "./text.ts";

const EVENTS_MAX = 50;
const eventLines = new EventLines(EVENTS_MAX);
/** Time to read one latest episode before the next replaces it. */
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
    // For example, a resumed run has replaced it since.
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
