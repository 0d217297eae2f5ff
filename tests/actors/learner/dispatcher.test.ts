/** The dispatcher as samplers see it; then dispatcher and samplers together, through every loss of a connection. */

import { beforeEach, describe, expect, test } from "bun:test";
import { Dispatcher } from "../../../actors/learner/dispatcher.ts";
import { TicketBook } from "../../../actors/learner/tickets.ts";
import type { FinishedTicket } from "../../../actors/play/finished-ticket.ts";
import type { PlayedOutcome } from "../../../actors/protocol.ts";
import { welcoming } from "../../../actors/transport/handshake.ts";
import type { Listener } from "../../../actors/transport/transport.ts";
import { Acks } from "../../../actors/weights/acks.ts";
import { figure } from "../../figure.ts";
import { aDigest, someTickets } from "../../fixtures.ts";
import { bandits, hold, LEASE_MS, RUN, scored, startSampler, World, weights } from "../sampler/stage.ts";
import { Hand } from "./hand.ts";

let world: World;
let book: TicketBook;
let acks: Acks;
let dispatcher: Dispatcher;
let listener: Listener;
let notices: string[];

async function listen(): Promise<void> {
  book = new TicketBook({ clock: world.clock, leaseMs: LEASE_MS, attemptsMax: 3, expired: () => dispatcher.grant() });
  acks = new Acks();
  notices = [];
  dispatcher = new Dispatcher({
    tickets: book,
    acks,
    leaseMs: LEASE_MS,
    vocabulary: 500,
    clock: world.clock,
    notice: (level, kind, text) => void notices.push(`${level} ${kind}: ${text}`),
  });
  listener = await world.transport.listen("memory:learner", welcoming(RUN, dispatcher));
}
beforeEach(async () => {
  world = new World();
  await listen();
});

const hand = (name = "s0") => new Hand(world, name);

/** Weights 1, samplers s0 and s1 with so many slots, and this number of tickets in play. */
async function playing(tickets: number, ...slots: number[]) {
  dispatcher.announce(weights(1));
  const hands: Hand[] = [];
  for (const [i, count] of slots.entries()) hands.push(await hand(`s${i}`).ready(count));
  const all = dispatcher.play(someTickets(tickets));
  await world.settle();
  return { one: hands[0]!, two: hands[1]!, all };
}

