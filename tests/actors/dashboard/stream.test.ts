/** The live stream of a run that another process records; dashboard.test.ts has that of a run which this process records. */
import { afterAll, expect, test } from "bun:test";
import { join } from "node:path";
import type { SSEStreamingApi } from "hono/streaming";
import type { News } from "../../../actors/dashboard/answers.ts";
import { streamRun } from "../../../actors/dashboard/stream.ts";
import { Store } from "../../../actors/metrics-sink/store.ts";
import { removeTemporaryFolders, temporaryFolder } from "../../scripts/temporary.ts";
import { FakeClock } from "../fake-clock.ts";

afterAll(removeTemporaryFolders);

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
