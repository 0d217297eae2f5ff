/** Guests of a run: they join, are watched, fall silent and leave. */
import { beforeEach, expect, test } from "bun:test";
import type { Tell } from "../../../actors/protocol.ts";
import { Guests } from "../../../actors/supervisor/guests.ts";
import type { GuestEvent } from "../../../actors/supervisor/supervision.ts";
import { sayHello, welcoming } from "../../../actors/transport/handshake.ts";
import type { Peer } from "../../../actors/transport/transport.ts";
import { RUN, World } from "../sampler/stage.ts";

const roster: Tell = { type: "roster", learner: null, metricsSink: null, envServers: [] };
let world: World;
let guests: Guests;
let events: GuestEvent[];
let cuts: string[];
let changes: number;
beforeEach(async () => {
  world = new World();
  [events, cuts, changes] = [[], [], 0];
  guests = new Guests({
    clock: world.clock,
    heartbeatMs: 500,
    heartbeatDeadlineMs: 10_000,
    progressDeadlineMs: 60_000,
    firstMessages: () => [roster],
    envServersChanged: () => void changes++,
    cut: (name) => void cuts.push(name),
    event: (event) => void events.push(event),
  });
  await world.transport.listen("memory:guests", welcoming(RUN, guests.admitting(["sampler", "env-server"])));
  await world.transport.listen("memory:samplers", welcoming(RUN, guests.admitting(["sampler"])));
});

async function come(
  actor: string,
  role: "sampler" | "env-server" | "learner",
  url: string | null = null,
  door = "memory:guests",
) {
  const told: Tell[] = [];
  const peer = await world.transport.connect(door, {
    told: (_, message) => void told.push(message),
    asked: () => ({ type: "failed", code: "protocol", detail: "not asked" }),
  });
  const say = (where: string | null) => sayHello(peer, { actor, role, url: where }, 5000, RUN);
  await say(url);
  await world.settle();
  return { peer, told, say };
}

const beat = (peer: Peer, actor: string, workingMs = 0) =>
  peer.tell({
    type: "heartbeat",
    actor,
    doing: "playing",
    lastMessage: "tickets",
    rssBytes: 1,
    load: {},
    weights: null,
    workingMs,
  });

test("a guest gets the first messages once, appears with its state, and gets what every guest gets", async () => {
  const { peer, told, say } = await come("s", "sampler");
  beat(peer, "s");
  await say(null);
  await world.settle();
  expect(guests.views).toMatchObject([{ name: "s", role: "sampler", pid: null, doing: "playing", silentMs: 0 }]);
  let gone = false;
  const stopped = guests.stop("enough").then(() => {
    gone = true;
  });
  await world.settle();
  expect([told, gone]).toEqual([[roster, { type: "stop", reason: "enough" }], false]);
  peer.close("enough");
  await stopped;
  expect(events).toEqual([
    { kind: "joined", child: "s", role: "sampler" },
    { kind: "left", child: "s", role: "sampler", reason: "enough" },
  ]);
});

test("without guests there is none to wait for", async () => {
  await guests.stop("enough");
  expect(events).toEqual([]);
});

test("an env server counts from its url until it leaves", async () => {
  const { peer, say } = await come("e", "env-server");
  expect([guests.envServers, changes]).toEqual([[], 0]);
  await say("wss://gate/offer/e");
  await world.settle();
  expect([guests.envServers, changes]).toEqual([[{ actor: "e", url: "wss://gate/offer/e" }], 1]);
  peer.close("SIGTERM");
  await world.settle();
  expect([guests.envServers, changes, cuts]).toEqual([[], 2, ["e"]]);
  expect(events.at(-1)).toEqual({ kind: "left", child: "e", role: "env-server", reason: "SIGTERM" });
});

test("a silent guest is given up within its deadline and a heartbeat, and its connections are cut", async () => {
  const [frozen, lively] = [await come("frozen", "sampler"), await come("lively", "sampler")];
  for (let ms = 0; ms < 10_500; ms += 500) {
    expect(frozen.peer.closed).toBe(false);
    beat(lively.peer, "lively");
    await world.after(500);
  }
  expect([frozen.peer.closed, lively.peer.closed, cuts]).toEqual([true, false, ["frozen"]]);
  expect(events.at(-1)).toMatchObject({
    kind: "left",
    reason:
      "silent for 10500 ms (limit 10000 ms), its last heartbeat said: starting; the last message that it received: none",
  });
});

test("a guest that computes without a result is given up too", async () => {
  const { peer, told } = await come("s", "sampler");
  beat(peer, "s", 60_001);
  await world.after(500);
  // It gets `stop`, because it would come back and hang again; its connections end when the message has had time to arrive.
  expect(told.at(-1)).toMatchObject({ type: "stop" });
  expect([peer.closed, cuts]).toEqual([false, []]);
  await world.after(1000);
  expect([peer.closed, cuts]).toEqual([true, ["s"]]);
  expect(events.at(-1)).toMatchObject({
    reason:
      "no result of its computation for 60001 ms (limit 60000 ms), its last heartbeat said: playing; the last message that it received: tickets",
  });
});

test("no guest is given up because the supervisor was suspended", async () => {
  const { peer } = await come("s", "sampler");
  world.clock.jump(3_600_000);
  await world.settle();
  expect([peer.closed, cuts]).toEqual([false, []]);
});

test("a guest that connects again stays the same guest; only its first connection ends", async () => {
  const first = await come("s", "sampler");
  const second = await come("s", "sampler");
  await world.settle();
  expect([first.peer.closed, second.peer.closed, guests.views.length, cuts]).toEqual([true, false, 1, []]);
  expect(events).toHaveLength(1);
});

test("a guest joins only in the roles of its token", async () => {
  const learner = await come("l", "learner");
  const envServer = await come("e", "env-server", null, "memory:samplers");
  expect([learner.peer.closed, envServer.peer.closed, guests.views]).toEqual([true, true, []]);
  await come("s", "sampler", null, "memory:samplers");
  expect(guests.views).toHaveLength(1);
});
