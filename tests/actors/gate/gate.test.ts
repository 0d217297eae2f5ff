/** Which requests a run's gate lets through, to which actors, and how connections end; with real sockets and certificates. */

import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ServerWebSocket } from "bun";
import { realClock } from "../../../actors/clock.ts";
import { JoinConfig } from "../../../actors/config/machine.ts";
import { Gate, type GateOptions } from "../../../actors/gate/gate.ts";
import type { Tell } from "../../../actors/protocol.ts";
import { bearer } from "../../../actors/transport/address.ts";
import { sayHello, welcoming } from "../../../actors/transport/handshake.ts";
import { offering } from "../../../actors/transport/offer.ts";
import { SocketTransport } from "../../../actors/transport/socket.ts";
import { type ClientTls, serverTls } from "../../../actors/transport/tls.ts";
import type { Handler, Peer, Problem } from "../../../actors/transport/transport.ts";
import { download, downloading } from "../../../actors/weights/load.ts";
import { behindProxy } from "../../behind-proxy.ts";
import { endsOfTests } from "../../ends.ts";
import { figure } from "../../figure.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { FakeClock } from "../fake-clock.ts";
import { certificates } from "../transport/certificates.ts";

const ACTORS = "the-actors-own-token";
const BOTH = "a-token-for-everything";
const SAMPLER = "a-token-for-samplers";
const ENV = "a-token-for-env-servers";
const limits = { clock: realClock, frameBytesMax: 1 << 16, queuedBytesMax: 1 << 20 };
const ends = endsOfTests();

/** Answers every ask with its own name. */
const answering = (detail: string): Handler => ({
  told() {},
  asked: () => ({ type: "failed", code: "capacity", detail }),
});
const silent: Handler = answering("a guest is not asked");

async function stage(changed: Partial<GateOptions> = {}) {
  const actors = new SocketTransport({ ...limits, token: ACTORS });
  const path = join(temporaryFolder(), "weights");
  writeFileSync(path, "0123456789");
  const fetch = (request: Request) =>
    new URL(request.url).pathname === "/weights/3/file"
      ? Response.json({ path, digest: "ab", byteLength: 10 })
      : new Response("gone\n", { status: 404 });
  const names = ["supervisor", "learner", "env-server-0"];
  const listeners = await Promise.all(
    names.map((name) => actors.listen("ws://127.0.0.1:0", answering(name), { fetch })),
  );
  const problems: Problem[] = [];
  const gate = new Gate({
    ...limits,
    listen: "ws://127.0.0.1:0",
    tls: null,
    actorsToken: ACTORS,
    connectionsMax: 100,
    strangersMax: 50,
    strangerMs: 10_000,
    joinTokens: [
      { token: BOTH, roles: ["sampler", "env-server"] },
      { token: SAMPLER, roles: ["sampler"] },
      { token: ENV, roles: ["env-server"] },
    ],
    find: (name) => listeners[names.indexOf(name)]?.address ?? null,
    isActor: (name) => name === "sampler-0",
    joinSettings: (role) => ({ hello: role }),
    report: (problem) => void problems.push(problem),
    ...changed,
  });
  ends.push(() => gate.close(), ...listeners.map((listener) => () => listener.close()));
  return { gate, actors, problems, http: gate.address.replace("ws", "http") };
}

const guest = (token: string, tls: ClientTls = {}) => new SocketTransport({ ...limits, token, tls });

async function ask(peer: Peer): Promise<string> {
  const answer = await peer.ask({ type: "env.step", episode: "e", turn: 0, reply: "" }, 5000);
  return answer.type === "failed" ? answer.detail : "";
}

