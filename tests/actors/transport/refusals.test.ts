/** Messages that an actor does not take: the actor refuses them, and the compiler reports a message of `Links` without a handler. */
import { expect, test } from "bun:test";
import type { ActorContext } from "../../../actors/actor.ts";
import { envServer } from "../../../actors/env-server/start.ts";
import { Dispatcher } from "../../../actors/learner/dispatcher.ts";
import { TicketBook } from "../../../actors/learner/tickets.ts";
import { Meter } from "../../../actors/metrics/meter.ts";
import { MetricsSink } from "../../../actors/metrics-sink/metrics-sink.ts";
import type { Ask, Tell } from "../../../actors/protocol.ts";
import { takeHeartbeat } from "../../../actors/supervisor/heartbeats.ts";
import type { Hello } from "../../../actors/transport/handshake.ts";
import { notTaken, refused } from "../../../actors/transport/refusals.ts";
import { Acks } from "../../../actors/weights/acks.ts";
import { silentPeer as peer } from "../metrics-sink/fake-run.ts";
import { bandits, LEASE_MS, startSampler, World } from "../sampler/stage.ts";
import { configOf } from "../training/stage.ts";

const world = new World();
const { clock } = world;
const who: Hello = { type: "hello", protocol: 1, actor: "s", role: "sampler", url: null };
const stop: Tell = { type: "stop", reason: "a test" };
const step: Ask = { type: "env.step", episode: "e", turn: 0, reply: "" };
const episodes: Ask = { type: "episodes", rows: [] };

const learner = new Dispatcher({
  tickets: new TicketBook({ clock, leaseMs: LEASE_MS, attemptsMax: 1, expired() {} }),
  acks: new Acks(),
  leaseMs: LEASE_MS,
  vocabulary: 9,
  clock,
  notice() {},
});
learner.joined(peer, who);
const { sampler } = startSampler(world);
const { server } = await bandits(world, "env-1");
const sink = new MetricsSink({ store: { write() {} }, actor: "sink", clock, flushMs: 1, waitingMax: 1 });

test.each([
  [
    "to the learner from a sampler",
    () => learner.told(peer, stop, who),
    () => learner.asked(peer, step, who),
    "env.step",
  ],
  ["to a sampler from the learner", () => sampler.told(peer, stop), () => sampler.asked(peer, step), "env.step"],
  [
    "to an env server from a sampler",
    () => server.told(peer, stop, who),
    () => server.asked(peer, episodes, who),
    "episodes",
  ],
  ["to the metrics sink from the learner", () => sink.told(peer, stop), () => sink.asked(peer, step), "env.step"],
] as const)("no other message goes %s", async (link, tell, ask, asked) => {
  expect(tell).toThrow(`no message stop goes ${link}`);
  expect(await ask()).toEqual({ type: "failed", code: "protocol", detail: `no message ${asked} goes ${link}` });
});

test("an actor takes no other message from the supervisor", async () => {
  const { transport } = world;
  const log = { warning() {} };
  const context = { run: "run", clock, meter: new Meter(clock), transport, listen: "memory:env-2", log };
  const running = await envServer.start(configOf(), context as unknown as ActorContext);
  expect(() => running.told({ type: "save" })).toThrow("no message save goes to an env server from the supervisor");
  expect(() => takeHeartbeat(undefined, stop, clock)).toThrow("no message stop goes to the supervisor from an actor");
  await running.stop("a test");
});

test("the compiler reports a message without a handler", () => {
  // `bun run check` fails if one of the marked calls compiles.
  // @ts-expect-error: a sampler takes tickets
  const unhandled = notTaken("to a sampler from the learner", "tickets" as Exclude<Tell["type"], "weights">);
  // @ts-expect-error: an env server answers env.step
  const unanswered = refused("to an env server from a sampler", "env.step" as Exclude<Ask["type"], "env.open">);
  expect([unhandled.message, unanswered.detail]).toEqual([
    "no message tickets goes to a sampler from the learner",
    "no message env.step goes to an env server from a sampler",
  ]);
});
