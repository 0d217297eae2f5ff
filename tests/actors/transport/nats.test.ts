/** What happens only at a broker: it is killed, refuses, is full, delivers again. Each test has its own nats-server. */

import { expect, test } from "bun:test";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { realClock } from "../../../actors/clock.ts";
import type { Answer, Ask, Message, Messages, Tell } from "../../../actors/protocol.ts";
import { encodeFrame } from "../../../actors/transport/frame.ts";
import { DELIVERIES_MAX, QUARANTINE, WORK } from "../../../actors/transport/nats/broker.ts";
import { NatsTransport, parcelKey, proofOf } from "../../../actors/transport/nats/nats.ts";
import { encodeParcel } from "../../../actors/transport/nats/wire.ts";
import type { SocketOptions } from "../../../actors/transport/socket-wire.ts";
import { type Handler, type Peer, type Problem, TokenRefused } from "../../../actors/transport/transport.ts";
import { type BrokerProcess, natsServer, startBroker } from "../../../bench/broker.ts";
import { endsOfTests } from "../../ends.ts";
import { figure } from "../../figure.ts";
import { describeWhere } from "../../needs.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { certificates } from "./certificates.ts";
import { TOKEN } from "./stage.ts";

const limits = { clock: realClock, token: TOKEN, frameBytesMax: 8 << 20, queuedBytesMax: 32 << 20 };
const open: Messages["env.open"] = { type: "env.open", episode: "e1", env: "bandit", layoutSeed: 1, dynamicsSeed: 2 };
const opened: Messages["env.opened"] = { type: "env.opened", episode: "e1", observation: "", actionsLeft: 5 };
const note = (step: number): Tell => ({ type: "metrics", actor: "a", step, values: {} });

/** An outcome of about so many bytes. The broker keeps it until it is acknowledged. */
const finished = (episode: string, bytes = 0): Messages["episode.finished"] => ({
  type: "episode.finished",
  actor: "s",
  episode,
  attempt: 0,
  outcome: { status: "aborted", detail: "x".repeat(bytes) },
});
const taken = (ask: Ask): Answer =>
  ask.type === "episode.finished" ? { type: "episode.taken", episode: ask.episode, fresh: true } : opened;

const ends = endsOfTests();

async function brokerOf(...more: string[]): Promise<BrokerProcess> {
  const broker = await startBroker(more);
  ends.push(() => broker.end());
  return broker;
}

/** One actor's end at a broker, with what it saw. */
function actor(options: Partial<SocketOptions> = {}, answer: (ask: Ask) => Answer | Promise<Answer> = taken) {
  const seen: Message[] = [];
  const problems: Problem[] = [];
  let left = Promise.withResolvers<string>();
  const handler: Handler = {
    told: (_, message) => void seen.push(message),
    asked(_, message) {
      seen.push(message);
      return answer(message);
    },
    closed: (_, reason) => left.resolve(reason),
  };
  const report = (problem: Problem) => void problems.push(problem);
  const transport = new NatsTransport({ ...limits, report, ...options });
  return {
    seen,
    problems,
    left: () => left.promise.finally(() => (left = Promise.withResolvers<string>())),
    async listen(address: string) {
      const listener = await transport.listen(address, handler);
      ends.push(() => listener.close());
      return listener.address;
    },
    async connect(address: string): Promise<Peer> {
      const peer = await transport.connect(address, handler);
      ends.push(() => peer.close("the test is over"));
      return peer;
    },
  };
}

/** The broker's streams, past our code. */
async function streamsOf({ port }: BrokerProcess) {
  const connection = await connect({ servers: `127.0.0.1:${port}` });
  ends.push(() => connection.close());
  return { connection, js: jetstream(connection), manager: await jetstreamManager(connection) };
}

/** A broker whose work queue is there before the run, with limits of its own. */
async function brokerWithQueue(
  limits: Readonly<Partial<Record<"max_bytes" | "max_msg_size" | "max_consumers", number>>>,
) {
  const broker = await brokerOf();
  const { manager } = await streamsOf(broker);
  const subjects = ["bunraku.work.>"];
  await manager.streams.add({ name: WORK, subjects, retention: "workqueue", discard: "new", ...limits });
  return { broker, manager };
}