describe("a token", () => {
  const places = ["actors/supervisor?as=g", "actors/learner?as=g", "actors/env-server-0?as=g", "offer/g"];
  test.each([
    [BOTH, [true, true, true, true], [200, 200, 200]],
    [SAMPLER, [true, true, true, false], [200, 403, 200]],
    [ENV, [true, false, false, true], [403, 200, 403]],
    ["a-token-for-samplerz", [false, false, false, false], [401, 401, 401]],
    ["", [false, false, false, false], [401, 401, 401]],
    [ACTORS, [false, false, false, false], [401, 401, 401]],
  ])("%p opens what it is for, and nothing else", async (token, connects, statuses) => {
    const { gate, http } = await stage();
    const tries = places.map((place) => guest(token).connect(`${gate.address}/${place}`, silent));
    expect((await Promise.allSettled(tries)).map(({ status }) => status === "fulfilled")).toEqual(connects);
    const headers = { Authorization: bearer(token) };
    const pages = ["join?role=sampler", "join?role=env-server", "weights/3"];
    const answers = await Promise.all(pages.map((page) => fetch(`${http}/${page}`, { headers })));
    expect(answers.map(({ status }) => status)).toEqual(statuses);
  });

  test("that is wrong, or a page in a browser, is reported at most once a second, with how many there were", async () => {
    const clock = new FakeClock();
    const { gate, http, problems } = await stage({ clock });
    const knock = async (headers: Record<string, string>) =>
      (await fetch(`${http}/join?role=sampler`, { headers })).status;
    for (let i = 0; i < 100; i++) expect(await knock({ Authorization: bearer(`guess ${i}`) })).toBe(401);
    expect(problems.map(({ detail }) => detail)).toEqual(["wrong token"]);
    clock.advance(1000);
    expect(await knock({ Authorization: bearer(BOTH), Origin: "http://evil.example" })).toBe(403);
    expect(problems[1]).toMatchObject({ kind: "refused", detail: "a page in a browser (and 99 before)" });
    expect(await knock({ Authorization: bearer(BOTH) })).toBe(200);
    figure("wrong token, wrong certificate", { guesses: 100, "let in": 0, "lines logged in that second": 1 });
    expect(gate.address).toMatch(/^ws:\/\/127\.0\.0\.1:\d+$/);
  });

  test("that is missing ends the connection at once; one that does not come, after strangerMs, however the bytes trickle", async () => {
    const clock = new FakeClock();
    const { gate } = await stage({ clock });
    const peer = await guest(BOTH).connect(`${gate.address}/actors/learner?as=g`, silent);
    const { hostname, port } = new URL(gate.address);
    /** A connection that sends this; `closed` resolves when the gate closes it. */
    async function open(text: string) {
      const { promise: closed, resolve } = Promise.withResolvers<void>();
      const socket = { data() {}, close: () => resolve() };
      const connection = await Bun.connect({ hostname, port: Number(port), socket });
      connection.write(text);
      return { connection, closed };
    }
    const request = "GET /join?role=sampler HTTP/1.1\r\nHost: gate\r\nX-A: a";
    const late = [await open(""), await open(request)];
    // The gate has taken those before it, which it accepted earlier.
    await (await open(`${request}\r\n\r\n`)).closed;
    clock.advance(9999);
    late[1]!.connection.write("a");
    expect(await ask(peer)).toBe("learner");
    expect(late.map(({ connection }) => connection.readyState)).toEqual([1, 1]);
    clock.advance(1);
    await Promise.all(late.map(({ closed }) => closed));
    expect(await ask(peer)).toBe("learner");
  });

  test("is waited for on strangersMax connections of an address; the next is closed, and guests that are there go on", async () => {
    const { gate, problems } = await stage({ strangersMax: 3 });
    const { hostname, port } = new URL(gate.address);
    const peer = await guest(BOTH).connect(`${gate.address}/actors/learner?as=g`, silent);
    const open = new Set<object>();
    const turnedAway = Promise.withResolvers<void>();
    let ended = 0;
    const socket = {
      open: (one: object) => void open.add(one),
      data() {},
      close(one: object) {
        open.delete(one);
        if (++ended === 17) turnedAway.resolve();
      },
    };
    for (let i = 0; i < 20; i++) await Bun.connect({ hostname, port: Number(port), socket });
    await turnedAway.promise;
    expect(open.size).toBe(3);
    expect(await ask(peer)).toBe("learner");
    const why = "3 connections from this address have shown no token; join.strangersMax is 3";
    expect(problems[0]).toEqual({ kind: "refused", peer: "127.0.0.1", detail: why });
  });

  test("does not help without a name, or with an unknown path", async () => {
    const { http } = await stage();
    const status = async (path: string) =>
      (await fetch(`${http}/${path}`, { headers: { Authorization: bearer(BOTH) } })).status;
    expect(
      await Promise.all(["", "etc/passwd", "actors/learner", "join?role=learner", "weights/..%2f"].map(status)),
    ).toEqual([404, 404, 400, 400, 404]);
    expect(await status("actors/learner/x?as=g")).toBe(404);
    const headers = { Authorization: bearer(BOTH) };
    expect((await fetch(`${http}/join?role=sampler`, { method: "POST", body: "x", headers })).status).toBe(413);
    for (const name of ["a%2Fb", "x".repeat(65)]) {
      const answer = await fetch(`${http}/actors/learner?as=${name}`, { headers });
      expect(await answer.text()).toBe("say who you are: ?as=NAME\n");
    }
  });
});

