/** An actor's metrics and events arrive in order, or the reporter counts them as lost. Episodes arrive, however long the sink takes. */
import { beforeEach, describe, expect, test } from "bun:test";
import { Reporter } from "../../../actors/metrics-sink/reporter.ts";
import type { Answer, Ask, EpisodeRow, Tell } from "../../../actors/protocol.ts";
import type { Peer } from "../../../actors/transport/transport.ts";
import { FakeClock } from "../fake-clock.ts";
import { playedRow } from "./fake-run.ts";

/** A sink that can be away, busy or full. */
class FakeSink {
  readonly told: Tell[] = [];
  readonly rows: string[] = [];
  away = false;
  queuedBytes = 0;
  full = false;
  closed = false;
  /** Why a message with these episodes is not stored; null: it is. */
  refusal: (names: readonly string[]) => Extract<Answer, { type: "failed" }>["code"] | null = () => null;
  asks = 0;
  /** Rows of each message. */
  readonly sizes: number[] = [];

  readonly peer = (): Peer | null =>
    this.away
      ? null
      : ({
          name: "sink",
          closed: this.closed,
          queuedBytes: this.queuedBytes,
          close: () => {},
          tell: (message: Tell) => void this.told.push(message),
          ask: async (message: Ask) => this.#answer(message),
        } as Peer);

  #answer(message: Ask): Answer {
    this.asks++;
    if (message.type !== "episodes") throw new Error("not what a reporter asks");
    this.sizes.push(message.rows.length);
    if (this.full) return { type: "failed", code: "capacity", detail: "the disk is full." };
    const code = this.refusal(message.rows.map(({ ticket }) => ticket.episode));
    if (code !== null) return { type: "failed", code, detail: "not these." };
    this.rows.push(...message.rows.map(({ ticket }) => ticket.episode));
    return { type: "episodes.stored", count: message.rows.length };
  }
}

let clock: FakeClock;
let sink: FakeSink;
let reporter: Reporter;
let notices: string[];
beforeEach(() => {
  [clock, sink, notices] = [new FakeClock(), new FakeSink(), []];
  reporter = new Reporter({
    actor: "learner",
    sink: sink.peer,
    clock,
    frameBytesMax: 1 << 20,
    waitingMax: 5,
    rowsMax: 10,
    askDeadlineMs: 1000,
    retryMs: 100,
    notice: (level, text) => void notices.push(`${level}: ${text}`),
  });
});

const settle = async () => {
  for (let i = 0; i < 20; i++) await new Promise((next) => setImmediate(next));
};
const after = async (ms: number) => {
  clock.advance(ms);
  await settle();
};
const steps = () => sink.told.map((message) => (message.type === "metrics" ? message.step : message.type));
const rows = (count: number, name = "e") =>
  Array.from({ length: count }, (_, i) => playedRow({ episode: `${name}${i}` }));
const note = (step: number) => reporter.metrics(step, { "train/success": 0.5 });

describe("metrics and events", () => {
  test("go to the sink at once", () => {
    note(1);
    reporter.event("warning", "skipped", "nothing to learn");
    expect(sink.told).toEqual([
      { type: "metrics", actor: "learner", step: 1, values: { "train/success": 0.5 } },
      { type: "event", actor: "learner", level: "warning", kind: "skipped", text: "nothing to learn" },
    ]);
  });

  test("wait while the sink is away, and arrive in their order", () => {
    sink.away = true;
    for (const step of [1, 2, 3]) note(step);
    sink.away = false;
    note(4);
    expect(steps()).toEqual([1, 2, 3, 4]);
  });

  test("wait while the sink is behind, and no later one overtakes them", () => {
    sink.queuedBytes = 2 ** 21;
    for (const step of [1, 2]) note(step);
    expect(steps()).toEqual([]);
    sink.queuedBytes = 0;
    reporter.opened();
    note(3);
    expect(steps()).toEqual([1, 2, 3]);
  });

  test("wait while a closed connection to the sink is still known", () => {
    sink.closed = true;
    note(1);
    expect([steps(), reporter.waiting.messages]).toEqual([[], 1]);
    sink.closed = false;
    note(2);
    expect(steps()).toEqual([1, 2]);
  });

  test("that are long are cut to what a message may hold", () => {
    reporter.event("info", "phase", "x".repeat(5000));
    expect(sink.told).toMatchObject([{ text: "x".repeat(4096) }]);
  });

  test("that are too many drop the oldest, which the next one that gets through tells", () => {
    sink.away = true;
    for (let step = 1; step <= 8; step++) note(step);
    sink.away = false;
    reporter.opened();
    expect(steps()).toEqual([4, "event", 5, 6, 7, 8]);
    expect(sink.told[1]).toMatchObject({
      level: "warning",
      kind: "dropped",
      text: "3 metrics and events of learner were dropped while the sink was away",
    });
  });

  test("are checked where they are made", () => {
    expect(() => reporter.metrics(1, { "train/success": Number.NaN })).toThrow("train/success is NaN");
    expect(() => reporter.metrics(1, { sucess: 1 } as never)).toThrow('no metric named "sucess"');
  });
});

