/** The actor of echo-process.ts in a Bun worker, which posts the actor's address. */
import { realClock } from "../../../actors/clock.ts";
import { SocketTransport } from "../../../actors/transport/socket.ts";

declare const self: Worker;

const transport = new SocketTransport({
  clock: realClock,
  token: "a-token-for-tests",
  frameBytesMax: 1 << 20,
  queuedBytesMax: 4 << 20,
});
const { address } = await transport.listen("ws://127.0.0.1:0", {
  told() {},
  asked(_, ask) {
    if (ask.type !== "env.open") return new Promise(() => {});
    return { type: "env.opened", episode: ask.episode, observation: "from another thread", actionsLeft: 1 };
  },
});
self.postMessage(address);
