/**
 * Builds the requests to the APIs of hosted models, and reads the answers. client.ts sends the requests.
 *
 * Source: https://platform.openai.com/docs/api-reference/chat, https://docs.anthropic.com/en/api/messages.
 */
import { z } from "zod";
import type { Message } from "../../../envs/text/prompt.ts";
import { schemaFaults } from "../../errors.ts";

export interface Asked {
  readonly model: string;
  readonly messages: readonly Message[];
  /** null means the server's default. Anthropic's API has no default, so a request to this API needs a number. */
  readonly replyTokensMax: number | null;
  /** null means the server's default. */
  readonly temperature: number | null;
}

export interface Completion {
  readonly text: string;
  /** True if the reply ended because it reached a limit of tokens. */
  readonly cut: boolean;
  readonly inputTokens: number;
  readonly outputTokens: number;
}

export interface Provider {
  readonly name: "openai" | "anthropic";
  readonly baseUrl: string;
  /** Name of the environment variable that may hold another base address; null if there is no such variable. */
  readonly baseUrlName: string | null;
  /** Name of the environment variable that holds the key. */
  readonly keyName: string;
  /** Path of the request below the base address. */
  readonly path: string;
  headers(key: string | null): Record<string, string>;
  /** @param own  true for the provider's own server, false for another server with the same API */
  body(asked: Asked, own: boolean): unknown;
  /** @throws {Error} if the answer does not have the API's form. */
  read(answer: unknown): Completion;
}

const Count = z.number().int().nonnegative();

const OpenAiAnswer = z.object({
  choices: z
    .array(z.object({ message: z.object({ content: z.string().nullish() }), finish_reason: z.string().nullish() }))
    .min(1),
  usage: z.object({ prompt_tokens: Count, completion_tokens: Count }).nullish(),
});

/** OpenAI's API, which vLLM, llama.cpp, Ollama, DeepSeek, Together and others also serve. */
export const openai: Provider = {
  name: "openai",
  baseUrl: "https://api.openai.com/v1",
  baseUrlName: "OPENAI_BASE_URL",
  keyName: "OPENAI_API_KEY",
  path: "/chat/completions",
  headers: (key) => (key === null ? {} : { authorization: `Bearer ${key}` }),
  body: ({ model, messages, replyTokensMax, temperature }, own) => ({
    model,
    messages: messages.map(said),
    // OpenAI's newer models refuse the old name `max_tokens`; some other servers know only the old name.
    ...(replyTokensMax === null ? {} : { [own ? "max_completion_tokens" : "max_tokens"]: replyTokensMax }),
    ...(temperature === null ? {} : { temperature }),
  }),
  read(answer) {
    const { choices, usage } = parsed(OpenAiAnswer, answer);
    const { message, finish_reason } = choices[0]!;
    return {
      text: message.content ?? "",
      cut: finish_reason === "length",
      inputTokens: usage?.prompt_tokens ?? 0,
      outputTokens: usage?.completion_tokens ?? 0,
    };
  },
};

const AnthropicAnswer = z.object({
  content: z.array(z.object({ type: z.string(), text: z.string().optional() })),
  stop_reason: z.string().nullish(),
  usage: z.object({ input_tokens: Count, output_tokens: Count }),
});

export const anthropic: Provider = {
  name: "anthropic",
  baseUrl: "https://api.anthropic.com/v1",
  baseUrlName: null,
  keyName: "ANTHROPIC_API_KEY",
  path: "/messages",
  headers: (key) => ({ "anthropic-version": "2023-06-01", ...(key === null ? {} : { "x-api-key": key }) }),
  body({ model, messages, replyTokensMax, temperature }) {
    const system = messages.filter(({ role }) => role === "system").map(({ content }) => content);
    return {
      model,
      max_tokens: replyTokensMax,
      messages: messages.filter(({ role }) => role !== "system").map(said),
      ...(system.length === 0 ? {} : { system: system.join("\n") }),
      ...(temperature === null ? {} : { temperature }),
    };
  },
  read(answer) {
    const { content, stop_reason, usage } = parsed(AnthropicAnswer, answer);
    return {
      text: content.map(({ type, text }) => (type === "text" ? (text ?? "") : "")).join(""),
      cut: stop_reason === "max_tokens",
      inputTokens: usage.input_tokens,
      outputTokens: usage.output_tokens,
    };
  },
};

export const PROVIDERS: Readonly<Record<string, Provider>> = { openai, anthropic };

/** Replaces the text of an empty message, because the APIs refuse empty messages. A model may have written an empty reply. */
const said = ({ role, content }: Message) => ({ role, content: content.trim() === "" ? "(no answer)" : content });

function parsed<T>(schema: z.ZodType<T>, answer: unknown): T {
  const result = schema.safeParse(answer);
  if (result.success) return result.data;
  throw new Error(`the answer does not have the API's form: ${schemaFaults(result.error, "the answer")}`);
}
