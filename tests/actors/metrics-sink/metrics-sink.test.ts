import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import fc from "fast-check";
import { MetricsSink } from "../../../actors/metrics-sink/metrics-sink.ts";
import { Store } from "../../../actors/metrics-sink/store.ts";
import type { EpisodeRow } from "../../../actors/protocol.ts";
import { costsOf } from "../../../actors/record/costs.ts";
import { newestUpdate, seriesOf } from "../../../actors/record/newest-update.ts";
import { sayHello, welcoming } from "../../../actors/transport/handshake.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { FakeClock } from "../fake-clock.ts";
import { MemoryNetwork, MemoryTransport } from "../transport/memory.ts";
import { actorView, playedRow, silentPeer, ticketOf } from "./fake-run.ts";

let directory: string;
let store: Store;
let clock: FakeClock;
let sink: MetricsSink;
const openStore = (bytesMax?: number) =>
  new Store({
    path: join(directory, "run.sqlite"),
    durability: "normal",
    wallClock: () => 1_700_000_000_000,
    ...(bytesMax && { bytesMax }),
  });
const sinkOver = (store: Store, waitingMax = 1000) =>
  new MetricsSink({ store, actor: "metrics-sink", clock, flushMs: 250, waitingMax });

beforeEach(() => {
  directory = temporaryFolder();
  store = openStore();
  clock = new FakeClock();
  sink = sinkOver(store);
});
afterEach(() => store.close());

const tellMetrics = (values: Record<string, number>, step = 1, actor = "learner") =>
  sink.told(silentPeer, { type: "metrics", actor, step, values });
const askEpisodes = (rows: EpisodeRow[]) => sink.asked(silentPeer, { type: "episodes", rows });

describe("over a transport", () => {
  test("takes metrics and episodes of an actor after its hello, in the order they were sent", async () => {
    const transport = new MemoryTransport(new MemoryNetwork(), {
      clock,
      token: "t",
      frameBytesMax: 1 << 20,
      queuedBytesMax: 1 << 21,
    });
    const listener = await transport.listen("memory:sink", welcoming("run-1", sink));
    const peer = await transport.connect("memory:sink", { told() {}, asked: () => Promise.reject(new Error("asked")) });
    expect(await sayHello(peer, { actor: "learner", role: "learner", url: null }, 1000)).toBe("run-1");
    peer.tell({ type: "metrics", actor: "learner", step: 3, values: { "train/success": 0.5 } });
    const row = playedRow({ episode: "e9" });
    expect(await peer.ask({ type: "episodes", rows: [row] }, 1000)).toEqual({ type: "episodes.stored", count: 1 });
    // The metrics came first, so they were committed with the episodes at the latest.
    expect(store.latest()).toEqual([{ name: "train/success", actor: "learner", step: 3, value: 0.5 }]);
    expect(store.episode(1)!.row).toEqual(row);
    await listener.close();
  });
});

describe("actors", () => {
  test("are kept as last told, and what they measure belongs to the update that the run is at", () => {
    // Steps of the warm start are no updates.
    tellMetrics({ "warm/loss": 0.5 }, 860);
    tellMetrics({ "total/updates": 7 }, 7);
    const sampler = actorView("sampler-0", { load: { "time/env": 0.25, "queue/playing": 8 }, rssBytes: 1000 });
    const gone = actorView("sampler-1", { pid: null, load: { "time/env": 0.5 } });
    const guest = actorView("sampler-2", { guest: true, pid: null, rssBytes: 7 });
    sink.takeActors([sampler, gone, guest]);
    expect(store.actors()).toBeNull();
    clock.advance(250);
    expect(store.actors()?.actors).toEqual([sampler, gone, guest]);
    const latest = store.latest().filter(({ actor }) => actor.startsWith("sampler"));
    expect(latest.map(({ name, actor, step, value }) => [name, actor, step, value])).toEqual([
      ["process/rss_bytes", "sampler-0", 7, 1000],
      ["process/rss_bytes", "sampler-2", 7, 7],
      ["queue/playing", "sampler-0", 7, 8],
      ["time/env", "sampler-0", 7, 0.25],
    ]);
  });
});

