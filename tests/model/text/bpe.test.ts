import { expect, test } from "bun:test";
import { join } from "node:path";
import { readBpe } from "../../../model/text/bpe.ts";

const FOLDER = join(import.meta.dir, "../../golden/checkpoints/llama");
const json = await Bun.file(join(FOLDER, "tokenizer.json")).json();

test.each([{}, { clean_up_tokenization_spaces: true }])("with settings %p text keeps its spaces", (settings) => {
  const bpe = readBpe(json, settings, 512, "tokenizer.json");
  const text = "print('a , b ! c', x ['very'], I do n't)";
  expect(bpe.decode(bpe.encode(text))).toBe(text);
});

test("an older file, which lacks some parts, gives the same tokens", () => {
  const { vocab, merges } = json.model;
  const { post_processor, ...rest } = json;
  const text = "You're to pull 12 arms.\n";
  const older = readBpe({ ...rest, model: { vocab, merges } }, {}, 512, "tokenizer.json");
  expect(older.encode(text)).toEqual(readBpe(json, {}, 512, "tokenizer.json").encode(text));
  const { added_tokens, ...bare } = json;
  expect(readBpe(bare, {}, 512, "tokenizer.json").specials.size).toBe(0);
});

test("a token named __proto__ is a token like any other", () => {
  const { vocab, merges } = json.model;
  const added = JSON.parse(
    '{"__": 500, "pr": 501, "ot": 502, "__pr": 503, "__prot": 504, "o__": 505, "__proto__": 506}',
  );
  const pairs = ["_ _", "p r", "o t", "__ pr", "__pr ot", "o __", "__prot o__"].map((pair) => pair.split(" "));
  const model = { ...json.model, vocab: { ...vocab, ...added }, merges: [...pairs, ...merges] };
  // Without a pattern that splits words from signs, as in Gemma's tokenizer.
  const pre_tokenizer = { type: "ByteLevel", add_prefix_space: false, use_regex: false };
  const bpe = readBpe({ ...json, model, pre_tokenizer }, {}, 512, "tokenizer.json");
  expect(bpe.encode("a.__proto__")).toEqual([64, 13, 506]);
  expect(bpe.decode([506])).toBe("__proto__");
});

test("digits and spaces beyond ASCII are split as by Python's tokenizers", () => {
  const words = { type: "ByteLevel", add_prefix_space: false };
  const digits = { type: "Digits", individual_digits: true };
  const encoded = (pre_tokenizer: object, text: string) =>
    readBpe({ ...json, pre_tokenizer }, {}, 512, "tokenizer.json").encode(text);
  expect(encoded({ type: "Sequence", pretokenizers: [digits, words] }, "a  ½12")).toEqual([64, 375, 126, 121, 16, 17]);
  expect(encoded(words, "\ufeff's")).toEqual([171, 119, 123, 6, 82]);
  expect(() => encoded({ type: "Sequence", pretokenizers: 5 }, "")).toThrow("cannot use tokenizer.json: ");
});

test.each([
  ["Isolated", [64, 2, 2, 2, 2, 65]],
  ["Contiguous", [64, 264, 65]],
])("punctuation that is %p is split as by Python's tokenizers", (behavior, ids) => {
  const bytes = { type: "ByteLevel", add_prefix_space: false, use_regex: false };
  const pre_tokenizer = { type: "Sequence", pretokenizers: [{ type: "Punctuation", behavior }, bytes] };
  expect(readBpe({ ...json, pre_tokenizer }, {}, 512, "tokenizer.json").encode("a####b")).toEqual(ids);
});

test("a special token that the model lacks, as Gemma 3's for images, is left out", () => {
  const token = { ...json.added_tokens[0], id: 512, content: "<image_soft_token>" };
  const read = (special: boolean) =>
    readBpe({ ...json, added_tokens: [...json.added_tokens, { ...token, special }] }, {}, 512, "tokenizer.json");
  const ids = read(true).encode("<image_soft_token>");
  expect(Math.max(...ids)).toBeLessThan(512);
  expect(read(true).specials.has(512)).toBeFalse();
  expect(() => read(false)).toThrow('token "<image_soft_token>" has id 512, but config.json says vocab_size 512');
});

test.each<[string, object, string]>([
  ["no part for bytes", { pre_tokenizer: null }, 'it turns "A b,  c\\né 🙂" into "Ab,c'],
  ["no decoder", { decoder: null }, 'into "A Ġb , Ġ Ġc Ċ Ã © Ġ ð Ł Ļ Ĥ"; only byte-level BPE'],
  ["a space before every text", { pre_tokenizer: { type: "ByteLevel", add_prefix_space: true } }, 'into " A b'],
  ["an unknown part", { normalizer: { type: "Nmt" } }, "Unknown Normalizer type: Nmt"],
  ["a part that breaks", { post_processor: { type: "TemplateProcessing" } }, "undefined is not an object"],
])("a tokenizer with %s is refused in one line", (_, parts, why) => {
  const read = () => readBpe({ ...json, ...parts }, {}, 512, "DIR/tokenizer.json");
  expect(read).toThrow(/^cannot use DIR\/tokenizer.json: .+$/);
  expect(read).toThrow(why);
});