describe("through the gate", () => {
  test("a guest reaches the actor that it names, and ranges of weights come from the learner", async () => {
    const { gate, http } = await stage();
    for (const name of ["supervisor", "learner", "env-server-0"]) {
      expect(await ask(await guest(BOTH).connect(`${gate.address}/actors/${name}?as=g`, silent))).toBe(name);
    }
    const headers = { Authorization: bearer(SAMPLER), Range: "bytes=5-8" };
    expect(await (await fetch(`${http}/weights/3`, { headers })).text()).toBe("5678");
    expect((await fetch(`${http}/weights/12`, { headers })).status).toBe(404);
    const noSampler = { headers: { Authorization: bearer(ENV) } };
    expect((await fetch(`${http}/weights/supervisor`, noSampler)).status).toBe(403);
    // Where it lies is no business of a guest.
    expect((await fetch(`${http}/weights/3/file`, { headers })).status).toBe(404);
  });

  test("weights of this machine go past the proxy that the environment names", async () => {
    const { http } = await stage();
    await behindProxy(async () => {
      const { bytes } = await download(`${http}/weights/3`, 10, SAMPLER, downloading());
      expect(Buffer.from(bytes).toString()).toBe("0123456789");
    });
  });

  test("no guest takes the name of an actor, or says hello under another name than the gate knows", async () => {
    const { gate, actors, problems } = await stage({
      find: () => named.address,
    });
    const joined: string[] = [];
    const named = await actors.listen(
      "ws://127.0.0.1:0",
      welcoming("run-1", { ...answering("a learner"), joined: (_, { actor }) => void joined.push(actor) }),
    );
    ends.push(() => named.close());
    const reach = (as: string) => guest(SAMPLER).connect(`${gate.address}/actors/learner?as=${as}`, silent);
    await expect(reach("sampler-0")).rejects.toThrow("HTTP status 409 instead of a WebSocket");
    expect(problems[0]).toMatchObject({ detail: "sampler-0 is an actor of the run's own machine" });
    const me = (actor: string) => ({ actor, role: "sampler", url: null }) as const;
    await expect(sayHello(await reach("g"), me("sampler-0"), 5000)).rejects.toThrow("guest g said hello as sampler-0");
    await sayHello(await reach("g"), me("g"), 5000);
    expect(joined).toEqual(["g"]);
  });

  test("guests and actors of this machine reach an env server that takes no connections", async () => {
    const { gate, actors } = await stage();
    const transport = offering({ transport: guest(ENV), clock: realClock, failed() {} });
    const far = await transport.listen(`${gate.address}/offer/far`, answering("from far away"), {});
    ends.push(() => far.close());
    // More at once than connections that were made in advance.
    const here = Array.from({ length: 6 }, () => actors.connect(gate.urlOf("far"), silent));
    const there = Array.from({ length: 6 }, () => guest(SAMPLER).connect(`${gate.address}/actors/far?as=g`, silent));
    const answers = await Promise.all([...here, ...there].map(async (peer) => ask(await peer)));
    expect(answers).toEqual(Array(12).fill("from far away"));
  });

  test("a sampler that waits for an offer that never comes gets the reason", async () => {
    const clock = new FakeClock();
    const { gate } = await stage({ clock });
    const { promise: closed, resolve } = Promise.withResolvers<string>();
    await guest(SAMPLER).connect(`${gate.address}/actors/ghost?as=g`, {
      ...silent,
      closed: (_, reason) => resolve(reason),
    });
    clock.advance(10_000);
    expect(await closed).toBe("ghost offered no connection within 10000 ms");
  });

  test("when one end closes, the other gets the reason; and all connections of a guest can be cut", async () => {
    const { gate } = await stage();
    const closed: string[] = [];
    const { promise, resolve } = Promise.withResolvers<void>();
    const handler: Handler = {
      ...silent,
      closed(_, reason) {
        if (closed.push(reason) === 2) resolve();
      },
    };
    for (const name of ["learner", "supervisor"])
      await guest(BOTH).connect(`${gate.address}/actors/${name}?as=g`, handler);
    const other = await guest(BOTH).connect(`${gate.address}/actors/learner?as=other`, silent);
    gate.cut("g", "silent for 10000 ms");
    await promise;
    expect(closed).toEqual(Array(2).fill("silent for 10000 ms"));
    expect(await ask(other)).toBe("learner");
  });

  test("a frame over the limit ends that connection only, and there are only so many connections", async () => {
    const { gate } = await stage({ connectionsMax: 2 });
    const { promise: lost, resolve } = Promise.withResolvers<string>();
    const big = new SocketTransport({ ...limits, token: BOTH, frameBytesMax: 1 << 18 });
    const peer = await big.connect(`${gate.address}/actors/learner?as=g`, {
      ...silent,
      closed: (_, reason) => resolve(reason),
    });
    const other = await guest(BOTH).connect(`${gate.address}/actors/learner?as=h`, silent);
    const third = guest(BOTH).connect(`${gate.address}/actors/learner?as=i`, silent);
    await expect(third).rejects.toThrow("HTTP status 503 instead of a WebSocket");
    peer.tell({ type: "stop", reason: "x".repeat(1 << 17) } as Tell);
    expect(await lost).toBe("a frame was larger than the other end allows");
    expect(await ask(other)).toBe("learner");
    const sizes = { "frame of": `${1 << 17} bytes`, allowed: `${limits.frameBytesMax} bytes` };
    figure("oversize frame", { ...sizes, "connections ended": 1, "others ended": Number(other.closed) });
  });
});

