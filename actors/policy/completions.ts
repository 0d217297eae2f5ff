/**
 * Serves a policy by OpenAI's chat completions API: POST /v1/chat/completions, GET /v1/models. Knows no run folder and opens no port.
 *
 * - A reply is the text that an env would read: `<think>…</think><answer>…</answer>`. The client keeps the dialogue and sends earlier
 *   replies back unchanged.
 * - Unknown fields are rejected, and so are known ones that are not supported.
 * - At most `slots` replies are written at once. A further request gets 429, which clients retry; there is no queue.
 * - When a client disconnects, its reply is still written to the end, which `tokensMax` bounds.
 * - Without a token, only requests to a loopback name are answered. Only JSON is accepted, so that a web page's request needs the
 *   browser's preflight.
 *
 * Source: platform.openai.com/docs/api-reference/chat.
 */
import { type Context, Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import { streamSSE } from "hono/streaming";
import { z } from "zod";
import type { Reply } from "../../model/decode/generate.ts";
import { hash64 } from "../../model/rng.ts";
import type { Dialogue, Message, ReplyPrefix } from "../../model/text/dialogue.ts";
import { schemaFaults } from "../errors.ts";
import type { Remote } from "../process/worker-rpc.ts";
import type { PolicyMethods } from "../sampler/policy.ts";
import { isLoopback } from "../transport/address.ts";
import { bearer, sameSecret } from "../transport/token.ts";

export interface CompletionsOptions {
  /** With weights loaded. */
  readonly policy: Pick<Remote<PolicyMethods>, "open" | "reply" | "written" | "close">;
  readonly dialogue: Dialogue;
  readonly prefix: ReplyPrefix;
  /** The policy's name in the API. */
  readonly model: string;
  /** Replies written at once; the policy's number of slots. */
  readonly slots: number;
  /** Tokens of a dialogue, reply included. */
  readonly contextTokensMax: number;
  /** For a request without max_tokens. */
  readonly replyTokensMax: number;
  /** For a request without temperature. */
  readonly temperature: number;
  readonly token: string | null;
  /** Milliseconds since the epoch. */
  readonly wallClock: () => number;
  /** For a request without seed. */
  readonly freshSeed: () => number;
}

const BODY_BYTES_MAX = 1 << 20;
const CHOICES_MAX = 8;
const TEMPERATURE_MAX = 2;

const Text = z.union([
  z.string(),
  z.array(z.strictObject({ type: z.literal("text"), text: z.string() })).transform(texts),
]);
const Body = z.strictObject({
  model: z.string(),
  messages: z
    .array(z.strictObject({ role: z.enum(["system", "developer", "user", "assistant"]), content: Text }))
    .min(1),
  temperature: z.number().min(0).max(TEMPERATURE_MAX).nullish(),
  top_p: z.number().positive().max(1).nullish(),
  /** From other servers of this API; not OpenAI's. */
  top_k: z.int().nonnegative().nullish(),
  max_tokens: z.int().positive().nullish(),
  max_completion_tokens: z.int().positive().nullish(),
  n: z.int().positive().max(CHOICES_MAX).nullish(),
  seed: z.int().nonnegative().max(0xffffffff).nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.strictObject({ include_usage: z.boolean().optional() }).nullish(),
  user: z.string().nullish(),
  // Only the neutral value is supported.
  frequency_penalty: z.literal(0).nullish(),
  presence_penalty: z.literal(0).nullish(),
  logprobs: z.literal(false).nullish(),
});
type Body = z.infer<typeof Body>;

function texts(parts: readonly { readonly text: string }[]): string {
  return parts.map(({ text }) => text).join("");
}

/** A fault of the request; its message goes to the client. */
class RequestError extends Error {
  override readonly name = "RequestError";
  readonly status: 400 | 401 | 403 | 404 | 413 | 415 | 429;
  readonly code: string;

  constructor(status: RequestError["status"], code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function completionsApp(options: CompletionsOptions): Hono {
  const app = new Hono();
  const slots = new CompletionSlots(options);
  app.onError((error, c) => refusal(c, error));
  app.notFound((c) => refusal(c, new RequestError(404, "not_found", `there is no ${c.req.method} ${c.req.path}`)));
  app.use(async (c, next) => {
    checkAccess(c, options.token);
    await next();
  });
  const created = Math.floor(options.wallClock() / 1000);
  const model = { id: options.model, object: "model", created, owned_by: "bunraku" };
  app.get("/v1/models", (c) => c.json({ object: "list", data: [model] }));
  app.get("/v1/models/:id", (c) => {
    checkModel(c.req.param("id"), options.model);
    return c.json(model);
  });
  const limit = bodyLimit({
    maxSize: BODY_BYTES_MAX,
    onError: () => {
      throw new RequestError(413, "too_large", `a request has at most ${BODY_BYTES_MAX} bytes`);
    },
  });
  app.post("/v1/chat/completions", limit, async (c) => {
    const body = await bodyOf(c);
    checkModel(body.model, options.model);
    const completion = slots.begin(body);
    return body.stream ? streamed(c, completion, body) : c.json(await whole(completion));
  });
  return app;
}

function refusal(c: Context, error: Error): Response {
  const known = error instanceof RequestError;
  if (known && error.status === 429) c.header("Retry-After", "1");
  const type = known ? "invalid_request_error" : "server_error";
  const code = known ? error.code : "failed";
  return c.json({ error: { message: error.message, type, code, param: null } }, known ? error.status : 500);
}

function checkAccess(c: Context, token: string | null): void {
  if (token === null) {
    const { hostname } = new URL(c.req.url);
    if (isLoopback(hostname)) return;
    throw new RequestError(403, "host", `this server has no token, so it answers loopback names only, not ${hostname}`);
  }
  if (sameSecret(c.req.header("Authorization") ?? "", bearer(token))) return;
  throw new RequestError(401, "invalid_api_key", "wrong token; send the server's token as the API key");
}

function checkModel(asked: string, served: string): void {
  if (asked === served) return;
  throw new RequestError(
    404,
    "model_not_found",
    `no model ${JSON.stringify(asked.slice(0, 100))}; ${served} is served here`,
  );
}

async function bodyOf(c: Context): Promise<Body> {
  if (!/^application\/json\b/i.test(c.req.header("Content-Type") ?? ""))
    throw new RequestError(415, "content_type", "the content type must be application/json");
  let raw: unknown;
  try {
    raw = await c.req.json();
  } catch (error) {
    if (error instanceof RequestError) throw error;
    throw new RequestError(400, "json", "the body is not JSON");
  }
  const parsed = Body.safeParse(raw);
  if (parsed.success) return parsed.data;
  throw new RequestError(400, "invalid", schemaFaults(parsed.error, "body").slice(0, 1000));
}

/** The answer to one request. */
interface Completion {
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly promptTokens: number;
  /** Being written. */
  readonly choices: readonly Choice[];
}

interface Choice {
  readonly reply: Promise<Reply>;
  /** The text of the first tokens of the reply. */
  text(tokens: readonly number[]): string;
  written(from: number): Promise<readonly number[]>;
}

/** Begins completions while there are free slots. */
class CompletionSlots {
  readonly #options: CompletionsOptions;
  #taken = 0;
  #begun = 0;

  constructor(options: CompletionsOptions) {
    this.#options = options;
  }

  /** @throws {RequestError} if the messages cannot be encoded or are too long, or no slot is free */
  begin(body: Body): Completion {
    const { slots, model, wallClock, freshSeed } = this.#options;
    const prompt = this.#prompt(body.messages);
    const tokensMax = this.#room(prompt.length, body);
    const count = body.n ?? 1;
    if (this.#taken + count > slots) {
      throw new RequestError(429, "busy", `${this.#taken} of ${slots} replies are being written; try again later`);
    }
    const number = ++this.#begun;
    const seed = body.seed ?? freshSeed();
    const choices = Array.from({ length: count }, (_, index) => {
      return this.#choice(`${number}.${index}`, { prompt, tokensMax, seed, index, body });
    });
    const created = Math.floor(wallClock() / 1000);
    return { id: `chatcmpl-${created}-${number}`, created, model, promptTokens: prompt.length, choices };
  }

  #prompt(messages: Body["messages"]): number[] {
    const { dialogue, prefix } = this.#options;
    const tokens: number[] = [];
    let prompt: Message[] = [];
    const pushPrompt = () => {
      tokens.push(...dialogue.promptTokens(prompt, { first: tokens.length === 0, prefix }));
      prompt = [];
    };
    try {
      for (const { role, content } of messages) {
        if (role !== "assistant") {
          prompt.push({ role: role === "developer" ? "system" : role, content });
          continue;
        }
        pushPrompt();
        tokens.push(...dialogue.replyTokens(content, prefix));
      }
      pushPrompt();
    } catch (error) {
      if (error instanceof RangeError) throw new RequestError(400, "messages", `messages: ${error.message}`);
      throw error;
    }
    return tokens;
  }

  #room(promptTokens: number, { max_tokens, max_completion_tokens }: Body): number {
    const { contextTokensMax, replyTokensMax } = this.#options;
    const asked = max_completion_tokens ?? max_tokens ?? null;
    const room = contextTokensMax - promptTokens;
    if (room >= Math.max(1, asked ?? 1)) return asked ?? Math.min(replyTokensMax, room);
    const wanted = asked === null ? "" : ` and ${asked} of reply`;
    throw new RequestError(
      400,
      "context_length_exceeded",
      `${promptTokens} tokens of messages${wanted} do not fit into a context of ${contextTokensMax}`,
    );
  }

  #choice(
    sequence: string,
    {
      prompt,
      tokensMax,
      seed,
      index,
      body,
    }: { prompt: number[]; tokensMax: number; seed: number; index: number; body: Body },
  ): Choice {
    const { policy, dialogue, prefix } = this.#options;
    const temperature = body.temperature ?? this.#options.temperature;
    const settings = { temperature, topP: body.top_p ?? 1, topK: body.top_k ?? 0 };
    const coins = { seed, episode: hash64(`choice ${index}`) };
    this.#taken++;
    const opened = policy.open(sequence);
    const write = async () => {
      try {
        await opened;
        return await policy.reply(sequence, { prompt, coins, settings, stops: dialogue.stops, tokensMax });
      } finally {
        await policy.close(sequence);
        this.#taken--;
      }
    };
    const reply = write();
    // A stream awaits the reply later; until then a failure would be an unhandled rejection.
    reply.catch(() => {});
    return {
      reply,
      text: (tokens) => dialogue.replyText(tokens, prefix),
      async written(from) {
        await opened;
        return policy.written(sequence, from);
      },
    };
  }
}

