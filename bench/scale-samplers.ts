/**
 * Samplers without a model for the bench `scale`, each with its own connection, all in this process. A sampler answers a ticket with
 * an episode of 64 tokens. The program prints one JSON line. Arguments: address, number of samplers, milliseconds per episode, seconds to measure.
 */
import { realClock } from "../actors/clock.ts";
import type { Messages } from "../actors/protocol.ts";
import { sayHello } from "../actors/transport/handshake.ts";
import { RoutedTransport } from "../actors/transport/routed.ts";
import { madeUpOutcome } from "./made-up-episode.ts";

const [address = "", count = "", episodeMs = "", seconds = ""] = process.argv.slice(2);
const WARM_MS = 1000;
const outcome = madeUpOutcome(64, 1, [{}]);

let measuring = false;
let tickets = 0;
const latenciesMs: number[] = [];

async function sampler(name: string, delayMs: number): Promise<void> {
  const transport = new RoutedTransport({
    clock: realClock,
    token: "a-token-of-the-bench",
    frameBytesMax: 1 << 20,
    queuedBytesMax: 4 << 20,
    report: ({ detail }) => console.error(detail),
  });
  const peer = await transport.connect(address, {
    told(_, message) {
      if (message.type === "weights")
        peer.tell({ type: "weights.loaded", actor: name, version: 1, digest: message.digest });
      if (message.type === "tickets") for (const { episode, attempt } of message.tickets) play(episode, attempt);
    },
    asked: () => ({ type: "failed", code: "protocol", detail: "a sampler answers no asks" }),
    closed(_, reason) {
      console.error(`${name} lost the learner: ${reason}`);
      process.exit(1);
    },
  });

  function play(episode: string, attempt: number): void {
    if (measuring) tickets++;
    if (delayMs === 0) void finish(episode, attempt);
    else realClock.after(delayMs * (0.5 + Math.random()), () => void finish(episode, attempt));
  }

  async function finish(episode: string, attempt: number): Promise<void> {
    const began = realClock.now();
    const message: Messages["episode.finished"] = { type: "episode.finished", actor: name, episode, attempt, outcome };
    const answer = await peer.ask(message, 60_000);
    if (answer.type === "failed" || !answer.fresh)
      throw new Error(`${episode} was not accepted: ${JSON.stringify(answer)}`);
    if (measuring) latenciesMs.push(realClock.now() - began);
  }

  await sayHello(peer, { actor: name, role: "sampler", url: null }, 60_000, "scale");
  peer.tell({ type: "sampler.ready", actor: name, slots: 1 });
}

const began = realClock.now();
for (let from = 0; from < Number(count); from += 50) {
  const to = Math.min(Number(count), from + 50);
  await Promise.all(Array.from({ length: to - from }, (_, i) => sampler(`s${from + i}`, Number(episodeMs))));
}
const joinMs = realClock.now() - began;
await new Promise<void>((go) => realClock.after(WARM_MS + Number(episodeMs), go));
measuring = true;
const startMs = realClock.now();
await new Promise<void>((go) => realClock.after(Number(seconds) * 1000, go));
measuring = false;
const elapsedSeconds = (realClock.now() - startMs) / 1000;
const sorted = Float64Array.from(latenciesMs).sort();
const at = (part: number) => Math.round(100 * (sorted[Math.floor(part * sorted.length)] ?? Number.NaN)) / 100;
Bun.gc(true);
console.log(
  JSON.stringify({
    joinMs: Math.round(joinMs),
    ticketsPerSecond: Math.round(tickets / elapsedSeconds),
    trajectoriesPerSecond: Math.round(latenciesMs.length / elapsedSeconds),
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    rssBytes: process.memoryUsage.rss(),
  }),
);
// The samplers stay connected while the bench measures the learner's memory.
for await (const _ of Bun.stdin.stream());
process.exit(0);
