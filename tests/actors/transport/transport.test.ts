/** What every transport promises (actors/transport/transport.ts), checked on each of them. */

import { afterAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { Answer, Ask, Message, Messages, Tell } from "../../../actors/protocol.ts";
import { encodeFrame } from "../../../actors/transport/frame.ts";
import { type Handler, type Listener, type Peer, TokenRefused } from "../../../actors/transport/transport.ts";
import { natsServer, startBroker } from "../../../bench/broker.ts";
import { endsOfTests } from "../../ends.ts";
import { natsStage, type Stage, type StageOptions, stages } from "./stage.ts";

const metrics = (step: number, values: Record<string, number> = {}): Tell => ({
  type: "metrics",
  actor: "a",
  step,
  values,
});
const note = (text: string): Tell => ({ type: "event", actor: "a", level: "info", kind: "note", text });
const step = (turn: number, reply = "left"): Messages["env.step"] => ({ type: "env.step", episode: "e1", turn, reply });
const opened = (observation: string): Messages["env.opened"] => ({
  type: "env.opened",
  episode: "e1",
  observation,
  actionsLeft: 5,
});
const open: Messages["env.open"] = { type: "env.open", episode: "e1", env: "bandit", layoutSeed: 1, dynamicsSeed: 2 };
const idle: Handler = { told() {}, asked: () => opened("") };

/** Collects what one end sees, and lets a test wait for it. */
class Witness implements Handler {
  readonly seen: Message[] = [];
  readonly peers: Peer[] = [];
  readonly reasons: string[] = [];
  readonly #answer: (ask: Ask) => Answer | Promise<Answer>;
  #waiting: { readonly holds: () => boolean; readonly resolve: () => void }[] = [];

  constructor(answer: (ask: Ask) => Answer | Promise<Answer> = () => opened("")) {
    this.#answer = answer;
  }

  opened(peer: Peer): void {
    this.peers.push(peer);
    this.#check();
  }

  told(_: Peer, message: Tell): void {
    this.seen.push(message);
    this.#check();
  }

  asked(_: Peer, message: Ask): Answer | Promise<Answer> {
    this.seen.push(message);
    this.#check();
    return this.#answer(message);
  }

  closed(_: Peer, reason: string): void {
    this.reasons.push(reason);
    this.#check();
  }

  until(holds: () => boolean): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push({ holds, resolve });
    this.#check();
    return promise;
  }

  #check(): void {
    for (const { holds, resolve } of this.#waiting) if (holds()) resolve();
    this.#waiting = this.#waiting.filter(({ holds }) => !holds());
  }
}

const failure = (answer: Answer) => (answer.type === "failed" ? answer.code : answer.type);

const broker = natsServer === null ? null : await startBroker();
afterAll(() => broker?.end());
const everyStage = { ...stages, ...(broker === null ? {} : { nats: natsStage(broker.address) }) };