describe("tickets", () => {
  test("go to a sampler when it has acknowledged the digest that was published, and not before", async () => {
    dispatcher.announce(weights(1));
    void dispatcher.play(someTickets(2));
    const one = await hand().connect();
    one.peer.tell({ type: "sampler.ready", actor: "s0", slots: 4 });
    await world.settle();
    expect(one.told).toEqual([weights(1)]);
    one.load(1);
    await world.settle();
    expect(one.told.slice(1)).toEqual([{ type: "tickets", tickets: someTickets(2), leaseMs: LEASE_MS }]);
  });

  test("never exceed the slots; each that is finished makes room for the next", async () => {
    const { one, all } = await playing(4, 2);
    expect(one.granted).toEqual(["e0/0", "e1/0"]);
    await one.finish("e1");
    expect(one.granted).toEqual(["e0/0", "e1/0", "e2/0"]);
    for (const episode of ["e2", "e0", "e3"]) await one.finish(episode);
    expect((await all).map(({ ticket }) => ticket.episode)).toEqual(["e0", "e1", "e2", "e3"]);
  });

  test("are shared, so that the first to ask leaves some", async () => {
    const { one, two } = await playing(6, 10, 10);
    expect([one.granted.length, two.granted.length]).toEqual([3, 3]);
  });

  test("are shared as evenly when one sampler has loaded its weights before the other", async () => {
    dispatcher.announce(weights(1));
    const [one, two] = [await hand("s0").ready(10), await hand("s1").ready(10)];
    dispatcher.announce(weights(2, "b"));
    void dispatcher.play(someTickets(6, { version: 2 }));
    await world.settle();
    one.load(2, "b");
    await world.settle();
    expect([one.granted.length, two.granted.length]).toEqual([3, 0]);
    two.load(2, "b");
    await world.settle();
    expect([one.granted.length, two.granted.length]).toEqual([3, 3]);
  });

  test("are all played by one sampler if the other never loads its weights", async () => {
    dispatcher.announce(weights(1));
    const [one] = [await hand("s0").ready(10), await hand("s1").ready(10)];
    dispatcher.announce(weights(2, "b"));
    const all = dispatcher.play(someTickets(6, { version: 2 }));
    one.load(2, "b");
    await world.settle();
    for (let next = 0; next < 6; next++) await one.finish(one.granted[next]!.split("/")[0]!);
    expect((await all).every(({ sampler }) => sampler === "s0")).toBe(true);
  });

  test("of a lost sampler are played by the others", async () => {
    const { one, two } = await playing(4, 10, 10);
    const lost = [...one.granted];
    one.peer.close("killed");
    await world.settle();
    expect(two.granted.slice(-2)).toEqual(lost.map((name) => name.replace("/0", "/1")));
    expect(notices.at(-1)).toBe("warning left: s0 left: killed");
  });

  test("whose lease ran out are granted again, though every sampler is idle", async () => {
    const { one, all } = await playing(1, 1);
    const two = await hand("s1").ready(1);
    await world.after(LEASE_MS);
    const again = [...one.granted.slice(1), ...two.granted];
    expect(again).toEqual(["e0/1"]);
    const [player] = [one, two].filter(({ granted }) => granted.includes("e0/1"));
    expect(await one.finish("e0", 0)).toBe(false);
    expect(await player!.finish("e0", 1)).toBe(true);
    expect((await all)[0]!.ticket.attempt).toBe(1);
  });

  test("come back when their sampler connects again before its first connection is known to be gone", async () => {
    const { one: first } = await playing(2, 4);
    const again = await hand("s0").ready(4);
    expect(again.granted).toEqual(["e0/1", "e1/1"]);
    first.peer.close("late");
    await world.settle();
    expect([acks.version("s0"), dispatcher.samplerCount]).toEqual([1, 1]);
    expect(await again.finish("e0", 1)).toBe(true);
  });

  test("never go to a sampler for what its earlier connection reports late", async () => {
    dispatcher.announce(weights(1));
    const first = await hand("s0").ready(4);
    const again = await hand("s0").connect();
    again.peer.tell({ type: "sampler.ready", actor: "s0", slots: 4 });
    void dispatcher.play(someTickets(2));
    first.load(1);
    first.peer.tell({ type: "sampler.leaving", actor: "s0", reason: "replaced" });
    await world.settle();
    expect([again.granted, acks.version("s0"), dispatcher.samplerCount]).toEqual([[], null, 1]);
    again.load(1);
    await world.settle();
    expect(again.granted).toEqual(["e0/0", "e1/0"]);
  });

  test("reach a sampler after a late hello of its killed predecessor: it is cut off, and so connects again", async () => {
    dispatcher.announce(weights(1));
    const one = await hand("s0").ready(4);
    const late = await hand("s0").connect();
    late.peer.close("the process is gone");
    await world.settle();
    expect([one.peer.closed, dispatcher.samplerCount]).toEqual([true, 0]);
    void dispatcher.play(someTickets(2));
    expect((await one.ready(4)).granted).toEqual(["e0/0", "e1/0"]);
  });

  test("are not handed out any more when the run ends", async () => {
    dispatcher.announce(weights(1));
    const one = await hand().ready(4);
    dispatcher.leave();
    void dispatcher.play(someTickets(2));
    one.peer.close("leaving");
    await world.settle();
    expect([one.granted, notices]).toEqual([[], ["info joined: s0 joined"]]);
  });
});

describe("weights", () => {
  test("are announced to samplers now, or when they connect", async () => {
    const early = await hand("s0").connect();
    dispatcher.announce(weights(1));
    dispatcher.announce(weights(2, "b"));
    const late = await hand("s1").connect();
    expect([early.told, late.told]).toEqual([[weights(1), weights(2, "b")], [weights(2, "b")]]);
  });

  test("other than those published quarantine a sampler, until it connects again", async () => {
    dispatcher.announce(weights(1));
    const [bad, good] = [await hand("s0").ready(4, 1, "f"), await hand("s1").ready(4)];
    void dispatcher.play(someTickets(2));
    await world.settle();
    expect([bad.granted, good.granted.length, acks.quarantined]).toEqual([[], 2, ["s0"]]);
    const digest = "ffffffffffff…";
    expect(notices).toContain(
      `error quarantined: s0 read weights of version 1 with digest ${digest}, not the published digest; s0 gets no tickets until it connects again`,
    );
    bad.load(1);
    await world.settle();
    expect(bad.granted).toEqual([]);
    expect(notices.filter((notice) => notice.includes("quarantined")).length).toBe(1);
    bad.peer.close("mended");
    const again = await hand("s0").ready(4);
    void dispatcher.play([{ ...someTickets(1)[0]!, episode: "next" }]);
    await world.settle();
    expect([...again.granted, ...good.granted]).toContain("next/0");
  });

  test("of an older version get only tickets that allow it", async () => {
    dispatcher.announce(weights(1));
    dispatcher.announce(weights(2, "b"));
    const one = await hand().ready(10, 1);
    void dispatcher.play([
      { ...someTickets(1)[0]!, episode: "sync", version: 2 },
      { ...someTickets(1)[0]!, episode: "async", version: 1, exact: false },
      { ...someTickets(1)[0]!, episode: "fresh", version: 2, exact: false },
    ]);
    await world.settle();
    expect(one.granted).toEqual(["async/0"]);
    one.load(2, "b");
    await world.settle();
    expect(one.granted).toEqual(["async/0", "sync/0", "fresh/0"]);
  });
});

