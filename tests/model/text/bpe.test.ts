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