describe("episodes", () => {
  test("are stored in their order, whole messages at a time", async () => {
    await reporter.episodes(rows(300).slice(0, 5));
    await settle();
    expect(sink.rows).toEqual(["e0", "e1", "e2", "e3", "e4"]);
    await reporter.episodes(rows(300));
    await settle();
    expect([sink.rows.length, sink.asks]).toEqual([305, 4]);
  });

  test("are at most 128 in a message, and fill at most an eighth of a frame", async () => {
    const small = rows(300).map((row) => ({ ...row, outcome: { status: "aborted", detail: "lost" } as const }));
    await reporter.episodes(small);
    await settle();
    expect(sink.sizes.splice(0)).toEqual([128, 128, 44]);
    // Two of 60,000 bytes fit 131,072 bytes, three do not.
    await reporter.episodes(
      small.slice(0, 5).map((row) => ({ ...row, outcome: { ...row.outcome, detail: "x".repeat(60_000) } })),
    );
    await settle();
    expect(sink.sizes).toEqual([2, 2, 1]);
  });

  test("wait for a sink that is away", async () => {
    sink.away = true;
    await reporter.episodes(rows(3));
    await after(500);
    sink.away = false;
    await after(100);
    expect(sink.rows).toEqual(["e0", "e1", "e2"]);
  });

  test("that cannot be stored are kept, with one notice when it starts and one when it ends", async () => {
    sink.full = true;
    await reporter.episodes(rows(3));
    for (let i = 0; i < 5; i++) await after(100);
    expect([sink.rows, notices]).toEqual([
      [],
      ["warning: the disk is full. The learner keeps its episodes until the sink can store them."],
    ]);
    sink.away = true;
    for (let i = 0; i < 5; i++) await after(100);
    expect(notices.length).toBe(1);
    [sink.away, sink.full] = [false, false];
    await after(100);
    expect([sink.rows.length, notices.at(-1)]).toEqual([3, "info: episodes can be stored again"]);
  });

  test("that cannot be stored are kept however often they are refused, also a single one", async () => {
    sink.full = true;
    await reporter.episodes(rows(1));
    for (let i = 0; i < 30; i++) await after(100);
    expect([sink.asks, reporter.lost]).toEqual([31, 0]);
    sink.full = false;
    await after(100);
    expect([sink.rows, reporter.lost]).toEqual([["e0"], 0]);
  });

  test("beyond what may wait make their reporter wait, which says so once", async () => {
    sink.full = true;
    await reporter.episodes(rows(10, "first"));
    await settle();
    let done = false;
    const waiting = reporter.episodes(rows(1, "more")).then(() => {
      done = true;
    });
    await after(1000);
    expect(done).toBe(false);
    sink.full = false;
    await after(100);
    await waiting;
    expect(sink.rows.length).toBe(11);
    expect(notices).toEqual([
      "warning: the disk is full. The learner keeps its episodes until the sink can store them.",
      "warning: training waits until the sink can store 11 episodes",
      "info: episodes can be stored again",
    ]);
  });
});

test("episodes that fill more than four frames make their reporter wait", async () => {
  sink.full = true;
  const large = rows(5).map((row) => ({
    ...row,
    outcome: { ...row.outcome, finalObservation: "x".repeat(900_000) } as EpisodeRow["outcome"],
  }));
  await reporter.episodes(large.slice(0, 4));
  let done = false;
  const waiting = reporter.episodes(large.slice(4)).then(() => {
    done = true;
  });
  await after(1000);
  expect(done).toBe(false);
  sink.full = false;
  for (let i = 0; i < 5; i++) await after(100);
  await waiting;
  expect(sink.rows.length).toBe(5);
});

