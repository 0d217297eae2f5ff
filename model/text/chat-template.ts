/**
 * The dialogue of a pretrained model: its own chat template, run by @huggingface/jinja, and its tokenizer.
 *
 *   template(system, user) <think> reply <|im_end|> \n<|im_start|>user … <|im_start|>assistant\n <think> reply <|im_end|> …
 *   `--- first prompt ----------´         `stop´ `----------------- next prompt -----------------´
 *
 * - For each later prompt the dialogue renders the template once, with a placeholder in place of the previous reply. The text after
 *   the placeholder is the prompt. So a template cannot rewrite older turns (Qwen3's template would drop their thoughts).
 * - The name of a special token inside a message becomes tokens of plain characters.
 */
import { createHash } from "node:crypto";
import { Environment, Interpreter, Template } from "@huggingface/jinja";
import { z } from "zod";
import { CheckpointFormatError, parseFile } from "../checkpoint/config.ts";
import { type Bpe, readBpe } from "./bpe.ts";
import {
  checkPrompt,
  type Dialogue,
  type Message,
  type PromptOptions,
  type RoleMarks,
  withoutPrefix,
} from "./dialogue.ts";

/** The small files of a Hugging Face folder, parsed. */
export interface TokenizerFiles {
  /** For error texts. */
  readonly folder: string;
  readonly tokenizer: unknown;
  readonly tokenizerConfig: unknown;
  /** null if the file does not exist. */
  readonly generationConfig: unknown;
  /** chat_template.jinja; null if the template is in tokenizer_config.json. */
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
 * @param vocabulary  number of tokens of the model's vocabulary.
 * @throws {CheckpointFormatError} if tokenizer or template are unusable.
 */
export function pretrainedDialogue(files: TokenizerFiles, vocabulary: number): Dialogue {
  const settings = parseFile(TokenizerConfig, files.tokenizerConfig, `${files.folder}/tokenizer_config.json`);
  const generation = parseFile(
    GenerationConfig,
    files.generationConfig ?? {},
    `${files.folder}/generation_config.json`,
  );
  const bpe = readBpe(files.tokenizer, settings, vocabulary, `${files.folder}/tokenizer.json`);
  const source = chatTemplate(files);
  return new PretrainedDialogue(bpe, source, settings, [generation.eos_token_id ?? []].flat(), files.folder);
}

/** The source of the chat template. @throws {CheckpointFormatError} if there is none */
export function chatTemplate({ folder, tokenizerConfig, chatTemplate }: TokenizerFiles): string {
  if (chatTemplate !== null) return chatTemplate;
  const { chat_template: inline } = parseFile(TokenizerConfig, tokenizerConfig, `${folder}/tokenizer_config.json`);
  if (typeof inline === "string") return inline;
  const named = inline?.find(({ name }) => name === "default");
  if (named !== undefined) return named.template;
  throw new CheckpointFormatError(
    `${folder} has no chat template, neither in chat_template.jinja nor in tokenizer_config.json; take an instruct model`,
  );
}

/** Maximum number of evaluations of template parts in one rendering. A loop evaluates its parts in each pass. A few thousand are usual. */
const STEPS_MAX = 200_000;
const RANGE_MAX = 100_000;

/**
 * No template gets today's date, because a run must be reproducible. If a template checks whether `strftime_now` is defined,
 * `strftime_now` stays undefined, and the template prints its own date. For other templates (SmolLM3's), `strftime_now` returns this
 * date, which is the date in Llama 3.2's template.
 */
const FIXED_DATE = "26 Jul 2024";
const globals = () => ({
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  raise_exception: (why: string) => {
    throw new RangeError(`it rejects these messages: ${why}`);
  },
  range: boundedRange,
});

function boundedRange(first: number, end?: number, step = 1): number[] {
  const [from, to] = end === undefined ? [0, first] : [first, end];
  const length = Math.max(0, Math.ceil((to - from) / step));
  if (!(length <= RANGE_MAX)) throw new RangeError(`it counts through more than ${RANGE_MAX} numbers`);
  return Array.from({ length }, (_, i) => from + i * step);
}

class BoundedInterpreter extends Interpreter {
  #steps = 0;

  override evaluate(...part: Parameters<Interpreter["evaluate"]>): ReturnType<Interpreter["evaluate"]> {
    if (++this.#steps > STEPS_MAX) throw new RangeError(`it takes more than ${STEPS_MAX} steps`);
    return super.evaluate(...part);
  }
}

/** Private-use characters. A character that no message contains is the placeholder of a reply, or splits a special token's name. */
const MARKS = { first: 0xe000, last: 0xf8ff };

class PretrainedDialogue implements Dialogue {
  readonly digest: string;
  readonly stops: readonly number[];
  readonly thinkEnd: number | null;
  readonly roleMarks: RoleMarks;
  readonly #bpe: Bpe;
  readonly #template: Template;
  readonly #names: Readonly<Record<string, unknown>>;
  /** The token that the template puts after every reply. */
  readonly #replyEnd: number;

