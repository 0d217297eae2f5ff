/** Frames: decoding gives back the encoded message, and refuses anything else. */
import { expect, setDefaultTimeout, test } from "bun:test";
import fc from "fast-check";
import { ProtocolError, parseMessage } from "../../../actors/protocol.ts";
import { decodeFrame, type Envelope, encodeFrame } from "../../../actors/transport/frame.ts";
import { figure } from "../../figure.ts";

setDefaultTimeout(300_000);

const BYTES_MAX = 1 << 20;
// Minus zero travels as zero.
const finite = fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => value + 0);
// The codec renames this one key, so that it cannot reach a prototype.
const id = fc.string({ minLength: 1, maxLength: 20 }).filter((text) => text !== "__proto__");
const count = fc.nat();

const envelope: fc.Arbitrary<Envelope> = fc.oneof(
  fc.record({
    kind: fc.constant("tell" as const),
    body: fc.record({
      type: fc.constant("metrics" as const),
      actor: id,
      step: count,
      values: fc.dictionary(id, finite, { noNullPrototype: true }),
    }),
  }),
  fc.record({
    kind: fc.constant("ask" as const),
    id: fc.integer({ min: 1, max: 2 ** 40 }),
    body: fc.record({
      type: fc.constant("env.step" as const),
      episode: id,
      turn: count,
      reply: fc.string({ unit: "binary", maxLength: 100 }),
    }),
  }),
  fc.record({
    kind: fc.constant("answer" as const),
    id: fc.integer({ min: 1, max: 2 ** 40 }),
    body: fc.record({ type: fc.constant("failed" as const), code: fc.constant("env" as const), detail: fc.string() }),
  }),
);

test("a frame gives back the message that was put in", () => {
  fc.assert(
    fc.property(envelope, (sent) => {
      expect(decodeFrame(encodeFrame(sent, BYTES_MAX))).toEqual(sent);
    }),
    { numRuns: 1000 },
  );
});

test("a frame is a copy: the next one does not change it", () => {
  const tell = (step: number): Envelope => ({ kind: "tell", body: { type: "metrics", actor: "a", step, values: {} } });
  const first = encodeFrame(tell(1), BYTES_MAX);
  const bytes = [...first];
  encodeFrame(tell(99), BYTES_MAX);
  expect([...first]).toEqual(bytes);
  expect(first.buffer.byteLength).toBe(first.byteLength);
});

/** Either refused as a ProtocolError, or a message that passes the check of its schema again. */
function refusedOrValid(bytes: Uint8Array): "refused" | "valid" {
  try {
    const { body } = decodeFrame(bytes);
    expect(parseMessage(body)).toEqual(body);
    return "valid";
  } catch (error) {
    expect(error).toBeInstanceOf(ProtocolError);
    return "refused";
  }
}

/** Frames of each of two kinds. */
const FUZZED = 50_000;

test("random bytes are refused", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      expect(refusedOrValid(bytes)).toBe("refused");
    }),
    { numRuns: FUZZED },
  );
});

test("a damaged frame is refused, or is still a message that the schemas allow", () => {
  let refused = 0;
  fc.assert(
    fc.property(envelope, fc.nat(), fc.integer({ min: 1, max: 255 }), (sent, at, flip) => {
      const frame = encodeFrame(sent, BYTES_MAX);
      frame[at % frame.length]! ^= flip;
      if (refusedOrValid(frame) === "refused") refused++;
    }),
    { numRuns: FUZZED },
  );
  expect(refused).toBeGreaterThan(10_000);
  const still = { "still valid": FUZZED - refused, "accepted that are not": 0 };
  figure("malformed, wrong schema, wrong version", { frames: 2 * FUZZED, refused: FUZZED + refused, ...still });
});

test("a message of many bad items is refused by its first", async () => {
  const { pack } = await import("msgpackr");
  const nothing = Array.from({ length: 100_000 }, () => null);
  const tickets = pack([0, { type: "tickets", tickets: nothing, leaseMs: 1 }]);
  expect(() => decodeFrame(tickets)).toThrow(
    new ProtocolError("bad tickets: ✖ Invalid input: expected object, received null\n  → at tickets[0]"),
  );
});

test("a frame cannot carry code, prototypes or huge claims", () => {
  const frames: Record<string, string> = {
    "an error object by the name of eval": "9200c70ce593a46576616ca33131c0",
    "an array of four thousand million": "ddffffffff",
    "a string of four thousand million bytes": "9200dbffffffff",
    "a typed array of an unknown kind": "9200d47463",
    "a regular expression": "9200c705780092a16180",
    "a message type that is a big integer": "920081a474797065cf7fffffffffffffff",
    "__proto__ as a key": "920081a95f5f70726f746f5f5f81a474797065a473746f70",
  };
  for (const hex of Object.values(frames)) expect(refusedOrValid(Buffer.from(hex, "hex"))).toBe("refused");
  expect(({} as Record<string, unknown>)["type"]).toBeUndefined();
});

test.each([
  [[0], "a frame is [0, message], [1, id, ask] or [2, id, answer]"],
  [[1, 0, {}], "a frame is [0, message], [1, id, ask] or [2, id, answer]"],
  [[3, 1, {}], "a frame is [0, message], [1, id, ask] or [2, id, answer]"],
  ["text", "a frame is [0, message], [1, id, ask] or [2, id, answer]"],
])("%j is refused, and says what a frame is", async (content, message) => {
  const { pack } = await import("msgpackr");
  expect(() => decodeFrame(pack(content))).toThrow(new ProtocolError(message));
});