describe("draining", () => {
  test("waits until everything has arrived", async () => {
    sink.away = true;
    note(1);
    await reporter.episodes(rows(2));
    const drained = reporter.drain(1000);
    await after(300);
    sink.away = false;
    await after(100);
    await after(100);
    expect(await drained).toEqual({ rows: 0, messages: 0 });
    expect([steps(), sink.rows]).toEqual([[1], ["e0", "e1"]]);
    expect(clock.waitingMs).toEqual([]);
  });

  test("ends in time, and says what is left", async () => {
    sink.away = true;
    note(1);
    await reporter.episodes(rows(2));
    const drained = reporter.drain(1000);
    for (let i = 0; i < 12; i++) await after(100);
    expect(await drained).toEqual({ rows: 2, messages: 1 });
  });
});

describe("an episode that can never be stored", () => {
  test("is found by halves without a pause and lost alone; then messages grow again", async () => {
    sink.refusal = (names) => (names.includes("e0") ? "protocol" : null);
    await reporter.episodes(rows(128).map((row) => ({ ...row, outcome: { status: "aborted", detail: "x" } as const })));
    await settle();
    await settle();
    expect(sink.sizes).toEqual([128, 64, 32, 16, 8, 4, 2, 1, 1, 2, 4, 8, 16, 32, 64]);
    expect([sink.rows.length, reporter.lost]).toEqual([127, 1]);
    expect(notices).toEqual(["warning: episode e0 cannot be stored and is lost: not these."]);
  });

  test("is one larger than a frame, even if the sink only says that it has no room", async () => {
    const [small, large] = rows(2);
    const finalObservation = "x".repeat(1_000_000);
    sink.refusal = (names) => (names.includes("e1") ? "capacity" : null);
    await reporter.episodes([
      small!,
      { ...large!, outcome: { ...large!.outcome, finalObservation } as EpisodeRow["outcome"] },
    ]);
    await settle();
    expect([sink.rows, reporter.lost]).toEqual([["e0"], 1]);
  });

  test("is one that ends the connection 11 times while it is alone", async () => {
    sink.refusal = () => "closed";
    await reporter.episodes(rows(2));
    // Two are cut once together, then each alone.
    for (let i = 0; i < 11; i++) await after(100);
    expect([sink.asks, reporter.lost]).toEqual([12, 1]);
    expect(notices).toEqual(["warning: episode e0 cannot be stored and is lost: it ended the connection 11 times"]);
    for (let i = 0; i < 10; i++) await after(100);
    expect(reporter.lost).toBe(1);
    await after(100);
    expect(reporter.lost).toBe(2);
  });

  test("is none whose cuts, with those of one that was stored before, are as many", async () => {
    const cuts: Record<string, number> = { e0: 6, e1: 6 };
    sink.refusal = (names) => (names.length > 1 || cuts[names[0]!]!-- > 0 ? "closed" : null);
    await reporter.episodes(rows(2));
    for (let i = 0; i < 15; i++) await after(100);
    expect([sink.rows, reporter.lost]).toEqual([["e0", "e1"], 0]);
  });

  test("has a notice each up to 20; more are only counted", async () => {
    sink.refusal = () => "protocol";
    await reporter.episodes(rows(25));
    await settle();
    expect([notices.length, reporter.lost]).toEqual([20, 25]);
  });
});

test("a late or closed sink is no refusal, which would have a notice", async () => {
  sink.refusal = () => (sink.asks % 2 === 0 ? "deadline" : "closed");
  await reporter.episodes(rows(3));
  for (let i = 0; i < 6; i++) await after(100);
  expect(notices).toEqual([]);
});

test("all metrics are shown to who watches too", () => {
  const seen: unknown[] = [];
  sink.away = true;
  const watch = (step: number, values: object) => void seen.push([step, values]);
  const options = { actor: "learner", sink: sink.peer, clock, frameBytesMax: 1 << 20, waitingMax: 1, rowsMax: 1 };
  const watched = new Reporter({ ...options, askDeadlineMs: 1000, retryMs: 100, notice() {}, watch });
  for (const step of [1, 2]) watched.metrics(step, { "train/success": 0.5 });
  expect(seen).toEqual([1, 2].map((step) => [step, { "train/success": 0.5 }]));
});
