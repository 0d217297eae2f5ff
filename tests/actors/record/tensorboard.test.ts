/** The bytes of event files, worked out by hand, and read again; tests/scripts/export-records.test.ts lets TensorBoard itself read some. */
import { describe, expect, test } from "bun:test";
import {
  crc32c,
  eventFileName,
  fileHead,
  scalarEvent,
  scalarsOf,
  tfRecord,
} from "../../../actors/record/tensorboard.ts";

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");

describe("CRC-32C", () => {
  // RFC 3720, appendix B.4, whose bytes are in the order of the wire.
  test.each([
    ["32 bytes of zeroes", new Uint8Array(32), 0x8a9136aa],
    ["32 bytes of ones", new Uint8Array(32).fill(255), 0x62a8ab43],
    ["32 bytes, ascending", Uint8Array.from({ length: 32 }, (_, i) => i), 0x46dd794e],
    ["32 bytes, descending", Uint8Array.from({ length: 32 }, (_, i) => 31 - i), 0x113fdb5c],
    ["the usual nine digits", new TextEncoder().encode("123456789"), 0xe3069283],
  ])("of %s", (_, bytes, sum) => expect(crc32c(bytes)).toBe(sum));
});

test("a file begins as every event file does: 24 bytes follow, and they name the version", () => {
  const head = fileHead(0);
  // The length and its masked checksum open every file that TensorFlow has written.
  expect(hex(head.subarray(0, 12))).toBe("1800000000000000" + "a37f4b22");
  // Field 1, 64 bits: 0.0. Field 3, 13 bytes of text.
  expect(hex(head.subarray(12, 36))).toBe(`090000000000000000${"1a0d"}${Buffer.from("brain.Event:2").toString("hex")}`);
  expect(head.length).toBe(8 + 4 + 24 + 4);
});

test("a scalar is wall time, step, and a summary of one tagged float", () => {
  const record = scalarEvent(1500, 300, [["a", 0.5]]);
  const value = `${"0a0161"}${"150000003f"}`;
  const summary = `0a08${value}`;
  const event = `${"09000000000000f83f"}${"10ac02"}${"2a0a"}${summary}`;
  expect(hex(record.subarray(12, -4))).toBe(event);
  expect(new DataView(record.buffer).getBigUint64(0, true)).toBe(BigInt(event.length / 2));
});

test("a file's name tells TensorBoard what it is, and when it began", () => {
  expect(eventFileName(1_795_195_797_500)).toBe("events.out.tfevents.1795195797.bunraku-500");
});

describe("an event file that is read", () => {
  const bytes = Buffer.concat([
    fileHead(0),
    scalarEvent(1, 7, [["a", 0.5], ["b", -2]]), // biome-ignore format: a row
    // As TensorFlow 2 writes a scalar: step 300; value {tag "c", tensor {dtype 1, tensor_content 0x3fc00000 (1.5)}}.
    tfRecord(Buffer.from("10ac022a0f0a0d0a0163420808012204" + "0000c03f", "hex")),
  ]);

  test("gives every scalar with its step", () => {
    expect([...scalarsOf(bytes)]).toEqual([
      { step: 7, tag: "a", value: 0.5 },
      { step: 7, tag: "b", value: -2 },
      { step: 300, tag: "c", value: 1.5 },
    ]);
  });

  test("may end within a record, as its writer may be at work", () => {
    expect([...scalarsOf(bytes.subarray(0, -3))].length).toBe(2);
  });

  test("is refused where a byte is wrong", () => {
    const wrong = Buffer.from(bytes);
    wrong[60]! ^= 1;
    expect(() => [...scalarsOf(wrong)]).toThrow("record at byte 40");
  });
});