describe("an outcome", () => {
  test("is taken once; a second delivery is answered and ignored", async () => {
    const { one } = await playing(2, 4);
    expect([await one.finish("e0"), await one.finish("e0"), await one.finish("ghost")]).toEqual([true, false, false]);
    expect(book.counts.ignored).toBe(2);
  });

  test("of an attempt that was given to another is ignored", async () => {
    const { one, all } = await playing(1, 4);
    one.peer.close("cut");
    await world.settle();
    const [two, back] = [await hand("s1").ready(4), await hand("s0").ready(4)];
    expect(two.granted).toEqual(["e0/1"]);
    expect([await back.finish("e0", 0), await back.finish("e0", 1), await two.finish("e0", 1)]).toEqual([
      false,
      false,
      true,
    ]);
    expect((await all)[0]!.sampler).toBe("s1");
  });
});

describe("a bad trajectory", () => {
  const send = async (one: Hand, attempt: number, change: (outcome: PlayedOutcome) => void) => {
    const outcome = scored("e0") as PlayedOutcome;
    change(outcome);
    const ask = { type: "episode.finished", actor: one.actor, episode: "e0", attempt, outcome } as const;
    const answer = await one.peer.ask(ask, 5000);
    await world.settle();
    return answer;
  };
  const poison = ({ trajectory }: PlayedOutcome) => void trajectory.logProbs.fill(Number.NaN, 1);

  test("is never used: after as many deliveries as attempts its episode is aborted, and others go on", async () => {
    const { one, all } = await playing(2, 4);
    const deliveries = [0, 1, 2];
    for (const attempt of deliveries) await send(one, attempt, poison);
    expect(await one.finish("e1")).toBe(true);
    const detail = "s0 sent an invalid trajectory of e0: log-probability NaN at token 1; this attempt has failed";
    expect((await all).map(({ outcome }) => outcome)).toMatchObject([
      { status: "aborted", detail },
      { status: "scored" },
    ]);
    expect(notices.filter((notice) => notice.includes("invalid"))).toEqual(Array(3).fill(`warning invalid: ${detail}`));
    figure("poison message", { deliveries: deliveries.length, used: 0, "others taken": 1, restarts: 0 });
  });

  test("is one whose turns are not those that were played", async () => {
    const { one, all } = await playing(1, 4);
    await send(one, 0, (outcome) => Object.assign(outcome, { turns: [] }));
    await send(one, 1, () => {});
    expect(await all).toMatchObject([{ ticket: { attempt: 1 }, outcome: { status: "scored" } }]);
    expect(notices.at(-1)).toContain("s0 sent an invalid trajectory of e0: it has 1 turn, but the episode has 0");
  });

  test("is one with weights that were never published, and the ticket is played again", async () => {
    const { one, all } = await playing(1, 4);
    await send(one, 0, (outcome) => Object.assign(outcome.trajectory, { digest: aDigest("b") }));
    await send(one, 1, () => {});
    expect(await all).toMatchObject([{ ticket: { attempt: 1 }, outcome: { status: "scored" } }]);
    expect(notices.at(-1)).toContain("version 1 with digest bbbbbbbbbbbb… is not among the last published versions");
  });
});

test("a sampler that announces its leave is no warning, and others get its tickets at once", async () => {
  const { one, two } = await playing(2, 4, 4);
  one.peer.tell({ type: "sampler.leaving", actor: "s0", reason: "SIGTERM" });
  await world.settle();
  expect(two.granted).toEqual(["e1/0", "e0/1"]);
  one.peer.close("SIGTERM");
  await world.settle();
  expect(notices.slice(2)).toEqual(["info left: s0 leaves: SIGTERM"]);
});

