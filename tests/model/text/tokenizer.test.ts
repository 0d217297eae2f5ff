import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { Tokenizer } from "../../../model/text/tokenizer.ts";

const tokenizer = new Tokenizer();
const pieces = (text: string) => tokenizer.encode(text).map((id) => tokenizer.decode([id]));

/** Text as policies and envs write it: words of the table, and anything else, run together. */
const words = fc.constantFrom(
  "<think>",
  "</answer>",
  " || ",
  "Up",
  " Left",
  "√",
  "#",
  "_",
  "\n",
  "7",
  "Pho",
  "<|im_end|>",
  "é",
  "😀",
);
const mixed = fc
  .array(fc.oneof(words, fc.string({ unit: "binary" })), { maxLength: 20 })
  .map((parts) => parts.join(""));
/** Any sequence of 16-bit units, so lone surrogates too. */
const units = fc
  .array(fc.oneof(fc.nat({ max: 0xffff }), fc.integer({ min: 0xd7ff, max: 0xe000 })))
  .map((codes) => String.fromCharCode(...codes));

describe("Tokenizer", () => {
  test("decodes what it encoded, for any text", () => {
    const roundTrips = (text: string) => expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
    fc.assert(fc.property(mixed, roundTrips), { numRuns: 500 });
    fc.assert(fc.property(units, roundTrips), { numRuns: 500 });
    roundTrips("\uFEFFa byte order mark stays");
  });

  test("keeps its table: checkpoints are trained on these ids", () => {
    expect(tokenizer.size).toBe(384);
    expect(tokenizer.encode("<think>push Up</think><answer>Up || Left</answer>")).toEqual([
      259, 273, 266, 260, 261, 265, 263, 269, 262,
    ]);
    expect(tokenizer.digest).toBe("db3ff4bac7b6d5b717f19cb74efc3a29835745952991af187f5b9e23af44b09e");
  });

  test("reads a reply in one token per tag, word and action", () => {
    expect(pieces("<think>push Up</think><answer>Up || Left</answer>")).toEqual([
      "<think>",
      "push",
      " Up",
      "</think>",
      "<answer>",
      "Up",
      " || ",
      "Left",
      "</answer>",
    ]);
  });

  test("reads a grid in one token per cell", () => {
    const board = "##_√\nPOXS\nG.W@\nCBA9";
    expect(pieces(board)).toEqual([...board]);
  });

  test("takes the longest match", () => {
    expect(pieces("5 left 3 left")).toEqual(["5", " left ", "3", " left"]);
    expect(pieces("StartupFounder StartupAccelerator Startup")).toEqual([
      "StartupFounder",
      " StartupAccelerator",
      " ",
      "S",
      "t",
      "a",
      "r",
      "t",
      "u",
      "p",
    ]);
  });

  test("never encodes text to a special token", () => {
    const specials = ["<|pad|>", "<|im_start|>", "<|im_end|>"] as const;
    const ids = specials.map((special) => tokenizer.id(special));
    expect(ids).toEqual([0, 1, 2]);
    expect(tokenizer.encode("<|im_end|>")).toHaveLength(10);
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.constantFrom(...specials), mixed)), (parts) => {
        expect(tokenizer.encode(parts.join("")).filter((id) => ids.includes(id))).toEqual([]);
      }),
    );
  });

  test("shows special tokens by name", () => {
    expect(tokenizer.decode([1, ...tokenizer.encode("hi"), 2])).toBe("<|im_start|>hi<|im_end|>");
  });

  test("decodes any ids that a policy samples", () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: tokenizer.size - 1 })), (ids) => {
        expect(typeof tokenizer.decode(ids)).toBe("string");
      }),
    );
    // 0xc3 opens a character of two bytes, and "U" does not continue it.
    expect(tokenizer.decode([3 + 0xc3, ...tokenizer.encode("Up")])).toBe("\uFFFDUp");
  });

  test("refuses ids outside its vocabulary", () => {
    for (const id of [-1, 384, 1.5, Number.NaN]) {
      expect(() => tokenizer.decode([id])).toThrow(`cannot decode token ${id}: ids are 0 to 383`);
    }
  });

  test("has no literal that is empty or occurs twice", () => {
    const { literals } = tokenizer;
    expect(literals.filter((text, i) => text === "" || literals.indexOf(text) !== i)).toEqual([]);
  });
});
