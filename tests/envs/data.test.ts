import { describe, expect, test } from "bun:test";
import { truncateSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, gzipSync, zstdCompressSync } from "node:zlib";
import fc from "fast-check";
import { fileWriter, parquetWrite } from "hyparquet-writer";
import { z } from "zod";
import { cached } from "../../envs/data/cached.ts";
import { jsonElements, jsonEntries } from "../../envs/data/json-parts.ts";
import { missingFile, readRows } from "../../envs/data/rows.ts";
import { itemsOfSplit, splitOfItem, splitOfSeed } from "../../envs/data/split.ts";
import { temporaryFolder } from "../scripts/temporary.ts";

const folder = temporaryFolder();
const file = async (name: string, content: string | Uint8Array<ArrayBuffer>) => {
  await Bun.write(join(folder, name), content);
  return join(folder, name);
};
const fixture = (name: string) => join(import.meta.dir, "data", name);
const Countdown = z.object({ target: z.int(), nums: z.array(z.int()) });

describe("readRows", () => {
  // The files were written by pyarrow 26, each with another codec; the first in two row groups.
  test.each([
    ["metamathqa.parquet", z.object({ response: z.string() }), 2, { response: "2 * 21 = 42.\nThe answer is: 42" }],
    ["gsm8k.parquet", z.object({ question: z.string() }), 1, { question: /1,250 cents/ }],
    [
      "mmlu.parquet",
      z.object({ choices: z.array(z.string()), answer: z.int() }),
      1,
      { answer: 2, choices: ["4", "6", "7", "9"] },
    ],
    ["countdown.parquet", Countdown, 5, { target: 5, nums: [1, 2, 8, 16] }],
  ])("reads %s as it was written", (name, schema, index, expected) => {
    const row = [...readRows(fixture(name), schema)][index] as Record<string, unknown>;
    for (const [key, value] of Object.entries(expected)) {
      if (value instanceof RegExp) expect(row[key]).toMatch(value);
      else expect(row[key]).toEqual(value);
    }
  });

  test("reads -0 as a number, also beside long digits", async () => {
    const lines = await file("zero.jsonl", '{"target": -0, "nums": [1], "note": "1234567890123456"}');
    expect([...readRows(lines, Countdown)]).toEqual([{ target: -0, nums: [1] }]);
  });

  test("refuses lines that are not UTF-8, after those before them", async () => {
    const path = await file("latin.jsonl", Uint8Array.from(Buffer.from('{"text": "\xe9"}', "latin1")));
    expect(() => [...readRows(path, z.object({ text: z.string() }))]).toThrow(/latin\.jsonl: .*(UTF-8|not valid)/i);
  });

  test("reads the lines that were written, however they fall on its chunks", () => {
    const text = fc.string({ unit: fc.constantFrom("a", "é", "語", "\\n", " "), maxLength: 40 });
    const lines = fc.array(fc.record({ text }), { minLength: 1, maxLength: 60 });
    return fc.assert(
      fc.asyncProperty(lines, fc.constantFrom("\n", "\r\n", "\n\n"), async (rows, end) => {
        // Padding moves the lines over the border of the first chunk of 1 MiB.
        const padding = JSON.stringify({ text: "x".repeat(2 ** 20 - 200) });
        const path = await file("lines.jsonl", [padding, ...rows.map((row) => JSON.stringify(row))].join(end));
        expect([...readRows(path, z.object({ text: z.string() }))].slice(1)).toEqual(rows);
      }),
      { numRuns: 30 },
    );
  });

  test.each([
    ["a.jsonl", '{"target": 1, "nums": [1]}\n{"target": "2", "nums": []}', /a\.jsonl, row 2: target: /],
    ["b.jsonl", '{"target": 1, "nums": [1]}\n{"target": 2,', /b\.jsonl, after row 1: JSON Parse error/],
    [
      "g.jsonl",
      '{"target": 9007199254740993, "nums": [1]}',
      /g\.jsonl, row 1: target: 9007199254740993 is too large for an exact number/,
    ],
    ["c.json", '{"target": 1}', /c\.json: does not hold an array/],
    ["d.csv", "target", /d\.csv: is not a \.parquet, \.jsonl or \.json file/],
    ["e.parquet", "no parquet at all", /e\.parquet: is not a parquet file, or was cut/],
    ["f.parquet", "PAR1", /f\.parquet: is not a parquet file: 4 bytes/],
  ])("refuses %s with one line that says where", async (name, text, message) => {
    const path = await file(name, text);
    expect(() => [...readRows(path, Countdown)]).toThrow(message);
  });

  // A file with a hole takes no space on the disk.
  test.each([
    ["jsonl", 2 ** 26, "JSON Parse error"],
    ["jsonl", 2 ** 26 + 1, "a line is longer than 67108864 bytes"],
    ["json", 2 ** 26 + 1, "ends in the middle of its data"],
    ["json", 2 ** 26 + 2, "a member is longer than 67108864 bytes"],
  ])("takes lines and members up to 64 MiB: .%s of %i bytes", async (ending, size, message) => {
    const path = await file(`long.${ending}`, "[");
    truncateSync(path, size);
    expect(() => [...readRows(path, Countdown)]).toThrow(message);
  });

  test("names the columns that there are", () => {
    expect(() => [...readRows(fixture("mmlu.parquet"), Countdown)]).toThrow(
      "has no column target, nums; it has question, subject, choices, answer",
    );
  });
});