describe.each(Object.entries(everyStage))("the %s transport", (_, makeStage) => {
  const ends = endsOfTests();

  function stage(options: StageOptions = {}): Stage {
    const made = makeStage(options);
    ends.push(() => made.end());
    return made;
  }

  async function listen(on: Stage, handler: Handler): Promise<Listener> {
    const listener = await on.host.listen(on.address, handler);
    ends.push(() => listener.close());
    return listener;
  }

  /** One connection: the listener's witness, and the peer that the connecting end holds. */
  async function connected(host: Handler, guest: Handler = idle, options: StageOptions = {}) {
    const on = stage(options);
    const { address } = await listen(on, host);
    return { ...on, address, peer: await on.guest.connect(address, guest) };
  }

  test("delivers what one end sends in order", async () => {
    const host = new Witness();
    const { peer } = await connected(host);
    for (let i = 0; i < 500; i++) {
      if (i % 5 === 0) void peer.ask(step(i), 60_000);
      else peer.tell(metrics(i));
    }
    await host.until(() => host.seen.length === 500);
    expect(host.seen.map((m) => (m.type === "env.step" ? m.turn : m.type === "metrics" ? m.step : -1))).toEqual(
      Array.from({ length: 500 }, (_, i) => i),
    );
  });

  test("tells both ways", async () => {
    const host = new Witness();
    const guest = new Witness();
    const { peer } = await connected(host, guest);
    peer.tell(note("to the host"));
    await host.until(() => host.seen.length === 1);
    host.peers[0]!.tell(note("to the guest"));
    await guest.until(() => guest.seen.length === 1);
    expect([host.seen[0], guest.seen[0]]).toEqual([note("to the host"), note("to the guest")]);
  });

  test("gives each ask the answer to that ask, in whatever order they are answered", async () => {
    const gates = new Map<number, (answer: Answer) => void>();
    const host = new Witness((ask) => new Promise((resolve) => gates.set((ask as Messages["env.step"]).turn, resolve)));
    const { peer } = await connected(host);
    const asks = [0, 1, 2].map((turn) => peer.ask(step(turn), 60_000));
    await host.until(() => host.seen.length === 3);
    for (const turn of [2, 0, 1]) gates.get(turn)!({ type: "failed", code: "env", detail: `turn ${turn}` });
    expect((await Promise.all(asks)).map((a) => a.type === "failed" && a.detail)).toEqual([
      "turn 0",
      "turn 1",
      "turn 2",
    ]);
  });

  test("answers an ask whose deadline passes with a failure, and ignores the late answer", async () => {
    const gate = Promise.withResolvers<Answer>();
    const host = new Witness((ask) => (ask.type === "env.open" ? gate.promise : opened("second")));
    const { peer } = await connected(host);
    expect(failure(await peer.ask(open, 1))).toBe("deadline");
    gate.resolve(opened("late"));
    expect(failure(await peer.ask(open, 60_000))).toBe("env.opened");
    expect(peer.closed).toBe(false);
  });

  test("answers every ask that waits when the other end closes", async () => {
    const host = new Witness(() => new Promise(() => {}));
    const guest = new Witness();
    const { peer } = await connected(host, guest);
    const asks = [peer.ask(open, 60_000), peer.ask(step(0), 60_000)];
    await host.until(() => host.seen.length === 2);
    host.peers[0]!.close("going home");
    expect((await Promise.all(asks)).map(failure)).toEqual(["closed", "closed"]);
    await guest.until(() => guest.reasons.length === 1);
    expect(guest.reasons).toEqual(["going home"]);
    expect(failure(await peer.ask(open, 60_000))).toBe("closed");
  });

  test("delivers what was told before a close, then the reason, once at each end", async () => {
    const host = new Witness();
    const guest = new Witness();
    const { peer } = await connected(host, guest);
    for (let i = 0; i < 50; i++) peer.tell(metrics(i));
    peer.close("done");
    peer.close("done twice");
    peer.tell(metrics(50));
    await host.until(() => host.reasons.length === 1);
    await guest.until(() => guest.reasons.length === 1);
    expect(host.seen).toHaveLength(50);
    expect([host.reasons, guest.reasons]).toEqual([["done"], ["done"]]);
  });

  test("takes an answer of the wrong type for a protocol failure", async () => {
    const host = new Witness(() => opened("an env.opened"));
    const { peer } = await connected(host);
    const answer = await peer.ask(step(0), 60_000);
    expect(answer).toMatchObject({ type: "failed", code: "protocol" });
    expect(answer.type === "failed" && answer.detail).toContain(
      "answered env.step with env.opened; expected env.stepped",
    );
  });

  test("shares no object between the two ends", async () => {
    const host = new Witness();
    const { peer } = await connected(host);
    const values = { reward: 1 };
    peer.tell(metrics(1, values));
    values.reward = 2;
    await host.until(() => host.seen.length === 1);
    expect(host.seen).toEqual([metrics(1, { reward: 1 })]);
  });

  test("carries typed arrays whole, as what they were", async () => {
    const trajectory = {
      tokens: Int32Array.of(1, -2, 2 ** 31 - 1),
      written: Uint8Array.of(0, 1, 1),
      logProbs: Float32Array.of(0, -0.5, -1e-30),
      contexts: [0],
      turns: [{ end: 2, reward: 1, penalty: -0.1 }],
      version: 3,
      digest: "ab".repeat(32),
    };
    const outcome = {
      status: "scored",
      stop: "success",
      success: true,
      trajectory,
      turns: [],
      finalObservation: "",
      extra: {},
    };
    const message = {
      type: "episode.finished",
      actor: "s",
      episode: "e",
      attempt: 0,
      outcome,
    } as Messages["episode.finished"];
    const host = new Witness(() => ({ type: "episode.taken", episode: "e", fresh: true }));
    const { peer } = await connected(host);
    expect(failure(await peer.ask(message, 60_000))).toBe("episode.taken");
    expect(host.seen).toEqual([message]);
    const [seen] = host.seen as [typeof message];
    const kinds = Object.values((seen.outcome as typeof outcome).trajectory).map((value) => value.constructor.name);
    expect(kinds.slice(0, 3)).toEqual(["Int32Array", "Uint8Array", "Float32Array"]);
  });

  test("closes a peer that sends more than we take, and no other", async () => {
    const host = new Witness(() => opened("still here"));
    const on = stage({ host: { frameBytesMax: 10_000 } });
    const { address } = await listen(on, host);
    const good = await on.guest.connect(address, idle);
    const badEnd = new Witness();
    const bad = await on.guest.connect(address, badEnd);
    bad.tell({ type: "stop", reason: "x".repeat(20_000) });
    await badEnd.until(() => badEnd.reasons.length === 1);
    await host.until(() => host.reasons.length === 1);
    expect(badEnd.reasons[0]).toMatch(/larger than the other end allows|frame of 2\d{4} bytes arrived/);
    expect(on.problems.map((problem) => problem.kind)).toEqual(["oversize"]);
    expect(failure(await good.ask(open, 60_000))).toBe("env.opened");
  });

  test("says of a message too large to send that it is, and by how much", async () => {
    const { peer } = await connected(new Witness(), idle, { guest: { frameBytesMax: 1000 } });
    const answer = await peer.ask(step(0, "x".repeat(2000)), 60_000);
    expect(answer).toMatchObject({ type: "failed", code: "capacity" });
    expect(answer.type === "failed" && answer.detail).toMatch(
      /cannot send env\.step: 20\d\d bytes, frameBytesMax is 1000/,
    );
    expect(peer.closed).toBe(false);
  });

  test("answers with a failure when the answer is too large to send", async () => {
    const host = new Witness(() => opened("x".repeat(2000)));
    const { peer } = await connected(host, idle, { host: { frameBytesMax: 1000 } });
    expect(failure(await peer.ask(open, 60_000))).toBe("capacity");
  });

  test("refuses a wrong token before anything is heard of it", async () => {
    const host = new Witness();
    const on = stage({ guest: { token: "guessed" } });
    const { address } = await listen(on, host);
    const refusal = on.guest.connect(address, idle);
    await expect(refusal).rejects.toBeInstanceOf(TokenRefused);
    await expect(refusal).rejects.toThrow(`cannot connect to ${address}: the token was refused`);
    expect(host.peers).toEqual([]);
    expect(on.problems.map(({ kind, detail }) => [kind, detail])).toEqual([["refused", "wrong token"]]);
  });

  test("names the address that nothing answers at", async () => {
    const on = stage();
    const listener = await on.host.listen(on.address, idle);
    await listener.close();
    await expect(on.guest.connect(listener.address, idle)).rejects.toThrow(
      new RegExp(`^cannot connect to ${listener.address}: nothing`),
    );
  });

  test("closes a slow reader with a reason when queuedBytesMax is reached", async () => {
    const host = new Witness();
    const guest = new Witness();
    const limits = { frameBytesMax: 100_000, queuedBytesMax: 400_000 };
    const { peer } = await connected(host, guest, { guest: limits });
    // All of it in one turn of the loop, so no reader could have read any of it.
    let most = 0;
    for (let i = 0; i < 10_000 && !peer.closed; i++) {
      peer.tell({ type: "stop", reason: "x".repeat(50_000) });
      most = Math.max(most, peer.queuedBytes);
    }
    expect(peer.closed).toBe(true);
    expect(most).toBeGreaterThan(300_000);
    expect(most).toBeLessThanOrEqual(limits.queuedBytesMax);
    await guest.until(() => guest.reasons.length === 1);
    expect(guest.reasons[0]).toContain("queuedBytesMax is 400000");
  });

  test("closes the peer whose message made a handler throw, and lives on", async () => {
    const host = new Witness((ask) => {
      if (ask.type === "env.open") throw new Error("a bug");
      return { type: "failed", code: "env", detail: "" };
    });
    const { peer, guest, address, problems } = await connected(host);
    expect(failure(await peer.ask(open, 60_000))).toBe("closed");
    expect(problems.map(({ kind }) => kind)).toEqual(["handlerThrew"]);
    expect(problems[0]!.detail).toEndWith(": Error: a bug");
    expect(problems[0]!.stack).toMatch(/^at .*transport\.test\.ts:\d+/);
    expect(failure(await (await guest.connect(address, idle)).ask(step(0), 60_000))).toBe("env");
  });

  test("closes the peer when the handler's promise is rejected", async () => {
    const host = new Witness(() => Promise.reject(new Error("a late bug")));
    const { peer, problems } = await connected(host);
    expect(failure(await peer.ask(open, 60_000))).toBe("closed");
    expect(problems.map(({ kind }) => kind)).toEqual(["handlerThrew"]);
  });

  const malformed: [string, Uint8Array<ArrayBuffer>][] = [
    ["noise", Uint8Array.of(0xc1, 1, 2)],
    ["an ask that is told", encodeFrame({ kind: "tell", body: open as never }, 1000)],
    ["a tell that is asked", encodeFrame({ kind: "ask", id: 1, body: metrics(1) as never }, 1000)],
    ["an answer to nothing", encodeFrame({ kind: "answer", id: 1, body: opened("") }, 1000)],
    ["an unknown field", encodeFrame({ kind: "tell", body: { ...metrics(1), extra: 1 } as never }, 1000)],
    ["an unknown type", encodeFrame({ kind: "tell", body: { type: "hack" } as never }, 1000)],
    ["a type from Object.prototype", encodeFrame({ kind: "tell", body: { type: "constructor" } as never }, 1000)],
    ["a truncated frame", encodeFrame({ kind: "tell", body: metrics(1) }, 1000).slice(0, -3)],
    ["nothing but nesting", new Uint8Array(100_000).fill(0x91)],
  ];

  test.each(malformed)("closes a peer that sends %s, and hands nothing on", async (_, bytes) => {
    const host = new Witness();
    const on = stage();
    const { address } = await listen(on, host);
    const raw = await on.raw(address);
    raw.send(bytes);
    expect(await raw.closed).toStartWith("bad frame: ");
    expect(host.seen).toEqual([]);
    expect(on.problems.map(({ kind }) => kind)).toEqual(["badFrame"]);
  });

  test("lives through random bytes, and still serves the others", async () => {
    const host = new Witness(() => opened("still here"));
    const on = stage();
    const { address } = await listen(on, host);
    const good = await on.guest.connect(address, idle);
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 64 }), async (bytes) => {
        const raw = await on.raw(address);
        raw.send(new Uint8Array(bytes));
        expect(await raw.closed).toStartWith("bad frame: ");
      }),
      // A bundle of frames begins with 193.
      { numRuns: 50, examples: [[Uint8Array.of(193)], [Uint8Array.of(193, 0, 0, 0, 0)]] },
    );
    expect(host.seen).toEqual([]);
    expect(failure(await good.ask(open, 60_000))).toBe("env.opened");
  });

  test("closes its peers when the listener closes", async () => {
    const guest = new Witness();
    const on = stage();
    const listener = await on.host.listen(on.address, new Witness());
    await on.guest.connect(listener.address, guest);
    await listener.close();
    await guest.until(() => guest.reasons.length === 1);
    expect(guest.reasons).toEqual(["the listener closed"]);
  });
});