test("after a roll-back what actors measure belongs to the update that the run went back to, so it stays in the costs", () => {
  const cpu = (seconds: number) =>
    sink.takeActors([actorView("learner", { load: { "process/cpu_seconds": seconds } })]);
  for (const update of [7, 8]) {
    tellMetrics({ "total/updates": update }, update);
    cpu(10 * update);
    sink.flush();
  }
  tellMetrics({ "health/rollbacks": 1 }, 7);
  cpu(85);
  sink.flush();
  const costs = costsOf((name) => store.series([name], 0), newestUpdate(store));
  expect([newestUpdate(store), costs.total.cpuSeconds]).toEqual([7, 85]);
});

test("the processor time of actors that share a process is stored once; that of a guest is its own", () => {
  const load = { "process/cpu_seconds": 3 };
  const [first, second] = ["sampler-0", "sampler-1"].map((name) => actorView(name, { pid: 40, load }));
  // Its process has a number of another machine.
  const [early, late] = ["sampler-2", "sampler-3"].map((name) => actorView(name, { guest: true, pid: 40, load }));
  sink.takeActors([early!, first!, second!, late!]);
  sink.flush();
  const known = store.series(["process/cpu_seconds"], 0).map(({ actor }) => actor);
  expect(known).toEqual(["sampler-0", "sampler-2", "sampler-3"]);
});

test("of an actor without a heartbeat yet no memory is stored; of a resumed run, the update is the one it reached", () => {
  sink = new MetricsSink({ store, actor: "metrics-sink", clock, flushMs: 250, waitingMax: 1000, updates: 40 });
  sink.takeActors([actorView("sampler-0", { rssBytes: 0 }), actorView("sampler-1", { rssBytes: 5 })]);
  sink.flush();
  expect(store.latest()).toEqual([{ name: "process/rss_bytes", actor: "sampler-1", step: 40, value: 5 }]);
});

test("a report of actors is stored once, also if none of them measures anything", () => {
  let commits = 0;
  store.subscribe(() => commits++);
  sink.takeActors([actorView("sampler-0", { pid: null })]);
  sink.flush();
  sink.flush();
  expect([commits, store.actors()?.actors.length]).toEqual([1, 1]);
});