/** A connection without a transport: the frames that it reads, and the reason for its end. */
async function raw(address: string, token: string) {
  const socket = new WebSocket(address, { headers: { Authorization: bearer(token) } });
  socket.binaryType = "arraybuffer";
  const frames: unknown[] = [];
  const waiting = [Promise.withResolvers<unknown>()];
  socket.onmessage = ({ data }) => {
    frames.push(data instanceof ArrayBuffer ? [...new Uint8Array(data)] : data);
    waiting.at(-1)!.resolve(frames.at(-1));
    waiting.push(Promise.withResolvers());
  };
  const ended = Promise.withResolvers<string>();
  socket.onclose = ({ reason }) => ended.resolve(reason);
  await new Promise<void>((resolve, reject) => {
    socket.onopen = () => resolve();
    socket.onerror = () => reject(new Error("refused"));
  });
  ends.push(() => socket.terminate());
  return { socket, closed: ended.promise, next: () => waiting.at(-1)!.promise };
}

type Raw = Awaited<ReturnType<typeof raw>>;

describe("the two ends of a connection", () => {
  /** A gate, and an actor that the guest g is connected to. */
  async function connected() {
    const opened = Promise.withResolvers<ServerWebSocket<undefined>>();
    const ended = Promise.withResolvers<string>();
    const server = Bun.serve<undefined>({
      port: 0,
      hostname: "127.0.0.1",
      fetch: (request, server) => (server.upgrade(request) ? undefined : new Response("no")),
      websocket: {
        open: (socket) => opened.resolve(socket),
        message: (socket, message) => void socket.send(message),
        close: (_socket, _code, reason) => ended.resolve(reason),
      },
    });
    ends.push(() => server.stop(true));
    const { gate } = await stage({ find: () => `ws://127.0.0.1:${server.port}` });
    const end = await raw(`${gate.address}/actors/learner?as=g`, BOTH);
    return { gate, end, actor: await opened.promise, actorEnded: ended.promise };
  }

  test("pass frames, and pings, which are empty", async () => {
    const { end } = await connected();
    for (const frame of [[1, 2], [], [3]]) {
      const echo = end.next();
      end.socket.send(Uint8Array.from(frame));
      expect(await echo).toEqual(frame);
    }
  });

  test("hear of each other's end", async () => {
    const first = await connected();
    first.end.socket.close(4000, "I leave");
    expect(await first.actorEnded).toBe("I leave");
    const second = await connected();
    second.actor.close(4000, "restarting");
    expect(await second.end.closed).toBe("restarting");
  });

  test("are closed by text, which no actor sends", async () => {
    const first = await connected();
    first.end.socket.send("hello");
    expect([await first.end.closed, await first.actorEnded]).toEqual(Array(2).fill("text, expected bytes"));
    const second = await connected();
    second.actor.send("hello");
    expect([await second.end.closed, await second.actorEnded]).toEqual(Array(2).fill("text, expected bytes"));
  });

  test("leave their place when they end", async () => {
    const { gate } = await stage({ connectionsMax: 1 });
    for (let i = 0; i < 3; i++) {
      const { socket, closed } = await raw(`${gate.address}/actors/learner?as=g`, BOTH);
      gate.cut("g", `round ${i}`);
      expect(await closed).toBe(`round ${i}`);
      socket.terminate();
    }
  });

  test("are closed with the reason if the actor cannot be reached", async () => {
    const reasonAt = async (changed: Partial<GateOptions>, name: string) => {
      const { gate } = await stage(changed);
      return (await raw(`${gate.address}/actors/${name}?as=g`, BOTH)).closed;
    };
    expect(await reasonAt({}, "sampler-0")).toBe("sampler-0 cannot be reached now");
    expect(await reasonAt({ find: () => "nats://127.0.0.1:4222" }, "learner")).toBe(
      "learner is reached through the broker; the roster has its address",
    );
  });

  test("are closed if the actor takes the connection and never answers", async () => {
    const { promise: knocked, resolve } = Promise.withResolvers<void>();
    const deaf = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data: () => resolve() } });
    ends.push(() => deaf.stop(true));
    const clock = new FakeClock();
    const { gate } = await stage({ clock, find: () => `ws://127.0.0.1:${deaf.port}` });
    const { closed } = await raw(`${gate.address}/actors/learner?as=g`, BOTH);
    await knocked;
    clock.advance(10_000);
    expect(await closed).not.toBe("");
  });
});

