/**
 * The page's script: reads the run once, then follows its stream, and tells the parts of the page what is new.
 *
 * - A lost connection is shown, and resumed by the browser from the last message: nothing is missed.
 */
import { CHARTED, Charts } from "./charts.js";
import { Episodes } from "./episodes.js";
import { visible } from "./text.ts";

const EVENTS_MAX = 50;

const byId = (id) => document.getElementById(id);
const percent = (share) => (share === null ? "–" : `${(share * 100).toFixed(1)} %`);
const put = (id, text) => {
  // Only a change is written, so that screen readers and selections are left in peace.
  if (byId(id).textContent !== text) byId(id).textContent = text;
};

const charts = new Charts();
const episodes = new Episodes();
let view = null;
/** When `view` came, on the page's clock. */
let seenAt = 0;

function elapsedText(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  const pair = (count) => String(count).padStart(2, "0");
  return `${Math.floor(seconds / 3600)}:${pair(Math.floor(seconds / 60) % 60)}:${pair(seconds % 60)}`;
}

function showElapsed() {
  if (view === null) return;
  const since = view.phase === "finished" ? 0 : performance.now() - seenAt;
  put("elapsed", elapsedText(view.aliveMs + since));
}

function showScale({ random, taught, before, now, best }) {
  const mark = (kind, share) => {
    const element = document.createElement("i");
    element.className = kind;
    element.style[kind === "fill" ? "width" : "left"] = `${share * 100}%`;
    return element;
  };
  const marks = Object.entries({ fill: now, random, taught, before, best }).filter(([, share]) => share !== null);
  byId("scale").replaceChildren(...marks.map(([kind, share]) => mark(kind, share)));
}

function showRun(next) {
  // Another run took this port: everything on the page is of the old one.
  if (view !== null && next.run !== view.run) location.reload();
  view = next;
  seenAt = performance.now();
  put("engine", next.engine === null ? "engine not chosen yet" : visible(next.engine));
  put(
    "update",
    next.update === null ? "–" : next.updates === null ? `${next.update}` : `${next.update} of ${next.updates}`,
  );
  put("speed-now", next.tokensPerSecond === null ? "–" : Math.round(next.tokensPerSecond).toLocaleString("en"));
  put("status", visible(next.status));
  const hero = byId("success-plot");
  if ("empty" in hero.dataset) hero.dataset.empty = visible(next.status);
  byId("state").dataset.phase = next.phase;
  byId("progress").value = next.progress ?? 0;
  for (const name of ["random", "taught", "before", "now", "best"]) put(`number-${name}`, percent(next.success[name]));
  put(
    "now-note",
    next.success.nowUpdate === null ? "latest validation" : `validation at update ${next.success.nowUpdate}`,
  );
  showScale(next.success);
  showElapsed();
  document.title = `${next.success.now === null ? "" : `${percent(next.success.now)} · `}${next.run} · Bunraku`;
}

/** Newest first. */
function takeEvents(events) {
  const list = byId("events");
  const rows = events.map(({ id, atMs, actor, level, text }) => {
    const row = document.createElement("li");
    row.dataset.id = id;
    row.dataset.level = level;
    const time = document.createElement("time");
    time.dateTime = new Date(atMs).toISOString();
    time.textContent = new Date(atMs).toLocaleTimeString("en-GB");
    const body = document.createElement("p");
    body.textContent = visible(text);
    const who = document.createElement("span");
    who.className = "note";
    who.textContent = level === "info" ? visible(actor) : `${visible(actor)} · ${level}`;
    row.append(time, body, who);
    return row;
  });
  list.prepend(...rows.filter(({ dataset }) => list.querySelector(`[data-id="${dataset.id}"]`) === null));
  while (list.children.length > EVENTS_MAX) list.lastElementChild.remove();
}

function showLink(state) {
  byId("link").dataset.state = state;
  put("link", state);
}

const read = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return answer.json();
};

function follow(cursor) {
  const stream = new EventSource(`/api/stream?since=${cursor}`);
  stream.addEventListener("open", () => showLink("live"));
  stream.addEventListener("error", () => showLink("reconnecting"));
  stream.addEventListener("news", ({ data }) => {
    const news = JSON.parse(data);
    showRun(news.run);
    charts.take(news.points.map(([name, , step, value]) => [name, step, value]));
    takeEvents(news.events);
    void episodes.take(news.episodes);
  });
}

async function start() {
  // The cursor first: what is stored while the rest is read comes again in the stream, and nothing is missed.
  const run = await read("/api/run");
  showRun(run);
  const [{ series }, { events }] = await Promise.all([
    read(`/api/metrics?names=${CHARTED.join(",")}`),
    read(`/api/events?limit=${EVENTS_MAX}`),
    episodes.load(),
  ]);
  charts.take(series.flatMap(({ name, steps, values }) => steps.map((step, i) => [name, step, values[i]])));
  takeEvents(events);
  follow(run.cursor);
}

setInterval(showElapsed, 1000);
start().catch((error) => {
  showLink("lost");
  put("status", `This page could not read the run: ${error.message}. Reload it to try again.`);
});