describe("metrics", () => {
  test("are stored together when the flush time is over", () => {
    tellMetrics({ "train/success": 0.25, "train/entropy": 0.5 });
    clock.advance(249);
    expect(store.latest()).toEqual([]);
    clock.advance(1);
    expect(store.latest()).toEqual([
      { name: "train/entropy", actor: "learner", step: 1, value: 0.5 },
      { name: "train/success", actor: "learner", step: 1, value: 0.25 },
    ]);
  });

  test("are stored at once when the queue is full", () => {
    sink = sinkOver(store, 3);
    for (let step = 0; step < 4; step++) tellMetrics({ "train/success": step / 4 }, step);
    expect(store.series(["train/success"], 0)[0]!.steps).toEqual([0, 1, 2]);
    sink.flush();
    expect(store.series(["train/success"], 0)[0]!.steps).toEqual([0, 1, 2, 3]);
  });

  test("replace what a resumed run wrote before for the same update, and show up again as new", () => {
    tellMetrics({ "train/success": 0.25 }, 1);
    tellMetrics({ "train/success": 0.5 }, 2);
    sink.flush();
    const seen = store.cursor().points;
    tellMetrics({ "train/success": 0.75 }, 1);
    sink.flush();
    expect(store.series(["train/success"], 0)).toEqual([
      { name: "train/success", actor: "learner", steps: [1, 2], values: [0.75, 0.5] },
    ]);
    expect(store.series(["train/success"], seen)[0]).toMatchObject({ steps: [1], values: [0.75] });
  });

  test("keep the same metric of two actors apart", () => {
    tellMetrics({ "process/rss_bytes": 10 }, 1, "sampler/0");
    tellMetrics({ "process/rss_bytes": 20 }, 1, "sampler/1");
    sink.flush();
    expect(store.series(["process/rss_bytes"], 0).map(({ actor, values }) => [actor, values])).toEqual([
      ["sampler/0", [10]],
      ["sampler/1", [20]],
    ]);
  });

  test("with an unknown name are refused once in an event, and the known ones beside them are kept", () => {
    tellMetrics({ "train/sucess": 1, "train/success": 0.5 }, 1);
    tellMetrics({ "train/sucess": 1 }, 2);
    sink.flush();
    expect(store.latest().map(({ name }) => name)).toEqual(["train/success"]);
    expect(store.events({ limit: 9 })).toMatchObject([
      {
        level: "warning",
        text: 'metric "train/sucess" of learner is not stored: it is not in actors/metrics/metrics.ts',
      },
    ]);
  });

  test("are not confused with messages for other actors", () => {
    expect(() => sink.told(silentPeer, { type: "stop", reason: "test" })).toThrow(
      "no message stop goes to the metrics sink from the learner",
    );
    const open = { type: "env.open", episode: "e", env: "Bandit", layoutSeed: 1, dynamicsSeed: 1 } as const;
    expect(sink.asked(silentPeer, open)).toEqual({
      type: "failed",
      code: "protocol",
      detail: "no message env.open goes to the metrics sink from the learner",
    });
  });
});

