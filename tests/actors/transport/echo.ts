/**
 * A socket actor in a process or a Bun worker of its own. It answers env.open, and never answers env.step. A process prints the actor's
 * address, and ends when standard input ends; a worker posts the address.
 */
import { realClock } from "../../../actors/clock.ts";
import { SocketTransport } from "../../../actors/transport/socket.ts";

declare const self: Worker;

const transport = new SocketTransport({
  clock: realClock,
  token: "a-token-for-tests",
  frameBytesMax: 1 << 20,
  queuedBytesMax: 4 << 20,
});
const observation = `from another ${Bun.isMainThread ? "process" : "thread"}`;
const { address } = await transport.listen("ws://127.0.0.1:0", {
  told() {},
  asked(_, ask) {
    if (ask.type !== "env.open") return new Promise(() => {});
    return { type: "env.opened", episode: ask.episode, observation, actionsLeft: 1 };
  },
});
if (Bun.isMainThread) {
  console.log(address);
  for await (const _ of Bun.stdin.stream());
  process.exit(0);
}
self.postMessage(address);
