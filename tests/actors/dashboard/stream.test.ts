/** The live stream of a run that another process records. dashboard.test.ts tests the stream of a run that the test's own process records. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import type { SSEStreamingApi } from "hono/streaming";
import type { News } from "../../../actors/dashboard/answers.ts";
import { streamRun } from "../../../actors/dashboard/stream.ts";
import { Store } from "../../../actors/metrics-sink/store.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { FakeClock } from "../fake-clock.ts";
import { actorView, playedRow } from "../metrics-sink/fake-run.ts";

test("reports a run that was killed when it counts as stopped, and no sooner", async () => {
  let now = 1_700_000_000_000;
  const options = { path: join(temporaryFolder(), "run.sqlite"), durability: "normal", wallClock: () => now } as const;
  const writer = new Store(options);
  writer.startSession({ name: "run-1", env: "Bandit", updates: 9, seed: 1 });
  writer.write({ points: [{ name: "total/updates", actor: "learner", step: 3, value: 3 }], events: [], episodes: [] });
  const store = new Store({ ...options, readOnly: true });
  const clock = new FakeClock();
  const phases: string[] = [];
  const stream = {
    aborted: false,
    onAbort() {},
    write: async () => {},
    writeSSE: async ({ data }: { data: string }) => phases.push((JSON.parse(data) as News).run.phase),
  } as unknown as SSEStreamingApi;
  const closing = new AbortController();
  const ended = streamRun(stream, { store, clock, since: store.cursor(), signal: closing.signal });
  const waits = async () => {
    while (clock.waitingMs.length === 0) await new Promise(setImmediate);
  };
  await waits();
  for (const seconds of [15, 30, 45, 60, 75, 90]) {
    now += 15_000;
    clock.advance(15_000);
    await waits();
    expect(phases).toEqual(seconds > 60 ? ["silent"] : []);
  }
  closing.abort();
  await ended;
  store.close();
  writer.close();
});

test("a message names the newest that it has of each kind, comes once, and leaves one timer", async () => {
  const store = new Store({ path: ":memory:", durability: "normal", wallClock: () => 1000 });
  store.startSession({ name: "run-1", env: "Bandit", updates: 9, seed: 1 });
  const three = [1, 2, 3];
  const batch = (from: number) => ({
    points: three.map((i) => ({ name: "train/success", actor: "learner", step: from + i, value: 0.5 })),
    events: three.map((i) => ({ actor: "learner", level: "info", kind: "phase", text: `${from + i}` }) as const),
    episodes: three.map((i) => playedRow({ episode: `e${from + i}` })),
    actors: [actorView("learner")],
  });
  store.write(batch(0));
  const clock = new FakeClock();
  const sent: { id: string; data: News }[] = [];
  const stream = {
    aborted: false,
    onAbort() {},
    write: async () => {},
    writeSSE: async ({ id, data }: { id: string; data: string }) => sent.push({ id, data: JSON.parse(data) }),
  } as unknown as SSEStreamingApi;
  const closing = new AbortController();
  const ended = streamRun(stream, {
    store,
    clock,
    since: { points: 0, events: 0, episodes: 0 },
    signal: closing.signal,
  });
  const settled = async (count: number) => {
    while (sent.length < count || clock.waitingMs.length === 0) await new Promise(setImmediate);
  };
  await settled(1);
  store.write(batch(3));
  await settled(2);
  clock.advance(15_000);
  await settled(2);
  expect(sent.map(({ id }) => id)).toEqual(["3.3.3", "6.6.6"]);
  expect(sent.map(({ data }) => data.actors?.atMs)).toEqual([1000, undefined]);
  expect(clock.waitingMs).toEqual([15_000]);
  closing.abort();
  await ended;
  expect(clock.waitingMs).toEqual([]);
  store.close();
});