describe("episodes", () => {
  test("are in the store when the answer comes, byte for byte", () => {
    const row = playedRow({ episode: "e7", layoutSeed: 4_294_967_295 });
    expect(askEpisodes([row])).toEqual({ type: "episodes.stored", count: 1 });
    const another = openStore();
    expect(another.episode(1)?.row).toEqual(row);
    another.close();
  });

  const attempts = () => store.episodes({}, { limit: 10 }).rows.map(({ episode, attempt }) => [episode, attempt]);

  test("sent twice are stored once", () => {
    askEpisodes([playedRow({ episode: "e1" }), playedRow({ episode: "e2" })]);
    expect(askEpisodes([playedRow({ episode: "e1" })])).toEqual({ type: "episodes.stored", count: 1 });
    expect(attempts()).toEqual([
      ["e2", 0],
      ["e1", 0],
    ]);
  });

  test("that a resumed run plays at another attempt replace the earlier ones", () => {
    askEpisodes([playedRow({ episode: "e1", attempt: 1 }, true, "before the kill"), playedRow({ episode: "e2" })]);
    askEpisodes([playedRow({ episode: "e1" }, false, "after it"), playedRow({ episode: "e2", attempt: 2 })]);
    expect(attempts()).toEqual([
      ["e2", 2],
      ["e1", 0],
    ]);
    expect(store.episodes({ text: "before the kill" }, { limit: 10 }).rows).toEqual([]);
  });

  test("of two attempts in one message, or for two updates, are no repetition: both stay", () => {
    askEpisodes([playedRow({ episode: "e1" }), playedRow({ episode: "e1", attempt: 1 })]);
    askEpisodes([playedRow({ episode: "e2" })]);
    askEpisodes([{ ...playedRow({ episode: "e2", attempt: 1 }), update: 4 }]);
    expect(attempts()).toEqual([
      ["e2", 1],
      ["e2", 0],
      ["e1", 1],
      ["e1", 0],
    ]);
  });

  test("that a resumed run plays with another content replace the earlier ones", () => {
    askEpisodes([playedRow({ episode: "e1" }, true, "left at first"), playedRow({ episode: "e2" })]);
    const failed = { status: "aborted", detail: "no sampler" } as const;
    askEpisodes([{ ...playedRow({ episode: "e3" }), outcome: failed }]);
    // The same bits under another version number, and two that differ.
    const [again, up] = [playedRow({ episode: "e2", version: 9 }), playedRow({ episode: "e1" }, false, "up now")];
    expect(askEpisodes([again, up, playedRow({ episode: "e3" })])).toEqual({ type: "episodes.stored", count: 3 });
    const { rows } = store.episodes({}, { limit: 10 });
    expect(rows.map(({ episode, success }) => [episode, success])).toEqual([
      ["e3", true],
      ["e1", false],
      ["e2", true],
    ]);
    expect(store.episode(store.episodeNamed("e1")!)!.row).toEqual(up);
    const found = (text: string) => store.episodes({ text }, { limit: 10 }).rows.map(({ episode }) => episode);
    expect([found("left at first"), found("no sampler"), found("up now")]).toEqual([[], [], ["e1"]]);
  });

  test("that failed carry no reward, not a reward of 0", () => {
    const outcome = { status: "envError", detail: "SimpleSokoban#5 step: Error: boom" } as const;
    const row: EpisodeRow = { ticket: ticketOf(), sampler: "sampler/0", outcome, update: null, advantage: null };
    askEpisodes([row]);
    expect(store.episode(1)).toMatchObject({ row, summary: { reward: null, success: null, stop: null } });
  });

  test("sum rewards over turns and keep the penalty apart", () => {
    askEpisodes([playedRow({}, false)]);
    const { reward, penalty, writtenTokens, turnCount } = store.episode(1)!.summary;
    expect([reward!.toFixed(6), penalty!.toFixed(6), writtenTokens, turnCount]).toEqual([
      "-0.200000",
      "-0.100000",
      3,
      2,
    ]);
  });

  test("are read back as they were for any numbers and texts", () => {
    let index = 0;
    const floats = fc.float32Array({ minLength: 0, maxLength: 40, noNaN: true });
    fc.assert(
      fc.property(floats, fc.string({ unit: "grapheme" }), fc.integer(), (logProbs, reply, token) => {
        const row = playedRow({ episode: `p${index++}`, actionsPerTurnMax: 3 }, true, reply);
        if (!("trajectory" in row.outcome)) throw new Error("not played");
        const tokens = new Int32Array(logProbs.length).fill(token);
        const written = new Uint8Array(logProbs.length).fill(1);
        const trajectory = { ...row.outcome.trajectory, tokens, written, logProbs };
        const changed = { ...row, outcome: { ...row.outcome, trajectory } };
        askEpisodes([changed]);
        const id = store.cursor().episodes;
        expect(store.episode(id)!.row).toEqual(changed);
      }),
      { numRuns: 50 },
    );
  });
});

