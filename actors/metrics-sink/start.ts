/** Starts the metrics sink: the store, the actor that fills it, and the page that shows it. */
import { join } from "node:path";
import type { ActorContext, ActorKind, Running } from "../actor.ts";
import type { RunConfig } from "../config/config.ts";
import { apiContextOf } from "../dashboard/api-of-run.ts";
import { serveDashboard } from "../dashboard/serve.ts";
import { describeError } from "../errors.ts";
import { envsText } from "../play/envs-of-run.ts";
import { ENDS } from "../record/newest-update.ts";
import { EventFiles } from "../record/tensorboard.ts";
import { welcoming } from "../transport/handshake.ts";
import { notTaken } from "../transport/refusals.ts";
import { MetricsSink } from "./metrics-sink.ts";
import { Store } from "./store.ts";

/** Metrics and events wait at most this long before the sink writes them. */
const FLUSH_MS = 200;

/** The store that the sink fills, and the page that shows it. */
export interface OpenedStore {
  readonly store: Pick<Store, "write">;
  readonly url: string;
  /** The update at which the record ends; 0 before the first update. */
  readonly updates: number;
  close(): Promise<void>;
}

/** The sink's access to disk and network. A simulation replaces it. */
export interface MetricsSinkPorts {
  openStore(config: RunConfig, context: ActorContext): Promise<OpenedStore>;
  readonly waitingMax: number;
}

const realPorts: MetricsSinkPorts = { openStore, waitingMax: 10_000 };

export const metricsSink = {
  role: "metrics-sink",
  async start(config: RunConfig, context: ActorContext, ports: MetricsSinkPorts = realPorts): Promise<Running> {
    const { actor, run, folder, clock, log, meter, transport, listen } = context;
    const { store, url, updates, close } = await ports.openStore(config, context);
    const sink = new MetricsSink({ store, actor, clock, updates, flushMs: FLUSH_MS, waitingMax: ports.waitingMax });
    const listener = await transport.listen(listen, welcoming(run, sink)).catch(async (error: unknown) => {
      await close();
      throw error;
    });
    meter.depth("queue/messages", () => sink.waiting);
    return {
      url: listener.address,
      doing: () => `${url} ${sink.doing()}`,
      told(message) {
        if (message.type === "actors") sink.takeActors(message.actors);
        // A metrics sink connects to no actor of the roster.
        else if (message.type !== "roster") throw notTaken("to the metrics sink from the supervisor", message.type);
      },
      async stop() {
        await listener.close();
        if (!sink.close()) log.error("store", `the last metrics and events of ${folder} could not be written`);
        await close();
      },
    };
  },
} satisfies ActorKind;

/** Opens the run's store, the page that shows the store, and TensorBoard's files if the config asks for them. */
async function openStore(config: RunConfig, { run, folder, clock, log }: ActorContext): Promise<OpenedStore> {
  const { learner, checkpoint, seed, metrics } = config;
  const store = new Store({
    path: join(folder, "run.sqlite"),
    durability: checkpoint.durability,
    wallClock: Date.now,
  });
  const shown = { store, ...apiContextOf(config, folder) };
  const page = await serveDashboard({ shown, ...metrics, clock }).catch((error: unknown) => {
    // A run on one thread goes on, so it must not leave the file open.
    store.close();
    throw error;
  });
  store.startSession({ name: run, env: envsText(config), updates: learner.updates, seed });
  if (metrics.tensorboard) followStore(store, folder, (text) => log.error("tensorboard", text));
  log.info("page", page.url);
  return {
    store,
    url: page.url,
    updates: store.newestStep(ENDS) ?? 0,
    async close() {
      await page.stop();
      store.close();
    },
  };
}

/** Appends new points to TensorBoard event files until an error. `bun run export` can still write event files from the store. */
function followStore(store: Store, folder: string, onError: (text: string) => void): void {
  const events = new EventFiles(join(folder, "tensorboard"), store.run()!.startedMs);
  let last = store.cursor().points;
  const unsubscribe = store.subscribe(() => {
    try {
      for (const point of store.pointsAfter(last)) {
        events.add(point);
        last = point.id;
      }
      events.flush();
    } catch (error) {
      unsubscribe();
      onError(`stopped writing TensorBoard event files: ${describeError(error)}`);
    }
  });
}
