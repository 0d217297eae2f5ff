/** If some episodes cannot be stored, all other episodes are stored, and the loss is counted. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { realClock } from "../../actors/clock.ts";
import { MetricsSink } from "../../actors/metrics-sink/metrics-sink.ts";
import { Reporter } from "../../actors/metrics-sink/reporter.ts";
import { Store } from "../../actors/metrics-sink/store.ts";
import type { Answer, EpisodeRow } from "../../actors/protocol.ts";
import type { Handler, Listener, Peer } from "../../actors/transport/transport.ts";
import { playedRow, silentPeer } from "../actors/metrics-sink/fake-run.ts";
import { MemoryNetwork, MemoryTransport } from "../actors/transport/memory.ts";
import { aTurn } from "../fixtures.ts";

const FRAME_BYTES_MAX = 1 << 20;
let store: Store;
let listener: Listener | null = null;
let notices: string[];
const sinks: MetricsSink[] = [];

beforeEach(() => {
  store = new Store({ path: ":memory:", durability: "normal", wallClock: () => 0 });
  notices = [];
});
afterEach(async () => {
  await listener?.close();
  listener = null;
  for (const sink of sinks.splice(0)) sink.flush();
  store.close();
});

/** Over a transport, so that frames and connections fail as they do in a run. @returns a reporter that reconnects */
async function reporterTo(sink: Handler): Promise<Reporter> {
  const limits = { frameBytesMax: FRAME_BYTES_MAX, queuedBytesMax: 1 << 24 };
  const transport = new MemoryTransport(new MemoryNetwork(), { clock: realClock, token: "t", ...limits });
  listener = await transport.listen("memory:sink", sink);
  let peer: Peer | null = null;
  let connecting = false;
  const reporter = new Reporter({
    actor: "learner",
    sink() {
      if (peer !== null && !peer.closed) return peer;
      peer = null;
      if (!connecting) {
        connecting = true;
        void transport.connect("memory:sink", reporter).then((connected) => {
          peer = connected;
          connecting = false;
        });
      }
      return null;
    },
    clock: realClock,
    waitingMax: 100,
    rowsMax: 1000,
    frameBytesMax: FRAME_BYTES_MAX,
    askDeadlineMs: 500,
    retryMs: 2,
    notice: (level, text) => void notices.push(`${level}: ${text}`),
  });
  return reporter;
}
const realSink = () => {
  const sink = new MetricsSink({ store, actor: "metrics-sink", clock: realClock, flushMs: 5, waitingMax: 1000 });
  sinks.push(sink);
  return sink;
};

const rows = (count: number, name = "e") =>
  Array.from({ length: count }, (_, i) => playedRow({ episode: `${name}${i}` }));
const withObservation = (row: EpisodeRow, bytes: number): EpisodeRow => ({
  ...row,
  outcome: { ...row.outcome, finalObservation: "x".repeat(bytes) } as EpisodeRow["outcome"],
});
const among = (good: EpisodeRow[], ...bad: EpisodeRow[]) => [...good.slice(0, 57), ...bad, ...good.slice(57)];
const storedNames = () => {
  const { rows } = store.episodes({}, { limit: 1000 });
  return rows.map(({ episode }) => episode).sort();
};
const names = (list: EpisodeRow[]) => list.map(({ ticket }) => ticket.episode).sort();
/** Expects these episodes, and no others, in the store, and that so many were lost. */
async function expectStored(reporter: Reporter, stored: EpisodeRow[], lost: number): Promise<void> {
  expect(await reporter.drain(5000)).toMatchObject({ rows: 0 });
  expect([storedNames(), reporter.lost]).toEqual([names(stored), lost]);
}

test("episodes after one that was lost alone are stored", async () => {
  const reporter = await reporterTo(realSink());
  await reporter.episodes([{ ...playedRow({ episode: "bad" }), advantage: Number.NaN }]);
  await reporter.episodes(rows(2));
  expect(await reporter.drain(2000)).toMatchObject({ rows: 0 });
  expect([storedNames(), reporter.lost]).toEqual([["e0", "e1"], 1]);
});

describe("the others are stored, and the loss is counted", () => {
  test("an advantage that is not finite", async () => {
    const reporter = await reporterTo(realSink());
    const good = rows(300);
    await reporter.episodes(among(good, { ...playedRow({ episode: "bad" }), advantage: Number.POSITIVE_INFINITY }));
    await expectStored(reporter, good, 1);
    expect(notices).toEqual([expect.stringMatching(/^warning: episode bad cannot be stored and is lost: .*advantage/)]);
    expect(store.events({ limit: 9 }, { kind: "lost" })).toHaveLength(1);
  });

  test("one episode larger than a frame", async () => {
    const reporter = await reporterTo(realSink());
    const good = rows(100);
    await reporter.episodes(among(good, withObservation(playedRow({ episode: "bad" }), 2 * FRAME_BYTES_MAX)));
    await expectStored(reporter, good, 1);
  });

  test("one that the sink refuses", async () => {
    const reporter = await reporterTo(realSink());
    const good = rows(100);
    const bad = playedRow({ episode: "bad" });
    // sqlite stores NaN as NULL, and the column takes none.
    const write = store.write.bind(store);
    store.write = (batch) =>
      write({
        ...batch,
        episodes: batch.episodes.map((row) =>
          row.ticket.episode === "bad" ? { ...row, ticket: { ...row.ticket, temperature: Number.NaN } } : row,
        ),
      });
    await reporter.episodes(among(good, bad));
    await expectStored(reporter, good, 1);
  });

  test("one that makes the sink close the connection each time", async () => {
    const sink = realSink();
    const reporter = await reporterTo({
      told: (peer, message) => sink.told(peer, message),
      asked(peer, message): Answer {
        if (message.type === "episodes" && message.rows.some(({ ticket }) => ticket.episode === "bad")) {
          throw new Error("a bug of the sink");
        }
        return sink.asked(peer, message as never);
      },
    });
    const good = rows(100);
    await reporter.episodes(among(good, playedRow({ episode: "bad" })));
    await expectStored(reporter, good, 1);
  });
});

test("episodes that are large together go in several messages, and none is lost", async () => {
  const reporter = await reporterTo(realSink());
  const large = rows(100).map((row) => withObservation(row, FRAME_BYTES_MAX / 20));
  await reporter.episodes(large);
  await expectStored(reporter, large, 0);
  expect(notices).toEqual([]);
});

test("episodes of many short turns, whose names weigh more than their texts, go in several messages", async () => {
  const reporter = await reporterTo(realSink());
  const turns = Array.from({ length: 200 }, () => aTurn());
  const many = rows(100).map((row) => ({ ...row, outcome: { ...row.outcome, turns } as EpisodeRow["outcome"] }));
  await reporter.episodes(many);
  await expectStored(reporter, many, 0);
});

test("a sink tells rows that it can never store from a disk that is full now", () => {
  const bad = playedRow({ episode: "bad", temperature: Number.NaN });
  expect(realSink().asked(silentPeer, { type: "episodes", rows: [bad] })).toMatchObject({
    type: "failed",
    code: "protocol",
    detail: expect.stringContaining("cannot store 1 episodes: NOT NULL constraint failed: episodes.temperature"),
  });
});