describe("a full disk", () => {
  const many = (from: number) => Array.from({ length: 200 }, (_, i) => playedRow({ episode: `f${from + i}` }));

  test("refuses episodes whole, keeps what was answered, and takes them again when there is room", () => {
    store.close();
    store = openStore(150_000);
    sink = sinkOver(store);
    expect(askEpisodes(many(0).slice(0, 20))).toMatchObject({ count: 20 });
    const refused = askEpisodes(many(1000));
    expect(refused).toEqual({
      type: "failed",
      code: "capacity",
      detail:
        "cannot store 200 episodes: database or disk is full. Free space on the disk of the run folder; the learner sends them again.",
    });
    expect(store.episodes({}, { limit: 500 }).rows).toHaveLength(20);
    store.close();
    store = openStore();
    sink = sinkOver(store);
    expect(askEpisodes(many(1000))).toMatchObject({ count: 200 });
    expect(store.episodes({}, { limit: 500 }).rows).toHaveLength(220);
  });

  test("keeps the queue bounded, and counts what it dropped once it can write again", () => {
    let full = true;
    const disk = {
      write: (batch: Parameters<Store["write"]>[0]) => {
        // The error of a real full store: the class cannot be made by hand.
        if (full) throw fullDiskError();
        store.write(batch);
      },
    };
    sink = new MetricsSink({ store: disk, actor: "metrics-sink", clock, flushMs: 250, waitingMax: 5 });
    for (let step = 0; step < 10; step++) tellMetrics({ "train/success": 1 }, step);
    tellMetrics({ "train/success": 1, "train/entropy": 1 }, 10);
    clock.advance(250);
    expect(sink.doing()).toBe("0 episodes stored, store not writable, 7 messages dropped");
    full = false;
    clock.advance(250);
    expect(store.series(["train/success"], 0)[0]!.steps).toEqual([0, 1, 2, 3, 4]);
    expect(store.series(["sink/dropped_messages"], 0)[0]!.values).toEqual([7]);
    expect(store.events({ limit: 1 })[0]!.text).toBe(
      "7 metrics and events were dropped while the store could not be written",
    );
    sink.flush();
    expect(store.events({ limit: 9 }).length).toBe(1);
    askEpisodes([playedRow(), playedRow({ episode: "e2" })]);
    askEpisodes([playedRow({ episode: "e3" })]);
    expect(sink.doing()).toBe("3 episodes stored");
  });

  test("is counted at the run's update, so that the count is shown after a warm start of more steps", () => {
    let full = true;
    const disk = {
      write: (batch: Parameters<Store["write"]>[0]) => {
        if (full) throw fullDiskError();
        store.write(batch);
      },
    };
    sink = new MetricsSink({ store: disk, actor: "metrics-sink", clock, flushMs: 250, waitingMax: 2 });
    tellMetrics({ "warm/loss": 0.5 }, 1000);
    tellMetrics({ "total/updates": 7 }, 7);
    tellMetrics({ "train/success": 1 }, 8);
    full = false;
    clock.advance(250);
    expect(seriesOf(store, ["sink/dropped_messages"])).toMatchObject([{ steps: [7], values: [1] }]);
  });

  test("beside a wrong row: the row is at fault only if the rest can be stored", () => {
    let isFull = true;
    const disk = {
      write(batch: Parameters<Store["write"]>[0]) {
        const wrong = { name: "train/success", actor: "learner", step: 1, value: null as unknown as number };
        if (batch.episodes.length > 0) store.write({ ...batch, points: [wrong] });
        if (isFull) throw fullDiskError();
      },
    };
    sink = new MetricsSink({ store: disk, actor: "metrics-sink", clock, flushMs: 250, waitingMax: 5 });
    tellMetrics({ "train/success": 1 });
    expect(askEpisodes([playedRow()])).toMatchObject({ type: "failed", code: "capacity" });
    isFull = false;
    expect(askEpisodes([playedRow()])).toMatchObject({ type: "failed", code: "protocol" });
  });

  test("is not tried again when the sink is closed: its store is closed too", () => {
    const disk = {
      write() {
        throw fullDiskError();
      },
    };
    sink = new MetricsSink({ store: disk, actor: "metrics-sink", clock, flushMs: 250, waitingMax: 5 });
    tellMetrics({ "train/success": 1 });
    expect(sink.close()).toBe(false);
    expect(clock.waitingMs).toEqual([]);
  });

  function fullDiskError(): unknown {
    const tiny = new Store({ path: ":memory:", durability: "normal", wallClock: () => 0, bytesMax: 4096 });
    try {
      tiny.write({ points: [], events: [], episodes: many(0) });
    } catch (error) {
      return error;
    } finally {
      tiny.close();
    }
    throw new Error("a store of one page took 200 episodes");
  }
});

test("a commit wakes every listener once, and an empty flush none", () => {
  let woken = 0;
  const stop = store.subscribe(() => woken++);
  tellMetrics({ "train/success": 1 }, 1);
  tellMetrics({ "train/success": 1 }, 2);
  sink.flush();
  sink.flush();
  expect(woken).toBe(1);
  stop();
  tellMetrics({ "train/success": 1 }, 3);
  sink.flush();
  expect(woken).toBe(1);
});
