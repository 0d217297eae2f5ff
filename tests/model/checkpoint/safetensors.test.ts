import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import fc from "fast-check";
import {
  checkTensors,
  type NamedTensor,
  readSafetensors,
  writeSafetensors,
} from "../../../model/checkpoint/safetensors.ts";
import { type ByteSource, SafetensorsSource } from "../../../model/checkpoint/safetensors-contents.ts";

const golden = join(import.meta.dir, "../../golden/model");

/** A file by hand: any header text, any data. */
function file(header: string | object, data: Uint8Array = new Uint8Array(0)): Uint8Array {
  const text = new TextEncoder().encode(typeof header === "string" ? header : JSON.stringify(header));
  const bytes = new Uint8Array(8 + text.length + data.length);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
  bytes.set(text, 8);
  bytes.set(data, 8 + text.length);
  return bytes;
}

const f32 = (begin: number, end: number, shape = [(end - begin) / 4]) => ({
  dtype: "F32",
  shape,
  data_offsets: [begin, end],
});
const inMemory = (bytes: Uint8Array): ByteSource => ({
  name: "f",
  byteLength: bytes.length,
  read: async (into, at) => into.set(bytes.subarray(at, at + into.length)),
});
const zeros = (count: number) => new Uint8Array(count);

const shapes = fc.array(fc.nat({ max: 4 }), { maxLength: 3 });
const tensor: fc.Arbitrary<NamedTensor> = shapes.chain((shape) => {
  const size = shape.reduce((product, length) => product * length, 1);
  return fc.float32Array({ minLength: size, maxLength: size }).map((values) => ({ shape, values }));
});
const name = fc.string({ unit: "grapheme" }).filter((text) => text !== "__metadata__");
const entries = fc.uniqueArray(fc.tuple(name, tensor), { selector: ([key]) => key, maxLength: 6 });