  constructor(bpe: Bpe, source: string, settings: TokenizerConfig, eos: readonly number[], folder: string) {
    this.#bpe = bpe;
    try {
      this.#template = new Template(source);
    } catch (error) {
      throw new CheckpointFormatError(`cannot read the chat template of ${folder}: ${(error as Error).message}`);
    }
    const { bos_token, eos_token, pad_token, unk_token } = settings;
    // A missing token is undefined in a template, as in transformers, and prints nothing.
    const tokens = Object.entries({ bos_token, eos_token, pad_token, unk_token });
    this.#names = {
      ...Object.fromEntries(tokens.filter((pair): pair is [string, string] => typeof pair[1] === "string")),
      ...(!source.includes("strftime_now is defined") && { strftime_now: () => FIXED_DATE }),
    };
    const [end, ...behind] = this.#trialPrompt(folder);
    if (end === undefined || !bpe.specials.has(end)) {
      throw new CheckpointFormatError(
        `the chat template of ${folder} does not end a reply with a special token; take another instruct model`,
      );
    }
    this.#replyEnd = end;
    const messageStart = behind.find((token) => bpe.specials.has(token) && token !== end) ?? -1;
    // The trial prompt has one user message and the header of a reply. Two `messageStart` mean that the header begins with one.
    const beforeReplies = behind.filter((token) => token === messageStart).length === 2;
    this.roleMarks = { messageStart, system: bpe.encode("system"), beforeReplies };
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

  /** The tokens of a prompt after a reply. Checks that the template can render the prompt. */
  #trialPrompt(folder: string): number[] {
    try {
      return this.#next([{ role: "user", content: "x" }]);
    } catch (error) {
      throw new CheckpointFormatError(`cannot use the chat template of ${folder}: ${(error as Error).message}`);
    }
  }

  promptTokens(messages: readonly Message[], { first, cut = false, prefix }: PromptOptions): number[] {
    checkPrompt(messages, { first, cut, prefix });
    if (first) return this.#encode(messages, (marked) => this.#render(marked) + prefix);
    const next = this.#next(messages, prefix);
    return cut ? next : next.slice(1);
  }

  replyTokens(reply: string, prefix: PromptOptions["prefix"]): number[] {
    return [...this.#bpe.encode(withoutPrefix(reply, prefix)), this.#replyEnd];
  }

  replyText(written: readonly number[] | Int32Array, prefix: PromptOptions["prefix"]): string {
    const ended = this.stops.includes(written[written.length - 1]!);
    return prefix + this.#bpe.decode([...(ended ? written.slice(0, -1) : written)]);
  }

  /** The tokens after a reply: the end of the reply's turn, these messages, and the prefix of the next reply. */
  #next(messages: readonly Message[], prefix = ""): number[] {
    const reply = unused(messages, MARKS.last, -1);
    const before: Message[] = [
      { role: "user", content: "x" },
      { role: "assistant", content: reply },
    ];
    return this.#encode(messages, (marked) => {
      const text = this.#render([...before, ...marked]);
      const at = text.indexOf(reply);
      if (at < 0) throw new RangeError("it does not print the assistant's message");
      return text.slice(at + reply.length) + prefix;
    });
  }

  #render(messages: readonly Message[]): string {
    const known = new Environment();
    // transformers defines tools and documents as none.
    const given = { messages, tools: null, documents: null, add_generation_prompt: true };
    const values = { ...globals(), ...this.#names, ...given };
    for (const [name, value] of Object.entries(values)) known.set(name, value);
    return String(new BoundedInterpreter(known).run(this.#template.parsed).value);
  }

  /** Encodes the rendered messages. Splits the name of a special token in a message in two, and encodes both parts separately. */
  #encode(messages: readonly Message[], render: (marked: Message[]) => string): number[] {
    const names = [...this.#bpe.specials.values()];
    const has = messages.some(({ content }) => names.some((name) => content.includes(name)));
    if (!has) return this.#bpe.encode(render([...messages]));
    const mark = unused(messages, MARKS.first, 1);
    const split = (content: string) =>
      names.reduce((text, name) => text.replaceAll(name, name.slice(0, 1) + mark + name.slice(1)), content);
    const text = render(messages.map(({ role, content }) => ({ role, content: split(content) })));
    return text.split(mark).flatMap((part) => this.#bpe.encode(part));
  }
}

/** A private-use character that no message contains. */
function unused(messages: readonly Message[], from: number, step: 1 | -1): string {
  for (let code = from; code >= MARKS.first && code <= MARKS.last; code += step) {
    const mark = String.fromCharCode(code);
    if (!messages.some(({ content }) => content.includes(mark))) return mark;
  }
  throw new RangeError(
    "the messages contain every private-use character of Unicode from U+E000 to U+F8FF; one must be free to mark their parts",
  );
}
