/** A store, its sink and its page, new for each test, with a pretend run to feed them. */
import { afterEach, beforeEach } from "bun:test";
import { join } from "node:path";
import type { Hono } from "hono";
import { realClock } from "../../../actors/clock.ts";
import type { ApiContext } from "../../../actors/dashboard/api.ts";
import { dashboardApp } from "../../../actors/dashboard/app.tsx";
import { loadAssets } from "../../../actors/dashboard/assets.ts";
import { NearbyRuns } from "../../../actors/dashboard/runs.ts";
import { MetricsSink } from "../../../actors/metrics-sink/metrics-sink.ts";
import { Store } from "../../../actors/metrics-sink/store.ts";
import { builtinDialogue } from "../../../model/text/chat.ts";
import { FakeRun, play } from "../metrics-sink/fake-run.ts";

export interface Stage {
  store: Store;
  sink: MetricsSink;
  run: FakeRun;
  /** The page's app, without a token. */
  app: Hono;
  closing: AbortController;
  /** The store's time of day, in milliseconds. */
  now: number;
  appWith(token: string | null): Hono;
  /** At the start of a test, the folder of the file of ratings does not exist. */
  ratings: string;
  readonly context: ApiContext;
  startRun(updates?: number | null): void;
}

const assets = await loadAssets();
/** A folder that does not exist. */
const MISSING = join(import.meta.dir, "missing");

/** Call this once in a test file, outside of tests. */
export function setStage(): Stage {
  const stage: Stage = {
    now: 0,
    appWith: (token) =>
      dashboardApp({ shown: stage.context, clock: realClock, token, assets, signal: stage.closing.signal }),
    get context(): ApiContext {
      return {
        store: stage.store,
        setup: () => ({ starts: [], settings: [{ path: "seed", value: 7, default: 10_000 }] }),
        play,
        dialogue: builtinDialogue(),
        nearby: new NearbyRuns(MISSING, "run-1"),
        ratings: stage.ratings,
      };
    },
    startRun: (updates = 120) => stage.store.startSession({ name: "run-1", env: "SimpleSokoban", updates, seed: 7 }),
  } as Stage;
  beforeEach(() => {
    stage.now = 1_700_000_000_000;
    stage.ratings = join(MISSING, "ratings.jsonl");
    stage.store = new Store({ path: ":memory:", durability: "normal", wallClock: () => stage.now });
    const limits = { flushMs: 5, waitingMax: 9999 };
    stage.sink = new MetricsSink({ store: stage.store, actor: "metrics-sink", clock: realClock, ...limits });
    stage.run = new FakeRun({ sink: stage.sink, seed: 3 });
    stage.closing = new AbortController();
    stage.app = stage.appWith(null);
  });
  afterEach(() => {
    stage.closing.abort();
    stage.sink.flush();
    stage.store.close();
  });
  return stage;
}
