/**
 * The live stream of a run (server-sent events). It sends the data that the store got after a cursor (a position in the record), and then new
 * data after each commit.
 *
 * - There is no queue: a slow reader gets fewer and larger messages.
 * - The id of a message is the cursor after that message. A reader that reconnects continues at this cursor (`Last-Event-ID`).
 * - A cursor beyond the end of the record comes from an earlier record at this port or folder. Then the stream sends all data.
 * - The stream also sends a message when only the run's phase changes, for example to `silent` (overview.ts).
 * - The stream sends every metric value. A message has at most the newest `EVENTS_MAX` events and `EPISODES_MAX` episodes.
 */
import type { SSEStreamingApi } from "hono/streaming";
import type { Clock } from "../clock.ts";
import type { Cursor } from "../metrics-sink/records.ts";
import type { Store } from "../metrics-sink/store.ts";
import type { News, Overview } from "./answers.ts";
import { overviewOf } from "./overview.ts";

const POINTS_MAX = 5000;
const EVENTS_MAX = 100;
const EPISODES_MAX = 20;
/** Proxies and browsers close a silent connection after 30 to 60 s. */
const KEEP_ALIVE_MS = 15_000;

export const cursorText = ({ points, events, episodes }: Cursor): string => `${points}.${events}.${episodes}`;

export function parseCursor(text: string): Cursor {
  const [points, events, episodes] = text.split(".").map(Number) as [number, number, number];
  return { points, events, episodes };
}

const isBeyond = (cursor: Cursor, end: Cursor): boolean =>
  cursor.points > end.points || cursor.events > end.events || cursor.episodes > end.episodes;

export interface StreamOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly since: Cursor;
  readonly signal: AbortSignal;
}

/** Sends the stream. The promise resolves when the reader disconnects or `signal` aborts. */
export async function streamRun(
  stream: SSEStreamingApi,
  { store, clock, since, signal }: StreamOptions,
): Promise<void> {
  const cursor = isBeyond(since, store.cursor()) ? { points: 0, events: 0, episodes: 0 } : since;
  // A new report of the actors replaces the previous report, so a reader gets only the newest report.
  let sent: Sent = { cursor, actorsAtMs: 0, phase: overviewOf(store)?.phase };
  let wake = () => {};
  const unsubscribe = store.subscribe(() => wake());
  const onAbort = () => wake();
  stream.onAbort(onAbort);
  signal.addEventListener("abort", onAbort);
  try {
    // The server sends the headers with the first bytes. Without bytes the reader would not know that it is connected.
    await stream.write(": connected\n\n");
    while (!stream.aborted && !signal.aborted) {
      // Make this promise before the read, so that a commit during the read starts the next round.
      const changed = Promise.withResolvers<void>();
      wake = changed.resolve;
      const next = await sendNews(stream, store, sent);
      if (next !== null) {
        sent = next;
        // Read again at once: the store may have more data than fits into one message.
        continue;
      }
      const cancel = clock.after(KEEP_ALIVE_MS, () => void stream.write(": still here\n\n").then(wake));
      await changed.promise;
      cancel();
    }
  } finally {
    unsubscribe();
    signal.removeEventListener("abort", onAbort);
  }
}

interface Sent {
  readonly cursor: Cursor;
  readonly actorsAtMs: number;
  /** Undefined until a run starts in this store. */
  readonly phase: Overview["phase"] | undefined;
}

/** Sends the data that is new since the last round. @returns what it sent; null if nothing was new */
async function sendNews(
  stream: SSEStreamingApi,
  store: Store,
  { cursor, actorsAtMs, phase }: Sent,
): Promise<Sent | null> {
  const points = store.points(cursor.points, POINTS_MAX);
  const events = store.events({ since: cursor.events, limit: EVENTS_MAX });
  const { rows: episodes } = store.episodes({}, { since: cursor.episodes, limit: EPISODES_MAX });
  const known = store.actors();
  const actors = known !== null && known.atMs > actorsAtMs ? known : null;
  const run = overviewOf(store);
  if (points.length + events.length + episodes.length === 0 && actors === null && run?.phase === phase) return null;
  const next: Cursor = {
    points: points.at(-1)?.id ?? cursor.points,
    // Events and episodes are newest first.
    events: events[0]?.id ?? cursor.events,
    episodes: episodes[0]?.id ?? cursor.episodes,
  };
  const message: News = {
    run: run!,
    points: points.map(({ name, actor, step, value }) => [name, actor, step, value]),
    events,
    episodes,
    ...(actors !== null && { actors: { atMs: actors.atMs, actors: [...actors.actors] } }),
  };
  await stream.writeSSE({ event: "news", id: cursorText(next), data: JSON.stringify(message) });
  return { cursor: next, actorsAtMs: actors?.atMs ?? actorsAtMs, phase: run!.phase };
}