test("the dispatcher reports how long its tickets were idle, and why", async () => {
  dispatcher.announce(weights(1));
  await world.after(5000);
  expect(dispatcher.stalledMs).toBe(0);
  void dispatcher.play(someTickets(3));
  await world.after(300);
  expect([dispatcher.stalledMs, dispatcher.state]).toEqual([300, "3 tickets wait; no sampler is connected"]);
  const [one, two] = [await hand("s0").ready(1), await hand("s1").connect()];
  two.load(1, "b");
  await hand("s2").connect();
  await world.after(200);
  expect(dispatcher.stalledMs).toBe(200);
  expect(dispatcher.state).toBe("2 tickets wait; s0 plays 1, s1 is quarantined, s2 has not loaded its weights");
  expect(dispatcher.playing).toMatchObject({ tickets: 3, ended: 0 });
  const { batch } = dispatcher.playing!;
  await one.finish("e0");
  expect(dispatcher.stalledMs).toBe(0);
  expect(dispatcher.playing).toEqual({ batch, tickets: 3, ended: 1 });
  // While older tickets are open, the newest ones cannot be counted.
  void dispatcher.play([{ ...someTickets(1)[0]!, episode: "later" }]);
  expect(dispatcher.playing).toBeNull();
});

test("only samplers are taken in, and only asked what concerns them", async () => {
  const stranger = await hand("e0").connect("env-server");
  expect([stranger.peer.closed, dispatcher.samplerCount]).toEqual([true, 0]);
  const one = await hand().connect();
  const answer = await one.peer.ask({ type: "env.step", episode: "e", turn: 0, reply: "" }, 5000);
  expect(answer).toEqual({
    type: "failed",
    code: "protocol",
    detail: "no message env.step goes to the learner from a sampler",
  });
});

describe("samplers and learner together", () => {
  const played = (finished: readonly FinishedTicket[]) =>
    finished.map(({ ticket, outcome }) => [ticket.episode, ticket.attempt, outcome.status]);
  const all = (attempt = 0) => someTickets(6).map(({ episode }) => [episode, attempt, "scored"]);

  test("play everything once, in the order it was asked for", async () => {
    await bandits(world, "env-0");
    const two = ["sampler-0", "sampler-1"].map((actor) => startSampler(world, { actor, slots: 2 }));
    dispatcher.announce(weights(1));
    await world.settle();
    const done = dispatcher.play(someTickets(6));
    await world.settle();
    expect(played(await done)).toEqual(all());
    expect(two.flatMap(({ policy }) => policy.played).length).toBe(6);
  });

  test("lose a sampler, and the other one plays what it had", async () => {
    await bandits(world, "env-0");
    const [lost, left] = ["sampler-0", "sampler-1"].map((actor) => startSampler(world, { actor, slots: 6 }));
    dispatcher.announce(weights(1));
    await world.settle();
    hold(lost!.policy);
    const done = dispatcher.play(someTickets(6));
    await world.settle();
    expect(lost!.policy.played.length).toBe(3);
    lost!.connection.close("killed");
    await world.settle();
    const attempts = (await done).map(({ ticket, sampler }) => [ticket.attempt, sampler]);
    expect(attempts.filter(([attempt]) => attempt === 1)).toEqual(Array(3).fill([1, "sampler-1"]));
    expect(left!.policy.played.length).toBe(6);
  });

  test("lose the learner: the next one starts from its checkpoint, and takes no episode played for the first", async () => {
    await bandits(world, "env-0");
    const { policy } = startSampler(world, { slots: 6 });
    dispatcher.announce(weights(9, "c"));
    await world.settle();
    const release = hold(policy);
    const first = dispatcher.play(someTickets(6, { version: 9 }));
    await world.settle();
    await listener.close();
    await listen();
    dispatcher.announce(weights(1));
    const second = dispatcher.play(someTickets(6));
    await world.after(200);
    release();
    await world.settle();
    const finished = await second;
    expect(played(finished)).toEqual(all());
    for (const { outcome } of finished)
      expect(outcome).toMatchObject({ trajectory: { version: 1, digest: aDigest("a") } });
    expect(policy.played.length).toBe(12);
    expect(await Promise.race([first, Promise.resolve("open")])).toBe("open");
  });

  test("never train on what a quarantined sampler would play", async () => {
    await bandits(world, "env-0");
    const [bad, good] = ["sampler-0", "sampler-1"].map((actor) => startSampler(world, { actor, slots: 6 }));
    bad!.policy.found = () => aDigest("f");
    dispatcher.announce(weights(1));
    await world.settle();
    const finished = await dispatcher.play(someTickets(6));
    expect([bad!.policy.played, good!.policy.played.length]).toEqual([[], 6]);
    expect(finished.every(({ sampler }) => sampler === "sampler-1")).toBe(true);
  });
});
