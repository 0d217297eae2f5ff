/** The same in a Bun worker. */
import { realClock } from "../../../actors/clock.ts";
import type { Port } from "../../../actors/transport/worker.ts";
import { WorkerTransport } from "../../../actors/transport/worker.ts";

const transport = new WorkerTransport({
  clock: realClock,
  token: "a-token-for-tests",
  frameBytesMax: 1 << 20,
  queuedBytesMax: 4 << 20,
  port: globalThis as unknown as Port,
});
await transport.listen("worker:echo", {
  told() {},
  asked(_, ask) {
    if (ask.type !== "env.open") return new Promise(() => {});
    return { type: "env.opened", episode: ask.episode, observation: "from another thread", actionsLeft: 1 };
  },
});