describe("writeSafetensors", () => {
  test("is read back bit for bit, NaN and -0 and empty arrays included", () => {
    fc.assert(
      fc.property(entries, fc.dictionary(fc.string(), fc.string()), (tensors, metadata) => {
        const back = readSafetensors(writeSafetensors(tensors, metadata), "f");
        expect(back.metadata).toEqual(metadata);
        expect(back.tensors.size).toBe(tensors.length);
        for (const [key, { shape, values }] of tensors) {
          expect(back.tensors.get(key)?.shape).toEqual(shape);
          expect(new Uint32Array(back.tensors.get(key)!.values.buffer)).toEqual(
            new Uint32Array(values.buffer, values.byteOffset, values.length),
          );
        }
      }),
    );
  });

  test("gives equal bytes for any order of tensors and metadata", () => {
    fc.assert(
      fc.property(entries, fc.dictionary(fc.string(), fc.string()), (tensors, metadata) => {
        const backwards = Object.fromEntries(Object.entries(metadata).reverse());
        expect(writeSafetensors(tensors.toReversed(), backwards)).toEqual(writeSafetensors(tensors, metadata));
      }),
    );
  });

  test("lays out one tensor as the format says", () => {
    const bytes = writeSafetensors([["w", { shape: [1, 2], values: Float32Array.of(1, -2) }]]);
    // The header's length, 56 = 0x38, as u64; 56 bytes of JSON, which need no padding; 1.0 and -2.0, little-endian.
    const header = '{"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}';
    expect(new TextDecoder().decode(bytes.subarray(8, 64)).trimEnd()).toBe(header);
    expect([...bytes.subarray(0, 8)]).toEqual([56, 0, 0, 0, 0, 0, 0, 0]);
    expect([...bytes.subarray(64)]).toEqual([0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
  });

  test("begins its data at a multiple of 8 bytes", () => {
    fc.assert(
      fc.property(entries, (tensors) => {
        const bytes = writeSafetensors(tensors);
        expect(new DataView(bytes.buffer).getUint32(0, true) % 8).toBe(0);
      }),
    );
  });

  const one = { shape: [1], values: Float32Array.of(1) };
  test.each<[string, [string, NamedTensor][], string]>([
    [
      "two of a name",
      [
        ["w", one],
        ["w", one],
      ],
      'cannot write tensor "w": the name occurs twice; names must be unique',
    ],
    ["the reserved name", [["__metadata__", one]], 'cannot write tensor "__metadata__": the format reserves this name'],
    [
      "a wrong shape",
      [["w", { ...one, shape: [2, 3] }]],
      'cannot write tensor "w": shape [2,3] takes 6 values, found 1',
    ],
    [
      "more values than the shape has",
      [["w", { ...one, values: Float32Array.of(1, 2) }]],
      'cannot write tensor "w": shape [1] takes 1 values, found 2',
    ],
  ])("refuses %s", (_, tensors, message) => {
    expect(() => writeSafetensors(tensors)).toThrow(message);
  });
});

describe("readSafetensors", () => {
  test("reads what Hugging Face's library wrote", async () => {
    const path = join(golden, "tied.safetensors");
    const { tensors, metadata } = readSafetensors(await Bun.file(path).bytes(), path);
    expect(metadata).toEqual({ format: "pt" });
    expect(tensors.get("model.embed_tokens.weight")?.shape).toEqual([64, 32]);
    expect(tensors.get("model.layers.1.self_attn.k_proj.bias")?.shape).toEqual([16]);
    // 2 layers of 12 tensors, the embedding and the last norm; tied, so no head.
    expect(tensors.size).toBe(26);
  });

  test("reads numbers that Python computed: the golden loss follows from the golden log-probabilities", async () => {
    const path = join(golden, "tied.expected.safetensors");
    const logProbs = readSafetensors(await Bun.file(path).bytes(), path).tensors.get("logProbs")!;
    const { mask, weight, loss } = await Bun.file(join(golden, "tied.json")).json();
    expect(logProbs.shape).toEqual([3, 12]);
    const terms = logProbs.values.map((logProb, i) => mask.flat()[i] * weight.flat()[i] * logProb);
    const sum = (numbers: Iterable<number>) => [...numbers].reduce((total, number) => total + number, 0);
    expect(-sum(terms) / sum(mask.flat())).toBeCloseTo(loss, 6);
  });

  test("widens half precision exactly", () => {
    // float16: 1, -2, 65504 (largest), 2^-24 (smallest), infinity. bfloat16: 1, -2, 3.140625, largest finite.
    const halves = Uint16Array.of(0x3c00, 0xc000, 0x7bff, 0x0001, 0x7c00, 0x3f80, 0xc000, 0x4049, 0x7f7f);
    const header = {
      h: { dtype: "F16", shape: [5], data_offsets: [0, 10] },
      b: { dtype: "BF16", shape: [4], data_offsets: [10, 18] },
    };
    const { tensors } = readSafetensors(file(header, new Uint8Array(halves.buffer)), "f");
    expect([...tensors.get("h")!.values]).toEqual([1, -2, 65504, 2 ** -24, Number.POSITIVE_INFINITY]);
    expect([...tensors.get("b")!.values]).toEqual([1, -2, 3.140625, 0xff * 2 ** 120]);
  });

  test.each([
    ["F16", (bits: number) => new Float16Array(Uint16Array.of(bits).buffer)[0]!],
    ["BF16", (bits: number) => new Float32Array(Uint32Array.of(bits << 16).buffer)[0]!],
  ] as const)("reads every %s into memory that is there, an odd number of them too", async (dtype, widened) => {
    for (const count of [1, 2, 3, 2 ** 16 - 1, 2 ** 16]) {
      const halves = Uint16Array.from({ length: count }, (_, i) => 2 ** 16 - 1 - i);
      const bytes = file({ w: { dtype, shape: [count], data_offsets: [0, 2 * count] } }, new Uint8Array(halves.buffer));
      const source = await SafetensorsSource.open(inMemory(bytes));
      const values = new Float32Array(count + 2).fill(7);
      await source.read("w", values.subarray(1, -1));
      expect([...values]).toEqual([7, ...Array.from(halves, widened), 7]);
    }
  });

  test("reads from the middle of a tensor that needs several reads", async () => {
    const count = 2 ** 22 + 5;
    const halves = Uint16Array.from({ length: count }, (_, i) => i % 0x7f80);
    const bytes = file(
      { w: { dtype: "BF16", shape: [count], data_offsets: [0, 2 * count] } },
      new Uint8Array(halves.buffer),
    );
    const source = await SafetensorsSource.open(inMemory(bytes));
    const values = new Float32Array(count - 3);
    await source.read("w", values, 3);
    const bits = new Uint32Array(values.buffer);
    expect(bits.every((word, i) => word === ((i + 3) % 0x7f80) << 16)).toBeTrue();
  });

  test("refuses to read values beyond a tensor's end", async () => {
    const bytes = writeSafetensors([["w", { shape: [2], values: Float32Array.of(3, 4) }]]);
    const source = await SafetensorsSource.open(inMemory(bytes));
    await expect(source.read("w", new Float32Array(2), 1)).rejects.toThrow("w [2] has no 2 values from 1 on");
  });

  test("reads a tensor without values that begins where another tensor begins", () => {
    const { tensors } = readSafetensors(file({ a: f32(0, 8), b: f32(0, 0) }, zeros(8)), "f");
    expect([...tensors].map(([name, { values }]) => [name, values.length])).toEqual([
      ["b", 0],
      ["a", 2],
    ]);
  });

  test("keeps its arrays when the bytes are overwritten", () => {
    const bytes = writeSafetensors([["w", { shape: [2], values: Float32Array.of(3, 4) }]]);
    const { tensors } = readSafetensors(bytes, "f");
    bytes.fill(0);
    expect([...tensors.get("w")!.values]).toEqual([3, 4]);
  });

  test("reads from the middle of a larger, odd-aligned buffer", () => {
    const bytes = writeSafetensors([["w", { shape: [2], values: Float32Array.of(3, 4) }]]);
    const larger = new Uint8Array(bytes.length + 7);
    larger.set(bytes, 3);
    const { tensors } = readSafetensors(larger.subarray(3, 3 + bytes.length), "f");
    expect([...tensors.get("w")!.values]).toEqual([3, 4]);
  });

  const badName = file({ "?": f32(0, 0) });
  badName[badName.indexOf("?".charCodeAt(0))] = 0xff;
  test.each<[string, Uint8Array, string]>([
    ["an empty file", zeros(0), "it has 0 bytes, but a safetensors file has at least 8"],
    ["a zip file", Uint8Array.from("PK\x03\x04data", (c) => c.charCodeAt(0)), "at most 100000000 are allowed"],
    ["a cut header", file({ w: f32(0, 4) }).subarray(0, 20), "bytes, but 12 are left; the file was cut"],
    ["a header cut by one byte", file({ w: f32(0, 0) }).subarray(0, -1), "are left; the file was cut"],
    ["a name that is not UTF-8", badName, "its header is not JSON in UTF-8"],
    ["bad JSON", file("{nope"), "its header is not JSON in UTF-8"],
    ["bad UTF-8", file("{}", Uint8Array.of()).fill(0xff, 8), "its header is not JSON in UTF-8"],
    ["a list", file("[1]"), "its header must be a JSON object, found [1]"],
    ["a row without offsets", file({ w: { dtype: "F32", shape: [1] } }), 'tensor "w": '],
    ["a negative offset", file({ w: f32(-4, 0, [1]) }, zeros(4)), 'tensor "w": '],
    [
      "metadata that is not text",
      file({ __metadata__: { epoch: 3 } }),
      "__metadata__ must be an object whose values are text",
    ],
    ["a list of metadata", file({ __metadata__: ["a"] }), "__metadata__ must be an object whose values are text"],
    [
      "a dtype that every object has",
      file({ w: { ...f32(0, 8), dtype: "toString" } }, zeros(8)),
      'tensor "w" is toString; readable are F32, F16, BF16',
    ],
    ["too long a place", file({ w: f32(0, 12, [2]) }, zeros(12)), "takes 8 bytes, but its offsets 0 to 12 hold 12"],
    [
      "another dtype",
      file({ w: { ...f32(0, 8), dtype: "I64" } }, zeros(8)),
      'tensor "w" is I64; readable are F32, F16, BF16',
    ],
    [
      "a wrong length",
      file({ w: f32(0, 12, [2, 2]) }, zeros(12)),
      "F32 [2,2] takes 16 bytes, but its offsets 0 to 12 hold 12",
    ],
    [
      "overlapping tensors",
      file({ a: f32(0, 8), b: f32(4, 12) }, zeros(12)),
      'tensor "b" begins at byte 4, inside tensor "a", which ends at 8',
    ],
    ["two names for the same bytes", file({ a: f32(0, 8), b: f32(0, 8) }, zeros(8)), "they overlap"],
    [
      "a hole",
      file({ a: f32(0, 4), b: f32(8, 12) }, zeros(12)),
      'bytes 4 to 8, between tensor "a" and tensor "b", belong to no tensor',
    ],
    [
      "cut data",
      file({ a: f32(0, 8) }, zeros(7)),
      'tensor "a" ends at byte 8 of the data, but the data has 7 bytes; the file was cut',
    ],
    ["a tail", file({ a: f32(0, 8) }, zeros(9)), '1 bytes after tensor "a" belong to no tensor'],
  ])("refuses %s, and names the file", (_, bytes, message) => {
    expect(() => readSafetensors(bytes, "runs/a/policy.safetensors")).toThrow(message);
    expect(() => readSafetensors(bytes, "runs/a/policy.safetensors")).toThrow(
      "cannot read runs/a/policy.safetensors: ",
    );
  });

  test("refuses every proper beginning of a file", () => {
    const bytes = writeSafetensors([["w", { shape: [2], values: Float32Array.of(3, 4) }]], { run: "a" });
    for (let length = 0; length < bytes.length; length++) {
      expect(() => readSafetensors(bytes.subarray(0, length), "f")).toThrow("cannot read f");
    }
  });
});

describe("checkTensors", () => {
  const held = readSafetensors(writeSafetensors([["w", { shape: [1, 2], values: new Float32Array(2) }]]), "f");

  test("accepts exactly the tensors a model needs", () => {
    expect(() => checkTensors(held, new Map([["w", [1, 2]]]))).not.toThrow();
  });

  test.each<[string, [string, number[]][], string]>([
    ["a missing tensor", [["v", [3]]], 'f has no tensor "v" [3]'],
    ["another shape", [["w", [2, 1]]], 'f: tensor "w" is [1,2], expected [2,1]'],
    ["an unknown tensor", [], 'f has a tensor "w" that this model lacks'],
  ])("refuses %s", (_, needed, message) => {
    expect(() => checkTensors(held, new Map(needed))).toThrow(message);
  });
});
