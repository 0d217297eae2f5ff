/**
 * A learner without training for the bench `scale`: it issues tickets and takes every outcome. It prints its address. Then it prints its
 * memory in bytes for each line on standard input. Argument: the address to listen on.
 */
import { realClock } from "../actors/clock.ts";
import { Dispatcher } from "../actors/learner/dispatcher.ts";
import { TicketBook } from "../actors/learner/tickets.ts";
import { welcoming } from "../actors/transport/handshake.ts";
import { RoutedTransport } from "../actors/transport/routed.ts";
import { Acks } from "../actors/weights/acks.ts";
import { madeUpTicket } from "./made-up-episode.ts";

const LEASE_MS = 60_000;
/** More tickets than samplers, so that no sampler waits for the end of a batch. */
const BATCH = 4000;

const [address = ""] = process.argv.slice(2);
const transport = new RoutedTransport({
  clock: realClock,
  token: "a-token-of-the-bench",
  frameBytesMax: 1 << 20,
  queuedBytesMax: 64 << 20,
  report: ({ detail }) => console.error(detail),
});
const tickets = new TicketBook({
  clock: realClock,
  leaseMs: LEASE_MS,
  attemptsMax: 3,
  expired: () => dispatcher.grant(),
});
const dispatcher: Dispatcher = new Dispatcher({
  tickets,
  acks: new Acks(),
  leaseMs: LEASE_MS,
  vocabulary: 500,
  clock: realClock,
  notice() {},
});
const digest = "ab".repeat(32);
dispatcher.announce({
  type: "weights",
  version: 1,
  digest,
  byteLength: 1,
  location: { kind: "http", url: "http://127.0.0.1:1/weights/1" },
});

let issued = 0;
const ticket = () => madeUpTicket({ episode: `e${issued++}` });
async function playBatches(): Promise<never> {
  for (;;) await dispatcher.play(Array.from({ length: BATCH }, ticket));
}
// Two batches at a time: one has tickets left while samplers play the last episodes of the other.
void playBatches();
void playBatches();

const listener = await transport.listen(address, welcoming("scale", dispatcher));
console.log(listener.address);
for await (const _ of Bun.stdin.stream()) {
  Bun.gc(true);
  console.log(process.memoryUsage.rss());
}
process.exit(0);