describe("a parquet file", () => {
  test.each([
    ["GZIP", gzipSync],
    ["BROTLI", brotliCompressSync],
    ["ZSTD", zstdCompressSync],
    ["SNAPPY", null],
  ] as const)("may have a column without a value, compressed by %s", async (codec, compress) => {
    const path = join(folder, `empty-${codec}.parquet`);
    await parquetWrite({
      writer: fileWriter(path),
      codec,
      ...(compress === null ? {} : { compressors: { [codec]: compress } }),
      columnData: [
        { name: "text", data: ["a", "b"], type: "STRING" },
        { name: "note", data: [null, null], type: "STRING", nullable: true },
      ],
    });
    const schema = z.object({ text: z.string(), note: z.string().nullish() });
    const rows = [...readRows(path, schema)].map(({ text, note }) => ({ text, note: note ?? null }));
    expect(rows).toEqual([
      { text: "a", note: null },
      { text: "b", note: null },
    ]);
  });

  test("may have integers of 64 bits inside of structs", async () => {
    const path = join(folder, "structs.parquet");
    await parquetWrite({
      writer: fileWriter(path),
      schema: [
        { name: "root", num_children: 1 },
        { name: "tests", repetition_type: "OPTIONAL", num_children: 1, converted_type: "LIST" },
        { name: "list", repetition_type: "REPEATED", num_children: 1 },
        { name: "element", repetition_type: "OPTIONAL", num_children: 1 },
        { name: "input", repetition_type: "OPTIONAL", type: "INT64" },
      ],
      columnData: [{ name: "tests", data: [[{ input: 1n }, { input: 2n }]] }],
    });
    expect([...readRows(path, z.object({ tests: z.unknown() }))]).toEqual([{ tests: [{ input: 1 }, { input: 2 }] }]);
  });
});