describe("an env server's offer", () => {
  test("is taken by an actor of this machine with the actors' token only", async () => {
    const { gate } = await stage();
    await expect(raw(gate.urlOf("far"), BOTH)).rejects.toThrow("refused");
  });

  test("that has ended is given to no sampler; the next one is", async () => {
    const { gate } = await stage();
    const first = await raw(`${gate.address}/offer/far`, ENV);
    gate.cut("far", "too old");
    expect(await first.closed).toBe("too old");
    const sampler = await raw(`${gate.address}/actors/far?as=g`, SAMPLER);
    const second = await raw(`${gate.address}/offer/far`, ENV);
    const read = second.next();
    sampler.socket.send(Uint8Array.of(7));
    expect(await read).toEqual([7]);
  });

  test("is pinged while it waits, ends when it is silent, and is only passed on once a sampler has it", async () => {
    const clock = new FakeClock();
    const { gate, http } = await stage({ clock });
    const [silent, taken, alive] = (await Promise.all(
      ["a", "b", "c"].map((name) => raw(`${gate.address}/offer/${name}`, ENV)),
    )) as [Raw, Raw, Raw];
    const pings = [silent.next(), taken.next()];
    clock.advance(7500);
    expect(await Promise.all(pings)).toEqual([[], []]);
    alive.socket.send(new Uint8Array());
    // The gate has read it before these requests, which came later.
    for (let i = 0; i < 2; i++) await fetch(`${http}/join?role=sampler`);
    const read = taken.next();
    const sampler = await raw(`${gate.address}/actors/b?as=g`, SAMPLER);
    sampler.socket.send(Uint8Array.of(1));
    expect(await read).toEqual([1]);
    clock.advance(7500 * 4);
    await silent.closed;
    const readByAlive = alive.next();
    (await raw(`${gate.address}/actors/c?as=h`, SAMPLER)).socket.send(Uint8Array.of(3));
    expect(await readByAlive).toEqual([3]);
    const more = taken.next();
    sampler.socket.send(Uint8Array.of(2));
    expect(await more).toEqual([2]);
  });
});

describe("TLS", () => {
  const open = async (mutual: boolean) => {
    const pem = certificates(temporaryFolder());
    const ca = pem.text("ca.crt");
    const files = { certFile: pem.path("server.crt"), keyFile: pem.path("server.key") };
    const clientCaFile = mutual ? pem.path("ca.crt") : null;
    const tls = serverTls({ ...JoinConfig.parse({}), ...files, clientCaFile });
    const { gate } = await stage({ listen: "wss://127.0.0.1:0", tls });
    const connect = async (tls: ClientTls) => {
      try {
        return await ask(await guest(BOTH, tls).connect(`${gate.address}/actors/learner?as=g`, silent));
      } catch (error) {
        return (error as Error).message.replace(/^cannot connect to \S+: /, "");
      }
    };
    const own = (name: string) => ({ ca, cert: pem.text(`${name}.crt`), key: pem.text(`${name}.key`) });
    return { connect, ca, own, stranger: pem.text("stranger.crt") };
  };

  test("lets in clients that trust the CA, and no others", async () => {
    const { connect, ca, stranger } = await open(false);
    expect(await connect({ ca })).toBe("learner");
    for (const tls of [{}, { ca: stranger }])
      expect(await connect(tls)).toStartWith("the TLS handshake failed: unable to verify");
  });

  test("of both ends refuses a client without a certificate of the CA, with or without a token", async () => {
    const { connect, ca, own } = await open(true);
    expect(await connect(own("client"))).toBe("learner");
    expect(await connect({ ca })).toContain("CERTIFICATE_REQUIRED");
    expect(await connect(own("stranger"))).not.toBe("learner");
  });
});
