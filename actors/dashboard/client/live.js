/**
 * What the scripts of all pages share: read the run once, then follow its stream, and tell the page what is new.
 *
 * - A lost connection is shown, with what to do, and resumed by the browser from the last message: nothing is missed.
 */
import { byId, percent, put, read } from "./dom.js";
import { visible } from "./text.ts";

let view = null;
/** When `view` came, on the page's clock. */
let seenAt = 0;

function elapsedText(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  const pair = (count) => String(count).padStart(2, "0");
  return `${Math.floor(seconds / 3600)}:${pair(Math.floor(seconds / 60) % 60)}:${pair(seconds % 60)}`;
}

/** Nothing new will come. */
export const hasEnded = ({ phase }) => phase === "finished" || phase === "silent";

function showElapsed() {
  if (view === null) return;
  const since = hasEnded(view) ? 0 : performance.now() - seenAt;
  put(byId("elapsed"), elapsedText(view.aliveMs + since));
}

function showRun(next) {
  // Another run took this port: everything on the page is of the old one.
  if (view !== null && next.run !== view.run) location.reload();
  view = next;
  seenAt = performance.now();
  const { update, updates, tokensPerSecond, success, alarm } = next;
  put(byId("engine"), next.engine === null ? "engine not chosen yet" : visible(next.engine));
  put(byId("update"), update === null ? "–" : updates === null ? `${update}` : `${update} of ${updates}`);
  put(byId("speed-now"), tokensPerSecond === null ? "–" : Math.round(tokensPerSecond).toLocaleString("en"));
  put(byId("status"), visible(next.status));
  byId("state").dataset.phase = next.phase;
  byId("progress").value = next.progress ?? 0;
  byId("alarm-badge").dataset.level = alarm?.level ?? "none";
  byId("alarm-badge").title = alarm === null ? "" : visible(alarm.text);
  showElapsed();
  document.title = `${success.now === null ? "" : `${percent(success.now)} · `}${next.run} · Bunraku`;
}

function showLink(state) {
  byId("link").dataset.state = state;
  put(byId("link"), state);
}

/** True where a key belongs to what is typed into. */
export const isTyping = ({ target }) =>
  target.matches?.("input:not([type=radio]):not([type=checkbox]), select, textarea");

function listenToKeys() {
  const links = [...document.querySelectorAll(".pages a")];
  byId("show-keys").addEventListener("click", () => byId("keys").showModal());
  document.addEventListener("keydown", (event) => {
    if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    if (event.key === "?") byId("keys").showModal();
    else links[Number(event.key) - 1]?.click();
  });
}

function showLive() {
  showLink("live");
  put(byId("status"), visible(view.status));
}

/** The page is served by its run, so it ends with it. */
function showLost() {
  const ended = hasEnded(view);
  showLink(ended ? "ended" : "reconnecting");
  const advice = ended
    ? `${visible(view.status)}. The run is over; to see it again: bun run page FOLDER`
    : "The run does not answer; trying again. If it was stopped: bun run cluster --resume FOLDER";
  put(byId("status"), advice);
}

function follow(cursor, take) {
  const stream = new EventSource(`/api/stream?since=${cursor}`);
  stream.addEventListener("open", showLive);
  stream.addEventListener("error", showLost);
  stream.addEventListener("news", ({ data }) => {
    const news = JSON.parse(data);
    showRun(news.run);
    take(news);
  });
}

/**
 * @param load  fills the page; what is stored meanwhile comes again in the stream, so nothing is missed
 * @param take  is given each message of the stream
 */
export async function start({ load, take }) {
  listenToKeys();
  setInterval(showElapsed, 1000);
  try {
    const run = await read("/api/run");
    showRun(run);
    await load(run);
    follow(run.cursor, take);
  } catch (error) {
    showLink("lost");
    put(byId("status"), `This page could not read the run: ${error.message}. Reload it to try again.`);
  }
}
