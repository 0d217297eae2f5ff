/** A sampler that only loads weights and acknowledges them. Arguments: address, name. The token is on standard input. */
import { realClock } from "../actors/clock.ts";
import { sayHello } from "../actors/transport/handshake.ts";
import { SocketTransport } from "../actors/transport/socket.ts";
import type { Handler } from "../actors/transport/transport.ts";
import { loadWeights } from "../actors/weights/load.ts";

const [address, actor] = process.argv.slice(2) as [string, string];
const token = (await Bun.stdin.text()).trim();
const handler: Handler = {
  async told(peer, message) {
    if (message.type !== "weights") throw new TypeError(`a loader takes weights only, got ${message.type}`);
    const { digest } = await loadWeights(message, message.byteLength / 4);
    peer.tell({ type: "weights.loaded", actor, version: message.version, digest });
  },
  asked: () => ({ type: "failed", code: "protocol", detail: "a loader answers no asks" }),
  closed: () => process.exit(0),
};
const limits = { clock: realClock, token, frameBytesMax: 1 << 16, queuedBytesMax: 1 << 20 };
const peer = await new SocketTransport(limits).connect(address, handler);
await sayHello(peer, { actor, role: "sampler", url: null }, 10_000);
