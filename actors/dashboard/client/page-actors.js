/** The page about the actors: who there is, what each holds and does, and where its time goes. */
import { ChartList } from "./chart-list.js";
import { ACTORS } from "./charts.js";
import { byId, bytes, make, percent, plural, put, read } from "./dom.js";
import { hasEnded, start } from "./live.js";
import { visible } from "./text.ts";

/** Silence after which an actor is shown as silent. */
const SILENT_MS = 3000;
const ROLES = ["learner", "sampler", "env-server", "metrics-sink"];

/** Shares of time, in the order they are drawn: what is told of them, and whether it is waiting for others. */
const TIMES = {
  "time/update": { text: "learns", kind: "work" },
  "time/policy": { text: "writes replies", kind: "work" },
  "time/busy": { text: "plays turns", kind: "work" },
  "time/weights": { text: "handles weights", kind: "move" },
  "time/save": { text: "saves", kind: "move" },
  "time/env": { text: "waits for env servers", kind: "wait" },
  "time/rollout": { text: "waits for episodes", kind: "wait" },
  "time/tickets": { text: "waits for tickets", kind: "wait" },
};
const RATES = [
  ["speed/actor_tokens_per_second", (value) => `${Math.round(value).toLocaleString("en")} tokens/s`],
  ["speed/env_steps_per_second", (value) => `${Math.round(value).toLocaleString("en")} steps/s`],
  ["speed/sent_bytes_per_second", (value) => `sends ${bytes(value)}/s`],
  ["speed/received_bytes_per_second", (value) => `receives ${bytes(value)}/s`],
];
const QUEUES = [
  ["queue/playing", (count) => `${count} in play`],
  ["queue/waiting", (count) => `${count} waiting`],
  ["queue/rows", (count) => `${count} to store`],
  ["queue/messages", (count) => `${plural(count, "message")} to pass on`],
];
const LAGS = [
  ["train/lag_0", "0"],
  ["train/lag_1", "1"],
  ["train/lag_2", "2"],
  ["train/lag_more", "3 or more"],
];

const charts = new ChartList(ACTORS);

/** Set when the run is over: what is shown of its actors is what they last told. */
let ended = false;
let told = { atMs: null, actors: [] };

function stateOf({ guest, pid, silentMs, doing }) {
  if (ended) return "ended";
  if (!guest && pid === null) return "gone";
  if (silentMs > SILENT_MS) return "silent";
  return doing === "starting" ? "starting" : "running";
}
const CHIPS = { running: "good", starting: "plain", ended: "plain", silent: "bad", gone: "bad" };

function timesOf({ load }) {
  const known = Object.entries(TIMES).filter(([name]) => load[name] !== undefined);
  if (known.length === 0) return null;
  const idle = Math.max(0, 1 - known.reduce((sum, [name]) => sum + load[name], 0));
  const parts = known.map(([name, { text, kind }]) => ({ share: load[name], text, kind }));
  return [...parts, { share: idle, text: "idle", kind: "idle" }];
}

function timeBar(times) {
  const bar = make("div", "time");
  bar.setAttribute("aria-hidden", "true");
  for (const { share, kind } of times) {
    const part = make("i", kind);
    part.style.width = `${share * 100}%`;
    bar.append(part);
  }
  const told = times.filter(({ share }) => share >= 0.005).map(({ share, text }) => `${text} ${percent(share, 0)}`);
  return make("div", "times", bar, make("p", "note", told.join(" · ")));
}

function weightsText({ role, weights }, published) {
  if (weights === null) return "no policy yet";
  const digest = weights.digest.slice(0, 12);
  const told = `policy ${weights.version} · ${digest}`;
  if (role === "learner" || published === null) return told;
  if (weights.digest === published.digest) return `${told} · as published`;
  return weights.version < published.version
    ? `${told} · ${plural(published.version - weights.version, "version")} behind`
    : `${told} · NOT as published`;
}