const finishOf = ({ cut }: Reply) => (cut ? "length" : "stop");

function usageOf({ promptTokens }: Completion, replies: readonly Reply[]) {
  const written = replies.reduce((sum, { tokens }) => sum + tokens.length, 0);
  return { prompt_tokens: promptTokens, completion_tokens: written, total_tokens: promptTokens + written };
}

async function whole(completion: Completion) {
  const replies = await Promise.all(completion.choices.map(({ reply }) => reply));
  const { id, created, model } = completion;
  return {
    id,
    object: "chat.completion",
    created,
    model,
    usage: usageOf(completion, replies),
    choices: replies.map((reply, index) => ({
      index,
      finish_reason: finishOf(reply),
      logprobs: null,
      message: { role: "assistant", content: completion.choices[index]!.text(reply.tokens), refusal: null },
    })),
  };
}

function streamed(c: Context, completion: Completion, { stream_options: options }: Body): Response {
  const { id, created, model } = completion;
  const head = { id, object: "chat.completion.chunk", created, model };
  return streamSSE(c, async (stream) => {
    const send = (choices: readonly object[], more: object = {}) =>
      stream.writeSSE({ data: JSON.stringify({ ...head, choices, ...more }) });
    const sendDelta = (index: number, delta: object, finish: string | null = null) =>
      send([{ index, delta, finish_reason: finish, logprobs: null }]);
    try {
      const replies = await Promise.all(
        completion.choices.map(async (choice, index) => {
          await sendDelta(index, { role: "assistant", content: "" });
          for await (const content of pieces(choice)) await sendDelta(index, { content });
          const reply = await choice.reply;
          await sendDelta(index, {}, finishOf(reply));
          return reply;
        }),
      );
      if (options?.include_usage) await send([], { usage: usageOf(completion, replies) });
      await stream.writeSSE({ data: "[DONE]" });
    } catch (error) {
      // The status was sent before.
      const { message } = error as Error;
      await stream.writeSSE({ data: JSON.stringify({ error: { message, type: "server_error", code: "failed" } }) });
    }
  });
}

/** Replacement characters at the end: the bytes of an unfinished character. */
const INCOMPLETE = /\ufffd+$/u;

/** The text of a reply in pieces, as it is written. */
async function* pieces({ reply, text, written }: Choice): AsyncGenerator<string> {
  const tokens: number[] = [];
  let sent = "";
  for (;;) {
    const more = await written(tokens.length).catch(() => []);
    if (more.length === 0) break;
    tokens.push(...more);
    const now = text(tokens).replace(INCOMPLETE, "");
    if (now.length > sent.length) yield now.slice(sent.length);
    sent = now;
  }
  const all = text((await reply).tokens);
  if (all.length > sent.length) yield all.slice(sent.length);
}
