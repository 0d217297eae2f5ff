/** A socket actor that answers env.open, and never answers env.step. It prints its address, and ends when standard input ends. */
import { realClock } from "../../../actors/clock.ts";
import { SocketTransport } from "../../../actors/transport/socket.ts";

const transport = new SocketTransport({
  clock: realClock,
  token: "a-token-for-tests",
  frameBytesMax: 1 << 20,
  queuedBytesMax: 4 << 20,
});
const listener = await transport.listen("ws://127.0.0.1:0", {
  told() {},
  asked(_, ask) {
    if (ask.type !== "env.open") return new Promise(() => {});
    return { type: "env.opened", episode: ask.episode, observation: "from another process", actionsLeft: 1 };
  },
});
console.log(listener.address);
for await (const _ of Bun.stdin.stream());
process.exit(0);
