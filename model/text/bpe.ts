/**
 * The tokenizer of a pretrained model: checks a tokenizer.json and runs it with @huggingface/tokenizers.
 *
 * - `encode` encodes the name of a special token as this token, as transformers does with a rendered template.
 * - `readBpe` accepts only BPE that can encode every text: byte-level (Qwen, Llama 3) or with byte fallback (Gemma, Mistral).
 * - Some tokenizers put a space before a document. `encode` does not, because its texts continue other texts.
 */
import { createHash } from "node:crypto";
import { Tokenizer } from "@huggingface/tokenizers";
import { z } from "zod";
import { parseFile, refusal } from "../checkpoint/config.ts";

/** The id of each token. This schema does not use zod's record, because it drops a key named __proto__. */
const Vocabulary = z.custom<Readonly<Record<string, number>>>(
  (value) =>
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    Object.values(value).every((id) => Number.isSafeInteger(id) && id >= 0),
  "expected an object whose values are the ids of tokens",
);

const AddedToken = z.looseObject({ id: z.int().nonnegative(), content: z.string().min(1), special: z.boolean() });

/** The parts of a tokenizer.json that Bunraku reads. */
export const TokenizerFile = z.looseObject({
  added_tokens: z.array(AddedToken).default([]),
  model: z.looseObject({
    type: z.string().optional(),
    /** The tokenizer encodes a character without a piece as pieces of its bytes, <0x00> to <0xFF>. */
    byte_fallback: z.boolean().nullish(),
    vocab: Vocabulary,
    merges: z.array(z.union([z.string(), z.tuple([z.string(), z.string()])])),
  }),
});
type TokenizerFile = z.infer<typeof TokenizerFile>;

export interface Bpe {
  /** sha256 (hex) of vocabulary, merges and added tokens. */
  readonly digest: string;
  /** Names of special tokens, by id. */
  readonly specials: ReadonlyMap<number, string>;
  /** undefined if the token does not exist. */
  id(token: string): number | undefined;
  encode(text: string): number[];
  /** Skips special tokens, and ids in the padding of the vocabulary. */
  decode(ids: readonly number[]): string;
}

const SUPPORTED = "only byte-level BPE, or BPE with byte fallback, is supported";
/** Encoding and decoding change this text if the tokenizer has no part for bytes, or has a part that adds spaces. */
const PROBE = "A b,  c\né 🙂";

/**
 * @param json        tokenizer.json, parsed.
 * @param settings    tokenizer_config.json, parsed.
 * @param vocabulary  number of tokens of the model's vocabulary.
 * @param file        name of the file in error texts.
 * @throws {CheckpointFormatError} if the tokenizer is not a BPE that can encode every text, or does not fit the model.
 */
export function readBpe(json: unknown, settings: object, vocabulary: number, file: string): Bpe {
  const refuse: (why: string) => never = refusal(file);
  const { model, added_tokens } = parseFile(TokenizerFile, json, file);
  // Gemma 3's tokenizer has a special token for images. Gemma 3's text models have no embedding of this token.
  const added = added_tokens.filter(({ id, special }) => id < vocabulary || !special);
  if (model.type !== undefined && model.type !== "BPE")
    return refuse(`its model is ${JSON.stringify(model.type)}; ${SUPPORTED}`);
  checkPieces({ model, added_tokens: added }, vocabulary, refuse);
  // The cleanup of spaces is for WordPiece. It would change a policy's text: "a , b" would become "a, b".
  const options = { ...settings, clean_up_tokenization_spaces: false };
  // The library needs the keys post_processor and model.type, which older files lack.
  const whole = { post_processor: null, ...withoutLeadingSpace(json as object, refuse), added_tokens: added };
  const tokenizer = tried(
    () => new Tokenizer({ ...whole, model: { ...(json as { model: object }).model, type: "BPE" } }, options),
    refuse,
  );
  const specials = new Map(added.filter(({ special }) => special).map(({ id, content }) => [id, content]));
  const bpe: Bpe = {
    digest: createHash("sha256")
      .update(
        JSON.stringify([model.vocab, model.merges, added.map(({ id, content, special }) => [id, content, special])]),
      )
      .digest("hex"),
    specials,
    id: (token) => tokenizer.token_to_id(token),
    encode: (text) => tokenizer.encode(text, { add_special_tokens: false }).ids,
    // The library refuses an empty list.
    decode: (ids) => (ids.length === 0 ? "" : tokenizer.decode([...ids], { skip_special_tokens: true })),
  };
  const told = tried(() => bpe.decode(bpe.encode(PROBE)), refuse);
  return told === PROBE ? bpe : refuse(`it turns ${JSON.stringify(PROBE)} into ${JSON.stringify(told)}; ${SUPPORTED}`);
}

