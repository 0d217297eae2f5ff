/**
 * The built-in policy's tokenizer and layout as the files of a Hugging Face folder, so that other tools can open an export. The tokenizer's
 * literals become added tokens. The library transformers matches added tokens in the order of our tokenizer: leftmost, longest first.
 * llama.cpp matches them in another way (docs/models.md). The 256 bytes are a BPE without merges.
 *
 * One difference: these tools encode the name of a special token inside a message as that token. Our tokenizer encodes the name as text.
 */

import { byteLevelAlphabet } from "../text/bpe.ts";
import { SPECIALS, type Tokenizer } from "../text/tokenizer.ts";

/** File contents by name. */
export function builtinFiles(tokenizer: Tokenizer): ReadonlyMap<string, string> {
  const bytes = byteLevelAlphabet();
  const added = (content: string, id: number, special: boolean) => ({
    id,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special,
  });
  // The vocabulary includes the added tokens: a tool would give a new id to an added token that the vocabulary lacks.
  const vocab = Object.fromEntries([...SPECIALS, ...bytes, ...tokenizer.literals].map((piece, id) => [piece, id]));
  const end = tokenizer.id("<|im_end|>");
  const files = {
    "tokenizer.json": {
      version: "1.0",
      truncation: null,
      padding: null,
      added_tokens: [
        ...SPECIALS.map((content, id) => added(content, id, true)),
        ...tokenizer.literals.map((content, i) => added(content, SPECIALS.length + bytes.length + i, false)),
      ],
      normalizer: null,
      pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false },
      post_processor: null,
      decoder: { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false },
      model: {
        type: "BPE",
        dropout: null,
        unk_token: null,
        continuing_subword_prefix: null,
        end_of_word_suffix: null,
        fuse_unk: false,
        byte_fallback: false,
        ignore_merges: false,
        vocab,
        merges: [],
      },
    },
    "tokenizer_config.json": {
      tokenizer_class: "PreTrainedTokenizerFast",
      clean_up_tokenization_spaces: false,
      eos_token: "<|im_end|>",
      pad_token: "<|pad|>",
    },
    "generation_config.json": { eos_token_id: end, pad_token_id: tokenizer.id("<|pad|>") },
  };
  const json = Object.entries(files).map(([name, file]) => [name, `${JSON.stringify(file, null, 1)}\n`] as const);
  return new Map([...json, ["chat_template.jinja", TEMPLATE]]);
}

/** The layout of chat.ts. The caller adds the prefix of a reply, <think> or <answer>. */
const TEMPLATE = [
  "{%- for message in messages -%}",
  "{%- if message['role'] == 'assistant' -%}{{ message['content'] + '<|im_end|>' }}",
  "{%- elif message['role'] == 'system' -%}{{ '<|im_start|>system\\n' + message['content'] + '<|im_end|>' }}",
  "{%- else -%}{{ '<|im_start|>' + message['content'] + '<|im_end|>' }}{%- endif -%}",
  "{%- endfor -%}",
].join("");