describe("a damaged parquet file", () => {
  const writeEncodings = async (name: string) => {
    const path = join(folder, name);
    const text = (i: number) => (i % 5 === 0 ? null : `a common start ${i}`);
    const numbers = Array.from({ length: 24 }, (_, i) => i);
    const strings = numbers.map(text);
    await parquetWrite({
      writer: fileWriter(path),
      columnData: [
        { name: "delta", data: numbers, type: "INT32", encoding: "DELTA_BINARY_PACKED" },
        { name: "long", data: numbers.map(BigInt), type: "INT64", encoding: "DELTA_BINARY_PACKED", nullable: true },
        { name: "lengths", data: strings, type: "STRING", encoding: "DELTA_LENGTH_BYTE_ARRAY" },
        { name: "prefixes", data: strings, type: "STRING", encoding: "DELTA_BYTE_ARRAY" },
        { name: "split", data: numbers, type: "DOUBLE", encoding: "BYTE_STREAM_SPLIT" },
        { name: "words", data: numbers.map((i) => `word ${i % 3}`), type: "STRING", encoding: "RLE_DICTIONARY" },
        { name: "flags", data: numbers.map((i) => i < 9), type: "BOOLEAN", encoding: "RLE" },
      ],
    });
    const rows = numbers.map((i) => ({
      delta: i,
      long: i,
      lengths: text(i),
      prefixes: text(i),
      split: i,
      words: `word ${i % 3}`,
      flags: i < 9,
    }));
    return { path, rows };
  };

  test("differs from a whole one, which is read in every encoding", async () => {
    const { path, rows } = await writeEncodings("encodings.parquet");
    const schema = z.object(Object.fromEntries(Object.keys(rows[0]!).map((name) => [name, z.unknown()])));
    expect([...readRows(path, schema)]).toEqual(rows);
  });

  // Most pages have no checksum: a changed letter of a text is not found.
  test.each([
    ["metamathqa", ["response"]],
    ["gsm8k", ["question", "answer"]],
    ["mmlu", ["choices", "answer"]],
    ["countdown", ["target", "nums"]],
    ["every encoding", ["delta", "long", "lengths", "prefixes", "split", "words", "flags"]],
  ])("has all of its rows, or is an error that names it: %s with each byte changed", async (name, columns) => {
    const path = name === "every encoding" ? (await writeEncodings("each.parquet")).path : fixture(`${name}.parquet`);
    const script = join(import.meta.dir, "parquet-flips.ts");
    const child = Bun.spawn([process.execPath, script, path, temporaryFolder(), ...columns], {
      stdio: ["ignore", "pipe", "inherit"],
      timeout: 90_000,
      killSignal: "SIGKILL",
    });
    const output = await child.stdout.text();
    expect(child.signalCode ?? (await child.exited)).toBe(0);
    const { cases, intact, refused, faults } = JSON.parse(output);
    expect(faults).toEqual([]);
    expect(intact + refused).toBe(cases);
    expect(cases).toBe(2 * Bun.file(path).size);
    expect(refused).toBeGreaterThan(cases / 10);
  });
});

describe("members of a large JSON file", () => {
  const spaces = fc.constantFrom("", " ", "\n\t", "\r\n  ");
  /** JSON with white space of any kind between its outermost parts, so large that it falls on several chunks. */
  const spread = (parts: readonly string[], space: string, open: string, close: string) =>
    `${space}${open}${space}${parts.join(`${space},${space}`)}${space}${close}${space}`;
  const padding = "é".repeat(2 ** 19 - 300);

  test("are the elements that JSON.parse gives", () =>
    fc.assert(
      fc.asyncProperty(fc.array(fc.json({ maxDepth: 3 }), { maxLength: 20 }), spaces, async (parts, space) => {
        const all = [JSON.stringify(padding), ...parts];
        const path = await file("elements.json", spread(all, space, "[", "]"));
        expect([...jsonElements(path)]).toEqual(all.map((part) => JSON.parse(part)));
      }),
      { numRuns: 40 },
    ));

  test("may follow a byte order mark, as lines may", async () => {
    const marked = async (name: string, text: string) => file(name, new TextEncoder().encode(`\uFEFF${text}`));
    expect([...jsonElements(await marked("marked.json", "[1, 2]"))]).toEqual([1, 2]);
    const row = { target: 3, nums: [1, 2] };
    const lines = await marked("marked.jsonl", JSON.stringify(row));
    expect([...readRows(lines, Countdown)]).toEqual([row]);
    expect(() => [...jsonElements(fixture("../data.test.ts"))]).toThrow("does not hold an array");
  });

  test("are the entries that JSON.parse gives", () =>
    fc.assert(
      fc.asyncProperty(fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 })), spaces, async (entries, space) => {
        const all = Object.entries({ padding, ...entries });
        const parts = all.map(([key, value]) => `${JSON.stringify(key)}${space}:${space}${JSON.stringify(value)}`);
        const path = await file("entries.json", spread(parts, space, "{", "}"));
        const whole = JSON.parse(await Bun.file(path).text()) as Record<string, unknown>;
        expect(Object.fromEntries(jsonEntries(path))).toEqual(whole);
      }),
      { numRuns: 40 },
    ));

  test.each([
    ["[1, 2", /ends in the middle/],
    ["[1, 2] 3", /has data after its end/],
    ["[1,, 2]", /JSON Parse error/],
    ["[1, 2,]", /JSON Parse error/],
    ["[1, 2}", /its brackets do not match/],
    ["", /ends in the middle/],
    ["7", /does not hold an array/],
  ])("are refused where the file is not JSON: %p", async (text, message) => {
    const path = await file("broken.json", text);
    expect(() => [...jsonElements(path)]).toThrow(message);
  });

  test.each([
    ["{,}", /a comma without a member/],
    ['{"a": 1,, "b": 2}', /a comma without a member/],
    ['{"a": 1,}', /a comma without a member/],
    [Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d), /bytes that are not UTF-8/],
  ])("of an object are refused likewise: %p", async (content, message) => {
    const path = await file("broken.json", content);
    expect(() => [...jsonEntries(path)]).toThrow(message);
  });
});

