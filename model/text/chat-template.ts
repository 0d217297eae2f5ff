/**
 * How a pretrained model speaks: its own chat template, by @huggingface/jinja, and its tokenizer.
 *
 *   template(system, user) <think> reply <|im_end|> \n<|im_start|>user … <|im_start|>assistant\n <think> reply <|im_end|> …
 *   `--- first prompt ----------´         `stop´ `----------------- next prompt -----------------´
 *
 * - The template is rendered once for each prompt, with a stand-in for the reply before it; what comes behind the stand-in is the
 *   prompt. So templates that rewrite older turns (Qwen3 forgets their thoughts) cannot: what was said stays said.
 * - A special token's name inside a message is encoded as the characters that it is made of.
 */
import { createHash } from "node:crypto";
import { Environment, Interpreter, Template } from "@huggingface/jinja";
import { z } from "zod";
import { CheckpointFormatError } from "../checkpoint/config.ts";
import { type Bpe, readBpe } from "./bpe.ts";
import type { Dialogue, Message, PromptOptions } from "./dialogue.ts";

/** The small files of a Hugging Face folder, parsed. */
export interface TokenizerFiles {
  /** Named in every message. */
  readonly folder: string;
  readonly tokenizer: unknown;
  readonly tokenizerConfig: unknown;
  /** null if there is none. */
  readonly generationConfig: unknown;
  /** chat_template.jinja; null if there is none, and the template is in tokenizer_config.json. */
  readonly chatTemplate: string | null;
}

const TokenName = z.union([z.string(), z.looseObject({ content: z.string() }).transform(({ content }) => content)]);
const TokenizerConfig = z.looseObject({
  chat_template: z.union([z.string(), z.array(z.strictObject({ name: z.string(), template: z.string() }))]).nullish(),
  bos_token: TokenName.nullish(),
  eos_token: TokenName.nullish(),
  pad_token: TokenName.nullish(),
  unk_token: TokenName.nullish(),
});
type TokenizerConfig = z.infer<typeof TokenizerConfig>;

const GenerationConfig = z.looseObject({
  eos_token_id: z.union([z.int().nonnegative(), z.array(z.int().nonnegative())]).nullish(),
});

/**
 * @param vocabulary  ids that the model has.
 * @throws {CheckpointFormatError} in one line, if they are no tokenizer and template that a policy can speak with.
 */
export function pretrainedDialogue(files: TokenizerFiles, vocabulary: number): Dialogue {
  const settings = parse(TokenizerConfig, files.tokenizerConfig, `${files.folder}/tokenizer_config.json`);
  const generation = parse(GenerationConfig, files.generationConfig ?? {}, `${files.folder}/generation_config.json`);
  const bpe = readBpe(files.tokenizer, settings, vocabulary, `${files.folder}/tokenizer.json`);
  const source = chatTemplate(files);
  return new PretrainedDialogue(bpe, source, settings, [generation.eos_token_id ?? []].flat(), files.folder);
}

function parse<T extends z.ZodType>(schema: T, json: unknown, file: string): z.infer<T> {
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  throw new CheckpointFormatError(`cannot use ${file}: ${z.prettifyError(parsed.error).replaceAll(/\s*\n\s*/g, " ")}`);
}

/** The source of a folder's template, wherever it is. @throws {CheckpointFormatError} if there is none */
export function chatTemplate({ folder, tokenizerConfig, chatTemplate }: TokenizerFiles): string {
  if (chatTemplate !== null) return chatTemplate;
  const { chat_template: inline } = parse(TokenizerConfig, tokenizerConfig, `${folder}/tokenizer_config.json`);
  if (typeof inline === "string") return inline;
  const named = inline?.find(({ name }) => name === "default");
  if (named !== undefined) return named.template;
  throw new CheckpointFormatError(
    `${folder} has no chat template, neither chat_template.jinja nor in tokenizer_config.json; take an instruct model`,
  );
}

/**
 * What every template may use. Not `strftime_now`, which the library's own `render` adds: templates that print today's date have
 * one of their own for who cannot tell it, and a run must be the same tomorrow.
 */
const GLOBALS = {
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  raise_exception: (why: string) => {
    throw new RangeError(`it refuses these messages: ${why}`);
  },
  range: (first: number, end?: number, step = 1) => {
    const [from, to] = end === undefined ? [0, first] : [first, end];
    return Array.from({ length: Math.max(0, Math.ceil((to - from) / step)) }, (_, i) => from + i * step);
  },
};

/** Private-use characters; one that no message has stands for a reply or cuts a special token's name. */
const MARKS = { first: 0xe000, last: 0xf8ff };

class PretrainedDialogue implements Dialogue {
  readonly digest: string;
  readonly stops: readonly number[];
  readonly thinkEnd: number | null;
  readonly #bpe: Bpe;
  readonly #template: Template;
  readonly #names: Readonly<Record<string, string>>;
  /** What the template puts behind every reply. */
  readonly #turnEnd: number;