/** The result of `make`. If the library throws, refuses the tokenizer with the library's message. */
function tried<T>(make: () => T, refuse: (why: string) => never): T {
  try {
    return make();
  } catch (error) {
    return refuse((error as Error).message);
  }
}

/**
 * @returns tokenizer.json without the parts that add a space before a text and remove it again. Refuses a tokenizer whose space
 * cannot be left out.
 */
function withoutLeadingSpace(json: object, refuse: (why: string) => never): object {
  const reviver = (_: string, part: { type?: string; prepend_scheme?: string; add_prefix_space?: boolean } | null) => {
    const always = part?.type === "Metaspace" && (part.prepend_scheme ?? "always") === "always";
    if (part?.type === "Prepend" || (always && part.add_prefix_space !== false))
      refuse(
        "the tokenizer puts a space before every text, even after a special token; take a newer model of the family",
      );
    if (part?.type === "Metaspace") return { ...part, prepend_scheme: "never", add_prefix_space: false };
    return part?.type === "Strip" ? { ...part, start: 0 } : part;
  };
  const revived = ["normalizer", "pre_tokenizer", "decoder"].map((key) => {
    const part = (json as Record<string, unknown>)[key] ?? null;
    const left = JSON.parse(JSON.stringify(part), reviver);
    return [key, key === "pre_tokenizer" ? tried(() => withPatterns(left), refuse) : left];
  });
  return { ...json, ...Object.fromEntries(revived) };
}

/** The parts of a pre-tokenizer that this file reads. */
interface PreTokenizer {
  readonly type?: string;
  readonly pretokenizers?: readonly PreTokenizer[];
  readonly behavior?: string;
  readonly individual_digits?: boolean;
  readonly use_regex?: boolean;
}

/** GPT-2's pattern of a word. Source: encoder.py. */
const WORDS = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

const PUNCTUATION = "[!-/:-@\\[-`{-~\\p{P}]";

/** The pre-tokenizer with explicit patterns: the library's own patterns are wrong for digits and spaces beyond ASCII, and for `...`. */
function withPatterns(part: PreTokenizer | null): object | null {
  const split = (Regex: string) => ({ type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false });
  if (part?.type === "Sequence") return { ...part, pretokenizers: part.pretokenizers?.map(withPatterns) };
  if (part?.type === "Punctuation" && part.behavior !== "Contiguous") return split(PUNCTUATION);
  if (part?.type === "Digits") return split(part.individual_digits ? "\\p{N}" : "\\p{N}+");
  if (part?.type !== "ByteLevel" || part.use_regex === false) return part;
  return { type: "Sequence", pretokenizers: [split(WORDS), { ...part, use_regex: false }] };
}

function checkPieces(
  { model, added_tokens: added }: TokenizerFile,
  vocabulary: number,
  refuse: (why: string) => never,
) {
  const { vocab, merges } = model;
  const ids = [...Object.entries(vocab), ...added.map(({ content, id }) => [content, id] as const)];
  const beyond = ids.find(([, id]) => id >= vocabulary);
  if (beyond !== undefined)
    refuse(`token ${JSON.stringify(beyond[0])} has id ${beyond[1]}, but config.json says vocab_size ${vocabulary}`);
  const octets = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  const pieces = model.byte_fallback ? octets : byteLevelAlphabet();
  const missing = pieces.find((piece) => !Object.hasOwn(vocab, piece));
  if (missing !== undefined)
    refuse(`it has no piece ${JSON.stringify(missing)} for one of the 256 bytes; ${SUPPORTED}`);
  for (const merge of merges) {
    const [left, right] = typeof merge === "string" ? (merge.split(" ") as [string, string]) : merge;
    const unknown = [left, right, left + right].find((piece) => !Object.hasOwn(vocab, piece));
    if (unknown !== undefined)
      refuse(
        `a merge of ${JSON.stringify(left)} and ${JSON.stringify(right)} has an unknown piece, ${JSON.stringify(unknown)}`,
      );
  }
}

/**
 * The characters that stand for the 256 bytes: the byte itself if it is visible, else a character from U+0100 on.
 * Source: GPT-2's encoder.py, bytes_to_unicode.
 */
export function byteLevelAlphabet(): string[] {
  const visible = (byte: number) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let hidden = 0;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(visible(byte) ? byte : 0x100 + hidden++));
}
