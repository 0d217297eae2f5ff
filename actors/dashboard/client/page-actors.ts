/** The page about the actors: what each actor does, which weights it holds, and where its time goes. */
import { percent, plural } from "../../number-text.ts";
import type { ActorsAnswer, News } from "../answers.ts";
import { doingText, type LoadTexts, loadTexts, rateTexts, summaryOf, timeShares } from "./actor-texts.ts";
import { read } from "./api.ts";
import { ChartList, latestPoints } from "./chart-list.ts";
import { ACTORS_CHARTS } from "./charts.ts";
import { byId, make, put, timeBar } from "./dom.ts";
import { hasEnded, start } from "./live.ts";
import { visible } from "./text.ts";

type Actor = ActorsAnswer["actors"][number];
type Weights = Actor["weights"];

/** After this time without a message to the supervisor, the page shows an actor as silent. */
const SILENT_MS = 3000;
const ROLES = ["learner", "sampler", "env-server", "metrics-sink"];

const QUEUES: LoadTexts = [
  ["queue/playing", (count) => `${plural(count, "episode")} in play`],
  ["queue/waiting", (count) => `${plural(count, "ticket")} waiting`],
  ["queue/rows", (count) => `${plural(count, "episode")} to store`],
  ["queue/messages", (count) => `${plural(count, "message")} queued`],
];
const LAGS: readonly (readonly [name: string, text: string])[] = [
  ["train/lag_0", "0"],
  ["train/lag_1", "1"],
  ["train/lag_2", "2"],
  ["train/lag_more", "3 or more"],
];
const CHIPS = { running: "good", starting: "plain", ended: "plain", silent: "bad", gone: "bad" } as const;

const charts = new ChartList(ACTORS_CHARTS);

/** True if the run has ended. Then the page shows each actor's last state. */
let isRecord = false;
let newest: ActorsAnswer = { atMs: null, actors: [] };

function stateOf({ guest, pid, silentMs, doing }: Actor): keyof typeof CHIPS {
  if (isRecord) return "ended";
  if (!guest && pid === null) return "gone";
  if (silentMs > SILENT_MS) return "silent";
  return doing === "starting" ? "starting" : "running";
}

function timesOf(actor: Actor): HTMLElement {
  const times = timeShares(actor, isRecord);
  if (times.length === 0) return make("p", "note", `${isRecord ? "reported" : "reports"} no time shares`);
  return make("div", "times", ...timeBar(times));
}

function weightsText({ role, weights }: Actor, published: Weights): string {
  if (weights === null) return "no policy yet";
  const text = `policy ${weights.version} · ${weights.digest.slice(0, 12)}`;
  if (role === "learner" || published === null) return text;
  if (weights.digest === published.digest) return `${text} · as published`;
  return weights.version < published.version
    ? `${text} · ${plural(published.version - weights.version, "version")} behind`
    : `${text} · NOT the published weights`;
}

function rowOf(actor: Actor, published: Weights): HTMLElement {
  const { name, role, restarts, guest } = actor;
  const state = stateOf(actor);
  const who = make("div", "who", make("b", "", visible(name)), make("span", `chip ${CHIPS[state]}`, state));
  if (guest) who.append(make("span", "note", "on another machine"));
  if (restarts > 0) who.append(make("span", "chip bad", plural(restarts, "restart")));
  const hasPolicy = role === "learner" || role === "sampler";
  const work = [...(hasPolicy ? [weightsText(actor, published)] : []), ...loadTexts(QUEUES, actor)];
  const rates = rateTexts(actor, isRecord);
  return make(
    "li",
    `actor ${role}`,
    who,
    make("p", "", visible(doingText(actor, isRecord))),
    make("p", "note", work.join(" · ")),
    make("p", "note", rates.join(" · ")),
    timesOf(actor),
  );
}

function showActors({ atMs, actors }: ActorsAnswer): void {
  // Before the first report, keep the advice that the server put into the page.
  if (atMs === null) return;
  const published = actors.find(({ role }) => role === "learner")?.weights ?? null;
  const sorted = actors.toSorted(
    (a, b) => ROLES.indexOf(a.role) - ROLES.indexOf(b.role) || a.name.localeCompare(b.name),
  );
  byId("actors").replaceChildren(...sorted.map((actor) => rowOf(actor, published)));
  put(byId("actors-summary"), summaryOf(actors, isRecord));
}

const lags = new Map<string, number>();

function takeLags(points: News["points"]): void {
  for (const [name, , , value] of points) if (name.startsWith("train/lag_")) lags.set(name, value);
  const rows = LAGS.map(([name, text]) => {
    const share = lags.get(name) ?? null;
    const bar = make("i", "");
    bar.style.width = `${(share ?? 0) * 100}%`;
    return make("li", "", make("span", "", text), make("div", "", bar), make("b", "", percent(share)));
  });
  byId("lag").replaceChildren(...rows);
}

await start(
  async (run) => {
    isRecord = hasEnded(run);
    const [actors, points] = await Promise.all([
      read("api/actors"),
      latestPoints(LAGS.map(([name]) => name)),
      charts.load(),
    ]);
    newest = actors;
    showActors(newest);
    takeLags(points);
  },
  ({ run, points, actors }) => {
    charts.take(points);
    takeLags(points);
    const endsNow = hasEnded(run) && !isRecord;
    isRecord = hasEnded(run);
    if (actors !== undefined) newest = actors;
    if (actors !== undefined || endsNow) showActors(newest);
  },
);
