/** Messages that are cheap to send and costly to read are refused before they are read. */
import { expect, test } from "bun:test";
import { pack } from "msgpackr";
import { ProtocolError, parseMessage } from "../../actors/protocol.ts";
import { decodeFrame, encodeFrame } from "../../actors/transport/frame.ts";
import { TRANSPORT_LIMITS } from "../../actors/transport/transport.ts";
import { playedRow } from "../actors/metrics-sink/fake-run.ts";
import { aTrajectory, aTurn } from "../fixtures.ts";

const BYTES = 8 * 2 ** 20;

/** `[0, [item, item, …]]`, of `BYTES`. */
function listOf(item: readonly number[]): Uint8Array {
  const frame = new Uint8Array(BYTES);
  const count = Math.floor((BYTES - 7) / item.length);
  frame.set([0x92, 0x00, 0xdd]);
  new DataView(frame.buffer).setUint32(3, count);
  for (let i = 0; i < count; i++) frame.set(item, 7 + i * item.length);
  return frame;
}

test.each([
  ["nil", [0xc0]],
  ["empty lists", [0x90]],
  ["empty mappings", [0x80]],
  ["texts of a letter", [0xa1, 0x61]],
  ["empty typed arrays", [0xd4, 0x74, 5]],
  ["lists of a list, in each other", [0x91]],
])("a message of nothing but %s", (_, item) => {
  expect(() => decodeFrame(listOf(item))).toThrow(
    new ProtocolError(`a frame of ${BYTES} bytes has more than ${2 ** 21} values`),
  );
});

test.each([
  ["a number of millions of digits", [0xc9, 0, 0x70, 0, 0, 0x42]],
  ["a set", [0xd4, 0x73, 0]],
  ["a definition of a record", [0xd5, 0x72, 0x40, 0]],
  ["texts that lie elsewhere", [0xc9, 0, 0x70, 0, 0, 0x62]],
])("a message with %s", (_, item) => {
  const frame = listOf([0xc0]);
  frame.set(item, 7);
  expect(() => decodeFrame(frame)).toThrow(new ProtocolError("not data that a message may hold"));
});

test("the largest messages that actors send are read", () => {
  const turns = Array.from({ length: 3000 }, () => aTurn({ observation: "x".repeat(20), reply: "Up" }));
  const row = playedRow({});
  const trajectory = aTrajectory({ tokens: new Int32Array(2 ** 20).fill(7) });
  const rows = Array.from({ length: 12 }, () => ({ ...row, outcome: { ...row.outcome, trajectory, turns } }));
  const body = parseMessage({ type: "episodes", rows });
  const frame = encodeFrame({ kind: "ask", id: 1, body } as never, TRANSPORT_LIMITS.frameBytesMax);
  expect(frame.byteLength).toBeGreaterThan(48 * 2 ** 20);
  expect(decodeFrame(frame).body).toEqual(body);
});

test("what a field may lack can be there as undefined, however large the message", () => {
  const packed = pack([1, 1, { type: "env.step", episode: "e", turn: 1, reply: "x".repeat(BYTES), also: undefined }]);
  expect(() => decodeFrame(packed)).toThrow("bad env.step: ");
});