function rowOf(actor, published) {
  const { name, role, restarts, doing, rssBytes, load } = actor;
  const state = stateOf(actor);
  const facts = [
    ...RATES.filter(([key]) => load[key] !== undefined).map(([key, text]) => text(load[key])),
    `${bytes(rssBytes)} memory`,
  ];
  const queues = QUEUES.filter(([key]) => load[key] !== undefined).map(([key, text]) => text(load[key]));
  const times = timesOf(actor);
  const row = make(
    "li",
    `actor ${role}`,
    make("div", "who", make("b", "", visible(name)), make("span", `chip ${CHIPS[state]}`, state)),
    make("p", "", visible(doing)),
    make(
      "p",
      "note",
      [role === "learner" || role === "sampler" ? weightsText(actor, published) : "", ...queues]
        .filter(Boolean)
        .join(" · "),
    ),
    make("p", "note", facts.join(" · ")),
    times === null ? make("p", "note", "where its time goes is not measured") : timeBar(times),
  );
  if (actor.guest) row.querySelector(".who").append(make("span", "note", "from another machine"));
  if (restarts > 0) row.querySelector(".who").append(make("span", "chip bad", plural(restarts, "restart")));
  return row;
}

/** Who waits for whom, over all of a kind. */
function summaryOf(actors) {
  const mean = (role, name) => {
    const of = actors.filter((actor) => actor.role === role && actor.load[name] !== undefined);
    return of.length === 0 ? null : of.reduce((sum, { load }) => sum + load[name], 0) / of.length;
  };
  const told = [
    ["the learner waits for episodes", mean("learner", "time/rollout")],
    ["samplers wait for tickets", mean("sampler", "time/tickets")],
    ["samplers wait for env servers", mean("sampler", "time/env")],
    ["env servers are busy", mean("env-server", "time/busy")],
  ];
  const known = told.filter(([, share]) => share !== null).map(([text, share]) => `${text} ${percent(share, 0)}`);
  return known.length === 0
    ? `${plural(actors.length, "actor")}`
    : `${known.join(", ")} of ${ended ? "the run's" : "the"} last seconds`;
}

function showActors({ atMs, actors }) {
  // Before the first telling there is nobody to show, and the page says so.
  if (atMs === null) return;
  const published = actors.find(({ role }) => role === "learner")?.weights ?? null;
  const sorted = [...actors].sort(
    (a, b) => ROLES.indexOf(a.role) - ROLES.indexOf(b.role) || a.name.localeCompare(b.name),
  );
  byId("actors").replaceChildren(...sorted.map((actor) => rowOf(actor, published)));
  put(byId("actors-summary"), summaryOf(actors));
}

const lags = new Map();

function takeLags(points) {
  for (const [name, , , value] of points) if (name.startsWith("train/lag_")) lags.set(name, value);
  const rows = LAGS.map(([name, text]) => {
    const share = lags.get(name) ?? null;
    const bar = make("i", "");
    bar.style.width = `${(share ?? 0) * 100}%`;
    return make("li", "", make("span", "", text), make("div", "", bar), make("b", "", percent(share)));
  });
  byId("lag").replaceChildren(...rows);
}

await start({
  async load(run) {
    ended = hasEnded(run);
    const [{ series }] = await Promise.all([
      read(`/api/metrics?points=4&names=${LAGS.map(([name]) => name).join(",")}`),
      charts.load(),
      read("/api/actors").then((known) => {
        told = known;
      }),
    ]);
    showActors(told);
    takeLags(series.map(({ name, actor, steps, values }) => [name, actor, steps.at(-1), values.at(-1)]));
  },
  take({ run, points, actors }) {
    charts.take(points);
    takeLags(points);
    const endsNow = hasEnded(run) && !ended;
    ended = hasEnded(run);
    if (actors !== undefined) told = actors;
    if (actors !== undefined || endsNow) showActors(told);
  },
});