/** Resolves when it holds, checked at every turn of the loop. */
async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resume) => setImmediate(resume));
}

describeWhere(natsServer === null ? "no nats-server" : null, "a NATS broker", () => {
  test("that is killed ends every connection with a reason, and is used again when it is back", async () => {
    const broker = await brokerOf();
    const host = actor({}, (ask) => (ask.type === "env.open" ? new Promise(() => {}) : taken(ask)));
    const guest = actor();
    const address = await host.listen(`${broker.address}/learner`);
    const peer = await guest.connect(address);
    const waiting = peer.ask(open, 60_000);
    await until(() => host.seen.length === 1);
    await broker.kill();
    expect(await waiting).toMatchObject({ type: "failed", code: "closed" });
    expect(await Promise.all([host.left(), guest.left()])).toEqual(["the broker was lost", "the broker was lost"]);
    await expect(guest.connect(address)).rejects.toThrow(`cannot connect to ${address}: nothing answers there`);
    await broker.restart();
    let again: Peer | null = null;
    while (again === null) again = await guest.connect(address).catch(() => null);
    expect(await again.ask(finished("e2"), 60_000)).toMatchObject({ type: "episode.taken", episode: "e2" });
  }, 300_000);

  test("that has deleted a listener's reader gets a new one", async () => {
    const broker = await brokerOf();
    const peer = await actor().connect(await actor().listen(`${broker.address}/learner`));
    const { manager } = await streamsOf(broker);
    // The readers of a stream go with it.
    await manager.streams.delete(WORK);
    expect(await peer.ask(finished("e1"), 20_000)).toMatchObject({ type: "episode.taken" });
  }, 30_000);

  test("loses no trajectory that was acknowledged, over five kills, and hands none on twice by itself", async () => {
    const broker = await brokerOf();
    const host = actor();
    const address = await host.listen(`${broker.address}/learner`);
    const guest = actor();
    const acknowledged = new Set<string>();
    let peer: Peer | null = null;
    const wanted = Array.from({ length: 600 }, (_, i) => `e${i}`);
    let asked = 0;
    const kills = [100, 200, 300, 400, 500];
    let killing = Promise.resolve();
    for (const episode of wanted) {
      if (acknowledged.size >= (kills[0] ?? Number.POSITIVE_INFINITY)) {
        kills.shift();
        killing = broker.kill().then(() => broker.restart());
      }
      // As a sampler does: kept, and sent again until it is taken.
      while (!acknowledged.has(episode)) {
        while (peer === null || peer.closed) {
          await killing;
          peer = await guest.connect(address).catch(() => null);
        }
        asked++;
        const answer = await peer.ask(finished(episode), 60_000);
        if (answer.type === "episode.taken") acknowledged.add(answer.episode);
      }
    }
    const arrived = host.seen.map((message) => (message as Messages["episode.finished"]).episode);
    expect([...new Set(arrived)]).toEqual(wanted);
    expect(arrived.length).toBeLessThanOrEqual(asked);
    const delivered = { episodes: wanted.length, asks: asked, deliveries: arrived.length };
    figure("NATS broker SIGKILL", { kills: 5, ...delivered, "acknowledged and lost": 0 });
  }, 300_000);

  test("keeps order between what is stored and what is not", async () => {
    const broker = await brokerOf();
    const host = actor();
    const peer = await actor().connect(await host.listen(`${broker.address}/learner`));
    for (let i = 0; i < 300; i++) {
      if (i % 3 === 0) void peer.ask(finished(`${i}`), 60_000);
      else peer.tell(note(i));
    }
    await until(() => host.seen.length === 300);
    const order = host.seen.map((message) =>
      message.type === "metrics" ? message.step : Number((message as Messages["episode.finished"]).episode),
    );
    expect(order).toEqual(Array.from({ length: 300 }, (_, i) => i));
  });

  test("acknowledges what was answered, so its work queue is empty afterwards", async () => {
    const broker = await brokerOf();
    const peer = await actor().connect(await actor().listen(`${broker.address}/learner`));
    const answers = await Promise.all(["a", "b", "c"].map((episode) => peer.ask(finished(episode, 5000), 60_000)));
    expect(answers.map(({ type }) => type)).toEqual(["episode.taken", "episode.taken", "episode.taken"]);
    const { manager } = await streamsOf(broker);
    await until(async () => (await manager.streams.info(WORK)).state.messages === 0);
    expect((await manager.streams.info(QUARANTINE)).state.messages).toBe(0);
  });

  test("hands a stored message on once, however often it was sent", async () => {
    const broker = await brokerOf();
    const host = actor();
    await host.listen(`${broker.address}/learner`);
    const { connection, js } = await streamsOf(broker);
    const [inbox, id] = [crypto.randomUUID(), crypto.randomUUID()];
    const dial = JSON.stringify({ inbox, id, proof: proofOf(TOKEN, id, "learner") });
    const { inbox: to } = (await connection.request("bunraku.dial.learner", dial)).json<{ inbox: string }>();
    const send = async (number: number, episode: string, msgID: string) => {
      const frame = encodeFrame({ kind: "ask", id: number, body: finished(episode) }, 1000);
      const parcel = encodeParcel(parcelKey(TOKEN, `${id}h`), "last", number, 0, frame);
      return js.publish(`bunraku.work.${to}.${id}h`, parcel, { msgID });
    };
    const told = [
      await send(1, "a", "1"),
      await send(1, "a", "1"),
      await send(1, "a", "not the same id"),
      await send(2, "b", "2"),
    ];
    expect(told.map(({ duplicate }) => duplicate)).toEqual([false, true, false, false]);
    await until(() => host.seen.length >= 2);
    expect(host.seen.map((message) => (message as Messages["episode.finished"]).episode)).toEqual(["a", "b"]);
  });

  test("takes no parcel of another client, which hears the connection and has not its token", async () => {
    const broker = await brokerOf();
    const host = actor();
    const guest = actor();
    const address = await host.listen(`${broker.address}/learner`);
    const { connection, js, manager } = await streamsOf(broker);
    const heard = new Map<string, Uint8Array>();
    connection.subscribe("bunraku.to.>", { callback: (_, { subject, data }) => void heard.set(subject, data) });
    await connection.flush();
    const peer = await guest.connect(address);
    expect(await peer.ask(open, 60_000)).toEqual(opened);
    await until(() => heard.size === 2);
    const frame = encodeFrame({ kind: "tell", body: note(666) }, 1000);
    const close = new TextEncoder().encode("forged");
    for (const [subject, real] of heard) {
      const end = subject.split(".").at(-1)!;
      for (const key of [parcelKey("", end), parcelKey("not the token", end), parcelKey(TOKEN, `${end}x`)]) {
        for (const number of [1, 2, 3]) connection.publish(subject, encodeParcel(key, "last", number, 0, frame));
        for (const number of [0, 3]) connection.publish(subject, encodeParcel(key, "close", number, 0, close));
        await js.publish(subject.replace(".to.", ".work."), encodeParcel(key, "last", 2, 0, frame));
      }
      // One that was sent, changed in a bit; again; and nothing.
      for (const parcel of [real.map((byte, i) => (i === 5 ? byte ^ 1 : byte)), real, new Uint8Array(0)]) {
        connection.publish(subject, parcel);
      }
    }
    await connection.flush();
    expect(await peer.ask(finished("e2"), 60_000)).toMatchObject({ type: "episode.taken" });
    expect(host.seen.map(({ type }) => type)).toEqual(["env.open", "episode.finished"]);
    expect(guest.seen).toEqual([]);
    const refused = { kind: "refused", detail: "a parcel with a wrong tag came for a connection" };
    expect([host.problems, guest.problems]).toEqual([
      [expect.objectContaining(refused)],
      [expect.objectContaining(refused)],
    ]);
    await until(async () => (await manager.streams.info(WORK)).state.messages <= 3);
  });

  test("keeps apart what no handler survives, after DELIVERIES_MAX deliveries, and everything else flows", async () => {
    const broker = await brokerOf();
    const host = actor({}, (ask) => {
      if (ask.type === "episode.finished" && ask.episode === "poison") throw new Error("a bug");
      return taken(ask);
    });
    const address = await host.listen(`${broker.address}/learner`);
    const bad = await actor().connect(address);
    expect(await bad.ask(finished("poison"), 60_000)).toMatchObject({ type: "failed", code: "closed" });
    await until(() => host.problems.some(({ kind }) => kind === "quarantined"));
    expect(host.problems.map(({ kind }) => kind)).toEqual(["handlerThrew", "quarantined"]);
    expect(host.problems[1]!.detail).toContain(`no actor answered a stored message in ${DELIVERIES_MAX} deliveries`);
    expect(host.seen).toHaveLength(1);
    const { manager } = await streamsOf(broker);
    expect((await manager.streams.info(QUARANTINE)).state.messages).toBe(1);
    await until(async () => (await manager.streams.info(WORK)).state.messages === 0);
    const good = await actor().connect(address);
    expect(await good.ask(finished("good"), 60_000)).toMatchObject({ type: "episode.taken" });
  });

  test("gets a work queue of 256 MiB that refuses new messages when it is full", async () => {
    const broker = await brokerOf();
    await actor().listen(`${broker.address}/learner`);
    const { manager } = await streamsOf(broker);
    const { config } = await manager.streams.info(WORK);
    expect(config).toMatchObject({ discard: "new", max_bytes: 2 ** 28, retention: "workqueue", storage: "file" });
  });

  test("whose work queue is full holds samplers back, and loses nothing", async () => {
    const bytesMax = 30_000;
    const { broker, manager } = await brokerWithQueue({ max_bytes: bytesMax });
    const gates: (() => void)[] = [];
    const host = actor({}, (ask) => new Promise((resolve) => gates.push(() => resolve(taken(ask)))));
    const peer = await actor().connect(await host.listen(`${broker.address}/learner`));
    const asks = Array.from({ length: 20 }, (_, i) => peer.ask(finished(`e${i}`, 5000), 60_000));
    await until(() => gates.length >= 5);
    expect((await manager.streams.info(WORK)).state.bytes).toBeLessThanOrEqual(bytesMax);
    expect(peer.queuedBytes).toBeGreaterThan(14 * 5000);
    expect(gates.length).toBeLessThanOrEqual(6);
    let answered = 0;
    for (const ask of asks) void ask.then(() => answered++);
    await until(() => {
      for (const gate of gates.splice(0)) gate();
      return answered === asks.length;
    });
    expect((await Promise.all(asks)).map(({ type }) => type)).toEqual(asks.map(() => "episode.taken"));
    expect(host.seen).toHaveLength(20);
  }, 300_000);

  test("that takes no outcome is reported, once for each", async () => {
    const { broker } = await brokerWithQueue({ max_msg_size: 1000 });
    // Waits between tries are over at once.
    const clock = { ...realClock, after: (ms: number, run: () => void) => realClock.after(ms > 1000 ? ms : 0, run) };
    const guest = actor({ clock });
    const peer = await guest.connect(await actor().listen(`${broker.address}/learner`));
    void peer.ask(finished("e0", 5000), 60_000);
    await until(() => guest.problems.length > 0);
    expect(guest.problems).toEqual([
      expect.objectContaining({
        kind: "refused",
        detail: expect.stringMatching(
          /^bunraku_work takes no finished episode: .*message size exceeds maximum allowed/,
        ),
      }),
    ]);
  });

  test("carries frames larger than its own limit in parts", async () => {
    const broker = await brokerOf();
    const host = actor();
    const peer = await actor().connect(await host.listen(`${broker.address}/learner`));
    const big = finished("big", 3 << 20);
    expect(await peer.ask(big, 60_000)).toMatchObject({ type: "episode.taken" });
    peer.tell({ type: "stop", reason: "y".repeat(3 << 20) });
    expect(await peer.ask(open, 60_000)).toEqual(opened);
    expect(host.seen).toEqual([big, { type: "stop", reason: "y".repeat(3 << 20) }, open]);
  });

  test("passes outcomes that are together larger than its work queue", async () => {
    const { broker, manager } = await brokerWithQueue({ max_bytes: 3 << 20 });
    const host = actor();
    const address = await host.listen(`${broker.address}/learner`);
    const peers = [await actor().connect(address), await actor().connect(address)];
    const answers = await Promise.all(peers.map((peer, i) => peer.ask(finished(`e${i}`, 5 << 20), 20_000)));
    expect(answers.map(({ type }) => type)).toEqual(["episode.taken", "episode.taken"]);
    await until(async () => (await manager.streams.info(WORK)).state.messages === 0);
  }, 60_000);

  test("spreads connections over the listeners of one address, and those that are left serve on", async () => {
    const broker = await brokerOf();
    const hosts = [actor(), actor()];
    const address = await hosts[0]!.listen(`${broker.address}/env`);
    const second = new NatsTransport(limits);
    let served = 0;
    const listener = await second.listen(address, {
      told() {},
      asked() {
        served++;
        return opened;
      },
    });
    const guest = actor();
    for (let i = 0; i < 40; i++) await (await guest.connect(address)).ask(open, 60_000);
    expect(served + hosts[0]!.seen.length).toBe(40);
    expect(Math.min(served, hosts[0]!.seen.length)).toBeGreaterThan(5);
    await listener.close();
    expect(await (await guest.connect(address)).ask(open, 60_000)).toEqual(opened);
  });

  test("that asks for a token turns away who has another, and who has none", async () => {
    const broker = await brokerOf("--auth", TOKEN);
    const address = await actor().listen(`${broker.address}/learner`);
    expect(await (await actor().connect(address)).ask(open, 60_000)).toEqual(opened);
    for (const token of ["guessed", ""]) {
      const refusal = actor({ token }).connect(address);
      await expect(refusal).rejects.toBeInstanceOf(TokenRefused);
      await expect(refusal).rejects.toThrow(`cannot connect to ${address}: the token was refused`);
    }
  });

  test("with TLS and certificates for both ends lets in who has one of its authority", async () => {
    const folder = temporaryFolder();
    const { path, text } = certificates(folder);
    const own = ["--tls", "--tlscert", path("server.crt"), "--tlskey", path("server.key")];
    const broker = await brokerOf(...own, "--tlsverify", "--tlscacert", path("ca.crt"));
    const address = `tls://127.0.0.1:${broker.port}/learner`;
    const tls = { ca: text("ca.crt"), cert: text("client.crt"), key: text("client.key") };
    expect(await actor({ tls }).listen(address)).toBe(address);
    expect(await (await actor({ tls }).connect(address)).ask(open, 60_000)).toEqual(opened);
    const stranger = { ca: text("ca.crt"), cert: text("stranger.crt"), key: text("stranger.key") };
    await expect(actor({ tls: stranger, connectMsMax: 2000 }).connect(address)).rejects.toThrow(
      `cannot connect to ${address}: `,
    );
    await expect(actor({ tls: { ca: text("stranger.crt") } }).connect(address)).rejects.toThrow(
      /the TLS handshake failed/,
    );
  });

  test("without TLS is refused by who insists on it", async () => {
    const broker = await brokerOf();
    const address = `tls://127.0.0.1:${broker.port}/learner`;
    await expect(actor().listen(address)).rejects.toThrow(`cannot listen on ${address}: `);
  });

  test("that gives a listener no reader is refused in one line, and the next attempt asks again", async () => {
    const { broker } = await brokerWithQueue({ max_consumers: 1 });
    const first = new NatsTransport(limits);
    const { close } = await first.listen(`${broker.address}/env-server-0`, {
      told() {},
      asked: (_, ask) => taken(ask),
    });
    const second = actor();
    const wanted = `${broker.address}/learner`;
    const refusal = `cannot listen on ${wanted}: maximum consumers limit reached`;
    await expect(second.listen(wanted)).rejects.toThrow(refusal);
    await expect(second.listen(wanted)).rejects.toThrow(refusal);
    await close();
  });

  test("without streams is refused in one line", async () => {
    const broker = await startBroker([], false);
    ends.push(() => broker.end());
    await expect(actor().listen(`${broker.address}/learner`)).rejects.toThrow(
      /^cannot listen on nats:\/\/127\.0\.0\.1:\d+\/learner: the broker keeps no streams \(start it with --jetstream\)/,
    );
  });
});
