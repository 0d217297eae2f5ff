/**
 * Entry of the metrics sink's process: the store of a run, the actor that fills it, and the page that shows it.
 *
 * - The page's address is in the log as kind "page", and at the front of what the heartbeat says.
 */
import { z } from "zod";
import { serveDashboard } from "../dashboard/serve.ts";
import { Store } from "../dashboard/store.ts";
import { MetricsSink } from "../metrics-sink.ts";
import { welcoming } from "../transport/handshake.ts";
import { boot } from "./boot.ts";

const settingsSchema = z.strictObject({
  /** "ws://127.0.0.1:0" */
  listen: z.string(),
  /** Of run.sqlite. Its folder exists. */
  path: z.string(),
  durability: z.enum(["normal", "full"]),
  flushMs: z.number().positive(),
  queuedMax: z.number().int().positive(),
  /** The run as the page shows it. */
  env: z.string(),
  updates: z.number().int().positive().nullable(),
  seed: z.uint32(),
  /** Setting `metrics`. */
  page: z.strictObject({ host: z.string(), port: z.number().int().nonnegative(), token: z.string().nullable() }),
});
export type MetricsSinkSettings = z.infer<typeof settingsSchema>;

await boot({
  role: "metrics-sink",
  settingsSchema,
  async start(settings, { actor, run, clock, log, transport }) {
    const { path, durability, flushMs, queuedMax, env, updates, seed } = settings;
    const store = new Store({ path, durability, wallClock: Date.now });
    const page = await serveDashboard({ store, ...settings.page, clock });
    store.startSession({ name: run, env, updates, seed });
    const sink = new MetricsSink({ store, actor, clock, flushMs, queuedMax });
    const listener = await transport.listen(settings.listen, welcoming(run, sink));
    log.info("page", page.url);
    return {
      url: listener.address,
      doing: () => `${page.url} ${sink.doing()}`,
      async stop() {
        await listener.close();
        if (!sink.flush()) log.error("store", `the last metrics and events could not be written to ${path}`);
        await page.stop();
        store.close();
      },
    };
  },
});
