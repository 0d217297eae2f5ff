/** Frames of one turn of the event loop share a WebSocket message, and arrive one by one in their order. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { bundling, takeMessage } from "../../../actors/transport/bundle.ts";

const BYTES_MAX = 100;
/** Each begins as a frame of msgpack does. */
const frameOf = (...bytes: number[]) => Uint8Array.of(0x92, ...bytes);

/** A wire that bundles, and what it did. */
function wired({ takes = true } = {}) {
  const sent: Uint8Array[] = [];
  const closed: [reason: string, drop: boolean][] = [];
  const socket = {
    closing: false,
    queuedBytes: 7,
    send(message: Uint8Array) {
      sent.push(message);
      return takes;
    },
    close: (reason: string, drop: boolean) => void closed.push([reason, drop]),
  };
  return { sent, closed, socket, wire: bundling(socket, BYTES_MAX) };
}

/** The frames that arrive, and the refusal if there is one. */
function taken(messages: readonly Uint8Array[]) {
  const frames: Uint8Array[] = [];
  const refusals: string[] = [];
  const peer = {
    closed: false,
    receive: (frame: Uint8Array) => void frames.push(frame.slice()),
    refuse(_: string, detail: string) {
      refusals.push(detail);
      peer.closed = true;
    },
  };
  for (const message of messages) takeMessage(peer, message);
  return { frames, refusals };
}

describe("a wire that bundles", () => {
  test("sends the frames of one turn in one message, and counts their bytes until then", async () => {
    const { wire, sent } = wired();
    expect([frameOf(1), frameOf(2, 3)].map((frame) => wire.send(frame, {} as never))).toEqual([true, true]);
    expect([sent.length, wire.queuedBytes]).toEqual([0, 7 + 4 + 2 + 4 + 3]);
    await null;
    expect([sent.length, wire.queuedBytes]).toEqual([1, 7]);
    expect(taken(sent)).toEqual({ frames: [frameOf(1), frameOf(2, 3)], refusals: [] });
  });

  test("sends a frame alone as it is", async () => {
    const { wire, sent } = wired();
    wire.send(frameOf(1), {} as never);
    await null;
    expect(sent).toEqual([frameOf(1)]);
  });

  test("sends all frames, in their order, in messages within the limit", async () => {
    const frame = fc.uint8Array({ maxLength: BYTES_MAX - 1 }).map((bytes) => frameOf(...bytes));
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(frame)), async (turns) => {
        const { wire, sent } = wired();
        for (const frames of turns) {
          for (const frame of frames) wire.send(frame.slice(), {} as never);
          await null;
        }
        expect(taken(sent)).toEqual({ frames: turns.flat(), refusals: [] });
        for (const message of sent) expect(message.byteLength).toBeLessThanOrEqual(BYTES_MAX);
      }),
    );
  });

  test("sends what waits before it closes, but not if it drops", () => {
    for (const drop of [false, true]) {
      const { wire, sent, closed } = wired();
      wire.send(frameOf(1), {} as never);
      wire.close("enough", drop);
      expect([sent.length, closed]).toEqual([drop ? 0 : 1, [["enough", drop]]]);
    }
  });

  test("ends the connection if the socket drops a message, and takes no frame while it closes", async () => {
    const { wire, socket, closed } = wired({ takes: false });
    wire.send(frameOf(1), {} as never);
    await null;
    expect(closed).toEqual([["frames were dropped: the socket is full", true]]);
    socket.closing = true;
    expect(wire.send(frameOf(1), {} as never)).toBe(false);
  });
});

test.each([
  ["has no frame", [0xc1], []],
  ["has an empty frame", [0xc1, 0, 0, 0, 2, 0x92, 1, 0, 0, 0, 0], [frameOf(1)]],
  ["ends inside a frame", [0xc1, 0, 0, 0], []],
  ["ends inside a frame", [0xc1, 0, 0, 0, 3, 0x92, 1], []],
  ["ends inside a frame", [0xc1, 0, 0, 0, 2, 0x92, 1, 0xff, 0xff, 0xff, 0xff], [frameOf(1)]],
])("a bundle that %s is refused, case %#", (fault, bytes, frames) => {
  const refusals = [`bad frame: a bundle of ${bytes.length} bytes ${fault}`];
  expect(taken([Uint8Array.from(bytes)])).toEqual({ frames, refusals });
});

test("no frame of a bundle arrives after a frame that closed the connection", () => {
  let received = 0;
  const peer = {
    closed: false,
    receive() {
      received++;
      peer.closed = true;
    },
    refuse: () => {},
  };
  takeMessage(peer, Uint8Array.of(0xc1, 0, 0, 0, 1, 9, 0, 0, 0, 1, 9));
  expect(received).toBe(1);
});
