/** The outer port of the gate, with real sockets. A server on loopback stands in for the gate's own server behind the port. */

import { afterEach, expect, test } from "bun:test";
import { connect } from "node:net";
import type { Socket } from "bun";
import { Door, type DoorOptions } from "../../../actors/gate/door.ts";
import { endsOfTests } from "../../ends.ts";
import { FakeClock } from "../fake-clock.ts";

const ends = endsOfTests();
afterEach(() => drains.clear());

/** Larger than what the system holds for a reader that reads nothing. */
const LARGE = Uint8Array.from({ length: 24 << 20 }, (_, i) => (i * 7) ^ (i >> 13));

interface Seen {
  readonly socket: Socket<undefined>;
  readonly bytes: Uint8Array[];
}

/** A server that keeps what it reads; `each` is called for each piece that it reads. */
function serverOf(each: (socket: Socket<undefined>) => void = () => {}) {
  const opened: Seen[] = [];
  const server = Bun.listen<undefined>({
    hostname: "127.0.0.1",
    port: 0,
    socket: {
      open: (socket) => void opened.push({ socket, bytes: [] }),
      data(socket, bytes) {
        opened.find((one) => one.socket === socket)!.bytes.push(bytes.slice());
        each(socket);
      },
      drain,
    },
  });
  ends.push(() => server.stop(true));
  return { opened, port: server.port };
}

function doorTo(serverPort: number, changed: Partial<DoorOptions> = {}) {
  const clock = new FakeClock();
  const refusals: string[] = [];
  const door = new Door({
    hostname: "127.0.0.1",
    port: 0,
    serverPort,
    connectionsMax: 100,
    strangersMax: 50,
    strangerMs: 10_000,
    clock,
    refused: (_, why) => void refusals.push(why),
    ...changed,
  });
  ends.push(() => door.stop());
  return { door, clock, refusals };
}

/** A client of the door. `until` resolves when it has read so many bytes, `closed` when its connection ends. */
async function clientOf(door: Door, first = "") {
  let count = 0;
  const bytes: Uint8Array[] = [];
  const waiting: { readonly least: number; readonly resolve: () => void }[] = [];
  const { promise: closed, resolve: close } = Promise.withResolvers<void>();
  const socket = await Bun.connect({
    hostname: "127.0.0.1",
    port: door.port,
    socket: {
      data(_, piece) {
        bytes.push(piece.slice());
        count += piece.length;
        for (const { least, resolve } of waiting) if (count >= least) resolve();
      },
      drain,
      close: () => close(),
    },
  });
  socket.write(first);
  ends.push(() => socket.terminate());
  const until = (least: number) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    waiting.push({ least, resolve });
    if (count >= least) resolve();
    return promise;
  };
  return { socket, closed, until, read: () => Buffer.concat(bytes) };
}

/** What a socket does when it can take bytes again. */
const drains = new Map<object, () => void>();
const drain = (socket: object) => drains.get(socket)?.();

/** Writes all of LARGE to a socket as it takes bytes. @returns a function that counts those that it has taken */
function writeAll(socket: Socket<undefined>, done: () => void = () => {}) {
  let at = 0;
  const more = () => {
    at += Math.max(0, socket.write(LARGE.subarray(at)));
    if (at === LARGE.length) done();
  };
  drains.set(socket, more);
  more();
  return () => at;
}

test("a connection that has shown a token leaves its place to the next stranger, up to both limits", async () => {
  const server = serverOf((socket) => void socket.write("!"));
  const { door, clock, refusals } = doorTo(server.port, { strangersMax: 1, connectionsMax: 2 });
  const admitted = async () => {
    const client = await clientOf(door, "hello");
    await client.until(1);
    const { remotePort } = server.opened.at(-1)!.socket;
    expect(door.fromOf(remotePort)).toBe("127.0.0.1");
    door.admit(remotePort);
    return { client, remotePort };
  };
  const [first] = [await admitted(), await admitted(), await admitted()];
  await (await clientOf(door)).closed;
  expect(refusals).toEqual(["3 connections are open, the most allowed (join.connectionsMax + join.strangersMax)"]);
  expect(clock.waitingMs).toEqual([]);
  server.opened[0]!.socket.end();
  await first.client.closed;
  expect(door.fromOf(first.remotePort)).toBe("unknown");
  await (await clientOf(door, "hello")).until(1);
  await (await clientOf(door)).closed;
  expect(refusals[1]).toBe("1 connections from this address have shown no token; join.strangersMax is 1");
  server.opened[1]!.socket.end();
  // Strangers of one address leave another address its own.
  const other = connect({ host: "127.0.0.1", localAddress: "127.0.0.2", port: door.port });
  other.write("hello");
  await new Promise((resolve) => void other.once("data", resolve));
  other.destroy();
});

test("an answer reaches a client that reads late whole and in order, although the server has ended", async () => {
  const server = serverOf((socket) => void writeAll(socket, () => socket.end()));
  const { door } = doorTo(server.port);
  const slow = await clientOf(door, "go");
  slow.socket.pause();
  // Another client reads as much meanwhile.
  const fast = await clientOf(door, "go");
  await fast.closed;
  slow.socket.resume();
  await slow.closed;
  for (const { read } of [fast, slow]) expect(read().equals(LARGE)).toBe(true);
});

test("a client that reads nothing holds back the server's writes to it, and to no other", async () => {
  const written: (() => number)[] = [];
  const server = serverOf((socket) => void written.push(writeAll(socket)));
  const { door } = doorTo(server.port);
  const slow = await clientOf(door, "go");
  slow.socket.pause();
  const fast = await clientOf(door, "go");
  await fast.until(LARGE.length);
  expect(written.map((count) => count() === LARGE.length)).toEqual([false, true]);
});

test("a request whose bytes come faster than the server takes them arrives whole and in order", async () => {
  const { promise: whole, resolve } = Promise.withResolvers<void>();
  let count = 0;
  const server = serverOf(() => {
    count = server.opened[0]!.bytes.reduce((sum, bytes) => sum + bytes.length, 0);
    if (count === LARGE.length) resolve();
  });
  const { door } = doorTo(server.port);
  writeAll((await clientOf(door)).socket as Socket<undefined>);
  await whole;
  expect(Buffer.concat(server.opened[0]!.bytes).equals(LARGE)).toBe(true);
});

test("a client is closed if the gate's server cannot be reached", async () => {
  const { door } = doorTo(1);
  await (await clientOf(door, "hello")).closed;
});