  constructor(bpe: Bpe, source: string, settings: TokenizerConfig, eos: readonly number[], folder: string) {
    this.#bpe = bpe;
    try {
      this.#template = new Template(source);
    } catch (error) {
      throw new CheckpointFormatError(`cannot read the chat template of ${folder}: ${(error as Error).message}`);
    }
    const { bos_token, eos_token, pad_token, unk_token } = settings;
    // A token that there is not is undefined to a template, as in transformers: it prints nothing.
    const tokens = Object.entries({ bos_token, eos_token, pad_token, unk_token });
    this.#names = Object.fromEntries(tokens.filter((pair): pair is [string, string] => typeof pair[1] === "string"));
    const [end] = this.#tried(folder);
    if (end === undefined || !bpe.specials.has(end)) {
      throw new CheckpointFormatError(`the chat template of ${folder} ends a reply with no special token`);
    }
    this.#turnEnd = end;
    const named = typeof eos_token === "string" ? bpe.id(eos_token) : undefined;
    if (typeof eos_token === "string" && named === undefined)
      throw new CheckpointFormatError(`${folder}: eos_token ${JSON.stringify(eos_token)} is not in tokenizer.json`);
    this.stops = [...new Set([end, ...eos, ...(named === undefined ? [] : [named])])];
    const close = bpe.encode("</think>");
    this.thinkEnd = close.length === 1 ? close[0]! : null;
    this.digest = createHash("sha256")
      .update(JSON.stringify([bpe.digest, source, this.#names, this.stops]))
      .digest("hex");
  }

  /** A prompt behind a reply, to see that the template can make one. */
  #tried(folder: string): number[] {
    try {
      return this.#next([{ role: "user", content: "x" }]);
    } catch (error) {
      throw new CheckpointFormatError(`cannot use the chat template of ${folder}: ${(error as Error).message}`);
    }
  }

  promptTokens(messages: readonly Message[], { first, cut = false, prefix }: PromptOptions): number[] {
    if (messages.length === 0) throw new RangeError("a prompt needs at least one message, found none");
    if (first && cut) throw new RangeError("the first prompt follows no reply, so none was cut");
    if (messages.some(({ role }) => role === "assistant"))
      throw new RangeError(
        "a prompt holds what the policy did not write, found an assistant message; append its tokens",
      );
    if (!first && messages.some(({ role }) => role === "system"))
      throw new RangeError("a system message must be in the first prompt, found one in a later prompt");
    if (first) return this.#encode(messages, (marked) => this.#render(marked) + prefix);
    const next = this.#next(messages, prefix);
    return cut ? next : next.slice(1);
  }

  replyTokens(reply: string, prefix: PromptOptions["prefix"]): number[] {
    if (!reply.startsWith(prefix))
      throw new RangeError(`a reply must begin with ${prefix}, found ${JSON.stringify(reply.slice(0, 40))}`);
    return [...this.#bpe.encode(reply.slice(prefix.length)), this.#turnEnd];
  }

  replyText(written: readonly number[] | Int32Array, prefix: PromptOptions["prefix"]): string {
    const ended = this.stops.includes(written[written.length - 1]!);
    return prefix + this.#bpe.decode([...(ended ? written.slice(0, -1) : written)]);
  }

  /** What follows a reply: the end of its turn, these messages, and the beginning of the next reply. */
  #next(messages: readonly Message[], prefix = ""): number[] {
    const reply = unused(messages, MARKS.last, -1);
    const before: Message[] = [
      { role: "user", content: "x" },
      { role: "assistant", content: reply },
    ];
    return this.#encode(messages, (marked) => {
      const text = this.#render([...before, ...marked]);
      const at = text.indexOf(reply);
      if (at < 0) throw new RangeError("it leaves out what an assistant said");
      return text.slice(at + reply.length) + prefix;
    });
  }

  #render(messages: readonly Message[]): string {
    const known = new Environment();
    const values = { ...GLOBALS, ...this.#names, messages, add_generation_prompt: true };
    for (const [name, value] of Object.entries(values)) known.set(name, value);
    return String(new Interpreter(known).run(this.#template.parsed).value);
  }

  /** Ids of what `render` makes of the messages. Names of special tokens in them are cut in two, and each part is encoded apart. */
  #encode(messages: readonly Message[], render: (marked: Message[]) => string): number[] {
    const names = [...this.#bpe.specials.values()];
    const has = messages.some(({ content }) => names.some((name) => content.includes(name)));
    if (!has) return this.#bpe.encode(render([...messages]));
    const mark = unused(messages, MARKS.first, 1);
    const cut = (content: string) =>
      names.reduce((text, name) => text.replaceAll(name, name.slice(0, 1) + mark + name.slice(1)), content);
    const text = render(messages.map(({ role, content }) => ({ role, content: cut(content) })));
    return text.split(mark).flatMap((part) => this.#bpe.encode(part));
  }
}

/** A private-use character that no message has. */
function unused(messages: readonly Message[], from: number, step: 1 | -1): string {
  for (let code = from; code >= MARKS.first && code <= MARKS.last; code += step) {
    const mark = String.fromCharCode(code);
    if (!messages.some(({ content }) => content.includes(mark))) return mark;
  }
  throw new RangeError(
    "a message holds every private-use character of Unicode, so none is left to mark its parts with",
  );
}
