/** The metrics sink as one actor of a run: the store, the actor that fills it, and the page that shows it. */
import { join } from "node:path";
import type { ActorKind } from "../actor.ts";
import { apiContextOf } from "../dashboard/api-of-run.ts";
import { serveDashboard } from "../dashboard/serve.ts";
import { describeError } from "../errors.ts";
import { envsText } from "../play/envs-of-run.ts";
import { EventFiles } from "../record/event-files.ts";
import { welcoming } from "../transport/handshake.ts";
import { MetricsSink } from "./metrics-sink.ts";
import { Store } from "./store.ts";

/** Metrics and events wait at most so long, and at most so many of them, before they are written. */
const FLUSH_MS = 200;
const QUEUED_MAX = 10_000;
/** Points read at once. */
const PAGE = 1000;

export const metricsSink: ActorKind = {
  role: "metrics-sink",
  async start(config, { actor, run, folder, clock, log, meter, transport, listen }) {
    const { learner, checkpoint, seed, metrics } = config;
    const store = new Store({
      path: join(folder, "run.sqlite"),
      durability: checkpoint.durability,
      wallClock: Date.now,
    });
    const page = await serveDashboard({
      store,
      ...metrics,
      clock,
      ...apiContextOf(config, folder),
    });
    store.startSession({ name: run, env: envsText(config), updates: learner.updates, seed });
    if (metrics.tensorboard) followStore(store, folder, (text) => log.error("tensorboard", text));
    const sink = new MetricsSink({ store, actor, clock, flushMs: FLUSH_MS, queuedMax: QUEUED_MAX });
    const listener = await transport.listen(listen, welcoming(run, sink));
    log.info("page", page.url);
    meter.depth("queue/messages", () => sink.waiting);
    return {
      url: listener.address,
      doing: () => `${page.url} ${sink.doing()}`,
      told(message) {
        if (message.type === "actors") sink.takeActors(message.actors);
      },
      async stop() {
        await listener.close();
        if (!sink.flush()) log.error("store", `the last metrics and events of ${folder} could not be written`);
        await page.stop();
        store.close();
      },
    };
  },
};

/** Event files grow with the store. What they cannot take is in the store, and exported from there (`bun run export`). */
function followStore(store: Store, folder: string, failed: (text: string) => void): void {
  const events = new EventFiles(join(folder, "tensorboard"), store.run()!.startedMs);
  let last = store.cursor().points;
  const unsubscribe = store.subscribe(() => {
    try {
      for (let page = store.points(last, PAGE); page.length > 0; page = store.points(last, PAGE)) {
        for (const point of page) events.add(point);
        last = page.at(-1)!.id;
      }
      events.flush();
    } catch (error) {
      unsubscribe();
      failed(`no more event files are written: ${describeError(error)}`);
    }
  });
}
