/** The bytes of event files, worked out by hand, and read again; tests/scripts/export/records.test.ts lets TensorBoard itself read some. */
import { describe, expect, test } from "bun:test";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import {
  crc32c,
  EventFiles,
  eventFileName,
  fileHead,
  scalarEvent,
  scalarsOf,
  tfRecord,
} from "../../../actors/record/tensorboard.ts";
import { ProtobufMessage } from "../../../model/engine/protobuf.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

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

test("a file that is cut anywhere gives the records before the cut, and nothing that is no float", () => {
  const [first, second] = [scalarEvent(0, 1, [["a", 0.5]]), scalarEvent(0, 2, [["a", 0.25]])];
  const file = Buffer.concat([first, second]);
  for (let length = 0; length < file.length; length++) {
    const steps = [...scalarsOf(file.subarray(0, length))].map(({ step }) => step);
    expect(steps).toEqual(length < first.length ? [] : [1]);
  }
  const tensorEvent = (type: number, content: string) => {
    const tensor = new ProtobufMessage().int(1, type).text(4, content);
    const value = new ProtobufMessage().text(1, "a").message(8, tensor);
    return tfRecord(new ProtobufMessage().int(2, 3).message(5, new ProtobufMessage().message(1, value)).finish());
  };
  expect([...scalarsOf(tensorEvent(1, "\0\0\0?"))]).toEqual([{ step: 3, tag: "a", value: 0.5 }]);
  expect([...scalarsOf(tensorEvent(7, "\0\0\0?"))]).toEqual([]);
  expect([...scalarsOf(tensorEvent(1, "\0\0\0?\0\0\0?"))]).toEqual([]);
});

describe("event files", () => {
  const point = (step: number, changed: object = {}) => ({
    name: "train/success",
    actor: "learner",
    step,
    value: step / 4,
    atMs: 0,
    ...changed,
  });
  const read = (...path: string[]) => [...scalarsOf(readFileSync(join(...path)))].map(({ step, tag }) => [step, tag]);

  test("have each point once: the run's at the top, an actor's own in its folder", () => {
    const folder = temporaryFolder();
    const files = new EventFiles(folder, 1500);
    for (const step of [1, 2]) files.add(point(step));
    files.add(point(1, { name: "process/rss_bytes", actor: "sampler-0" }));
    files.flush();
    files.add(point(3));
    files.flush();
    const name = eventFileName(1500);
    expect(read(folder, name)).toEqual([1, 2, 3].map((step) => [step, "train/success"]));
    expect(read(folder, "sampler-0", name)).toEqual([[1, "process/rss_bytes"]]);
    expect([files.fileCount, files.pointCount]).toEqual([2, 4]);
  });

  test("of an earlier export are not written over", () => {
    const folder = temporaryFolder();
    new EventFiles(folder, 1500).add(point(1));
    expect(() => new EventFiles(folder, 1500).add(point(1))).toThrow("EEXIST");
  });

  test("are written by the MiB, not held in memory", () => {
    const folder = temporaryFolder();
    const files = new EventFiles(folder, 1500);
    const bytes = scalarEvent(0, 1, [["train/success", 0.25]]).length;
    for (let i = 0; i * bytes <= 2 ** 20; i++) files.add(point(1));
    expect(statSync(join(folder, eventFileName(1500))).size).toBeGreaterThan(2 ** 20);
  });
});