test("a missing file is an error that says how to get it", () => {
  expect(missingFile(null, "X", "get one")).toBe("X needs a file: get one");
  expect(missingFile("/no/such", "X", "get one")).toBe("X: there is no file /no/such; get one");
  expect(missingFile(folder, "X", "get one")).toBe(`X: ${folder} is not a file; get one`);
  expect(missingFile(fixture("mmlu.parquet"), "X", "get one")).toBeNull();
});

describe("splits", () => {
  test("give RAGEN's validation seeds to validation, and its training seeds to training", () => {
    expect([123, 9_999, 10_000, 4_294_967_295].map((seed) => splitOfSeed("seed", seed))).toEqual([
      "validation",
      "validation",
      "train",
      "train",
    ]);
    expect(splitOfSeed("all", 123)).toBe("all");
  });

  test("of a file without an item are an error that does not blame the split", () => {
    const none = (items: string[], split: "all" | "train") => () => itemsOfSplit(items, split, String, "a.jsonl");
    expect(none([], "all")).toThrow("a.jsonl: has no usable row; an env needs at least one");
    const kept = Array.from({ length: 40 }, (_, i) => `${i}`).find((item) => splitOfItem(item) === "validation")!;
    expect(none([kept], "train")).toThrow("none of 1 usable rows is in the split train; set split to all");
  });

  test("are the same in every version, so that no later run trains on what an earlier one kept", () => {
    const numbers = Array.from({ length: 60 }, (_, i) => i);
    const kept = numbers.filter((i) => splitOfItem(`What is ${i} + ${i}?`) === "validation");
    expect(kept).toEqual([3, 15, 16, 18, 29, 39, 45, 52, 54]);
  });

  test("keep an eighth for validation, of any kind of text", () => {
    for (const text of [
      (i: number) => `${i}`,
      (i: number) => `What is ${i} + ${i}?`,
      (i: number) => `${i}, the same end`,
    ]) {
      const items = Array.from({ length: 8000 }, (_, i) => splitOfItem(text(i)));
      // 1000 expected, standard deviation 30.
      expect(items.filter((split) => split === "validation").length).toBeWithin(880, 1120);
    }
  });
});

test("cached loads once and evicts the least recently used value", () => {
  const loads: string[] = [];
  const kept = cached<string>(2);
  const get = (key: string) =>
    kept(key, () => {
      loads.push(key);
      return key;
    });
  for (const key of ["a", "b", "a", "c", "a", "b"]) expect(get(key)).toBe(key);
  expect(loads).toEqual(["a", "b", "c", "b"]);
});
