/**
 * The script of each page of a run calls `start`. `start` reads the run once, follows the run's stream, and gives new data to the script.
 *
 * - If the connection is lost, the page says so and says what to do. The browser reconnects, and the stream resumes after the last message.
 */
import { percent, whole } from "../../number-text.ts";
import type { News, Overview, RunAnswer } from "../answers.ts";
import { read } from "./api.ts";
import { byId, put } from "./dom.ts";
import { visible } from "./text.ts";

/** Wait before the page asks again for a stream that the server refused. If a stream was cut, the browser reconnects without the page's help. */
const AGAIN_MS = 3000;

/** The newest overview, and the time of its arrival on the page's clock. */
let overview: Overview | null = null;
let overviewAtMs = 0;

function elapsedText(milliseconds: number): string {
  const seconds = Math.floor(milliseconds / 1000);
  const pair = (count: number) => String(count).padStart(2, "0");
  return `${Math.floor(seconds / 3600)}:${pair(Math.floor(seconds / 60) % 60)}:${pair(seconds % 60)}`;
}

/** True if the run has ended, or counts as stopped because it has written nothing for a long time. */
export const hasEnded = ({ phase }: Overview): boolean => phase === "finished" || phase === "silent";

function showElapsed(): void {
  if (overview === null) return;
  const sinceMs = hasEnded(overview) ? 0 : performance.now() - overviewAtMs;
  put(byId("elapsed"), elapsedText(overview.aliveMs + sinceMs));
}

function showRun(next: Overview): void {
  // Another run uses this port now, and all data on the page belongs to the old run.
  if (overview !== null && next.run !== overview.run) location.reload();
  overview = next;
  overviewAtMs = performance.now();
  const { update, updates, tokensPerSecond, success, alarm } = next;
  put(byId("engine"), next.engine === null ? "engine not chosen yet" : visible(next.engine));
  put(byId("update"), update === null ? "–" : updates === null ? `${update}` : `${update} of ${updates}`);
  put(byId("speed-now"), tokensPerSecond === null ? "–" : whole(tokensPerSecond));
  put(byId("status"), visible(next.status));
  byId("state").dataset["phase"] = next.phase;
  byId<HTMLProgressElement>("progress").value = next.progress ?? 0;
  byId("alarm-badge").dataset["level"] = alarm?.level ?? "none";
  byId("alarm-badge").title = alarm === null ? "" : visible(alarm.text);
  showElapsed();
  document.title = `${success.now === null ? "" : `${percent(success.now)} · `}${next.run} · Bunraku`;
}

function showConnection(state: "live" | "recorded" | "reconnecting" | "ended" | "lost"): void {
  byId("link").dataset["state"] = state;
  put(byId("link"), state);
}

const showConnected = (run: Overview) => showConnection(hasEnded(run) ? "recorded" : "live");

function showLost(run: Overview): void {
  const ended = hasEnded(run);
  showConnection(ended ? "ended" : "reconnecting");
  const advice = ended
    ? `${visible(run.status)} · This page is no longer served; to open the run's record: bun run page FOLDER`
    : "The run does not answer; reconnecting. If it has stopped, continue it: bun run cluster --resume FOLDER";
  put(byId("status"), advice);
}

/** True if the event's target is a field that takes keys. */
export const isTyping = ({ target }: Event): boolean =>
  (target as Element).matches?.("input:not([type=radio]):not([type=checkbox]), select, textarea") ?? false;

export const hasModifier = ({ ctrlKey, metaKey, altKey }: KeyboardEvent): boolean => ctrlKey || metaKey || altKey;

function listenToKeys(): void {
  const links = document.querySelectorAll<HTMLAnchorElement>(".pages a");
  const keys = byId<HTMLDialogElement>("keys");
  byId("show-keys").addEventListener("click", () => keys.showModal());
  document.addEventListener("keydown", (event) => {
    if (isTyping(event) || hasModifier(event) || keys.open) return;
    if (event.key === "?") keys.showModal();
    else links[Number(event.key) - 1]?.click();
  });
}

/** True if a number in cursor `one` is below the number at the same place in `other`. The numbers of one record never fall. */
function isBefore(one: string, other: string): boolean {
  const parts = other.split(".").map(Number);
  return one.split(".").some((part, i) => Number(part) < parts[i]!);
}

function follow(cursor: string, take: (news: News) => void): void {
  let last = cursor;
  const stream = new EventSource(`api/stream?since=${cursor}`);
  stream.addEventListener("open", () => {
    showConnected(overview!);
    put(byId("status"), visible(overview!.status));
  });
  stream.addEventListener("error", () => {
    showLost(overview!);
    // After an error status a browser does not reconnect. For example, a proxy in front of the run sends such a status while the run restarts.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => follow(last, take), AGAIN_MS);
  });
  stream.addEventListener("news", ({ data, lastEventId }) => {
    // A new record has begun under the same name, and all data on the page belongs to the old record.
    if (isBefore(lastEventId, last)) location.reload();
    last = lastEventId;
    const news: News = JSON.parse(data);
    showRun(news.run);
    showConnected(news.run);
    take(news);
  });
}

/**
 * @param load  fills the page. The stream then also sends the data that the run stored during `load`
 * @param take  gets each message of the stream
 */
export async function start(load: (run: RunAnswer) => Promise<unknown>, take: (news: News) => void): Promise<void> {
  listenToKeys();
  setInterval(showElapsed, 1000);
  try {
    const run = await read("api/run");
    showRun(run);
    await load(run);
    follow(run.cursor, take);
  } catch (error) {
    showConnection("lost");
    put(byId("status"), `Cannot read the run: ${(error as Error).message}. Reload the page to try again.`);
  }
}
