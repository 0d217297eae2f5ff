/**
 * A policy behind OpenAI's chat completions API: POST /v1/chat/completions, GET /v1/models. Knows no run folder and opens no port.
 *
 * - A reply is what an env would read, with its thought: `<think>…</think><answer>…</answer>`. A dialogue is the client's to keep; its
 *   earlier replies must come back as they were.
 * - What is not supported is refused, and nothing is left out of account: a field that we do not know is an error.
 * - At most `slots` replies are written at once. Whoever comes then is told 429, which clients try again; nobody waits in a queue here.
 * - A reply that nobody reads any more is still written to its end, which `tokensMax` bounds.
 * - Without a token only loopback names are answered; only JSON is taken, so that no web page can ask without the browser asking first.
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
import type { Remote } from "../process/worker-rpc.ts";
import type { PolicyMethods } from "../sampler/policy.ts";
import { isLoopback } from "../transport/address.ts";
import { bearer, sameSecret } from "../transport/token.ts";

export interface CompletionsOptions {
  /** With weights loaded. */
  readonly policy: Pick<Remote<PolicyMethods>, "open" | "reply" | "written" | "close">;
  readonly dialogue: Dialogue;
  readonly prefix: ReplyPrefix;
  /** What clients call the policy. */
  readonly model: string;
  /** Replies written at once; as many as the policy has. */
  readonly slots: number;
  /** Tokens of a dialogue, reply included. */
  readonly contextTokensMax: number;
  /** Of a reply that does not say how long it may be. */
  readonly replyTokensMax: number;
  /** Where a request does not say. */
  readonly temperature: number;
  readonly token: string | null;
  /** Milliseconds since the epoch. */
  readonly wallClock: () => number;
  /** A seed for a request that has none. */
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
  /** Not OpenAI's, but of other servers that speak this API. */
  top_k: z.int().nonnegative().nullish(),
  max_tokens: z.int().positive().nullish(),
  max_completion_tokens: z.int().positive().nullish(),
  n: z.int().positive().max(CHOICES_MAX).nullish(),
  seed: z.int().nonnegative().max(0xffffffff).nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.strictObject({ include_usage: z.boolean().optional() }).nullish(),
  user: z.string().nullish(),
  // Their neutral values only.
  frequency_penalty: z.literal(0).nullish(),
  presence_penalty: z.literal(0).nullish(),
  logprobs: z.literal(false).nullish(),
});
type Body = z.infer<typeof Body>;

function texts(parts: readonly { readonly text: string }[]): string {
  return parts.map(({ text }) => text).join("");
}

/** What a client is told that it did wrong. */
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
  const desk = new Desk(options);
  app.onError((error, c) => refusal(c, error));
  app.notFound((c) => refusal(c, new RequestError(404, "not_found", `no ${c.req.method} ${c.req.path} here`)));
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
    const order = desk.order(body);
    return body.stream ? streamed(c, order, body) : c.json(await whole(order));
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
    throw new RequestError(403, "host", `without a token only loopback names are answered, not ${hostname}`);
  }
  if (sameSecret(c.req.header("Authorization") ?? "", bearer(token))) return;
  throw new RequestError(
    401,
    "invalid_api_key",
    "this policy is served to those who have its token: send it as the API key",
  );
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
    throw new RequestError(415, "content_type", "send application/json");
  let raw: unknown;
  try {
    raw = await c.req.json();
  } catch (error) {
    if (error instanceof RequestError) throw error;
    throw new RequestError(400, "json", "the body is not JSON");
  }
  const parsed = Body.safeParse(raw);
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.map(({ path, message }) => `${path.join(".") || "body"}: ${message}`);
  throw new RequestError(400, "invalid", faults.join("; ").slice(0, 1000));
}

/** What one request has been promised. */
interface Order {
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly promptTokens: number;
  /** One for each choice, begun already. */
  readonly choices: readonly Choice[];
}

interface Choice {
  readonly reply: Promise<Reply>;
  /** Of what is written so far. */
  text(tokens: readonly number[]): string;
  written(from: number): Promise<readonly number[]>;
}

/** Takes requests as long as there is room. */
class Desk {
  readonly #options: CompletionsOptions;
  #taken = 0;
  #orders = 0;

  constructor(options: CompletionsOptions) {
    this.#options = options;
  }

  /** @throws {RequestError} if it makes no sense, is too long, or there is no room now */
  order(body: Body): Order {
    const { slots, model, wallClock, freshSeed } = this.#options;
    const prompt = this.#prompt(body.messages);
    const tokensMax = this.#room(prompt.length, body);
    const count = body.n ?? 1;
    if (this.#taken + count > slots) {
      throw new RequestError(429, "busy", `${this.#taken} of ${slots} replies are being written; ask again`);
    }
    const order = ++this.#orders;
    const seed = body.seed ?? freshSeed();
    const choices = Array.from({ length: count }, (_, index) => {
      return this.#choice(`${order}.${index}`, { prompt, tokensMax, seed, index, body });
    });
    const created = Math.floor(wallClock() / 1000);
    return { id: `chatcmpl-${created}-${order}`, created, model, promptTokens: prompt.length, choices };
  }

  #prompt(messages: Body["messages"]): number[] {
    const { dialogue, prefix } = this.#options;
    const tokens: number[] = [];
    let waiting: Message[] = [];
    const told = () => {
      tokens.push(...dialogue.promptTokens(waiting, { first: tokens.length === 0, prefix }));
      waiting = [];
    };
    try {
      for (const { role, content } of messages) {
        if (role !== "assistant") {
          waiting.push({ role: role === "developer" ? "system" : role, content });
          continue;
        }
        told();
        tokens.push(...dialogue.replyTokens(content, prefix));
      }
      told();
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
    // Whoever streams hears of a failure later than it happens.
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

function usageOf({ promptTokens }: Order, replies: readonly Reply[]) {
  const written = replies.reduce((sum, { tokens }) => sum + tokens.length, 0);
  return { prompt_tokens: promptTokens, completion_tokens: written, total_tokens: promptTokens + written };
}

async function whole(order: Order) {
  const replies = await Promise.all(order.choices.map(({ reply }) => reply));
  const { id, created, model } = order;
  return {
    id,
    object: "chat.completion",
    created,
    model,
    usage: usageOf(order, replies),
    choices: replies.map((reply, index) => ({
      index,
      finish_reason: finishOf(reply),
      logprobs: null,
      message: { role: "assistant", content: order.choices[index]!.text(reply.tokens), refusal: null },
    })),
  };
}

function streamed(c: Context, order: Order, { stream_options: wanted }: Body): Response {
  const { id, created, model } = order;
  const head = { id, object: "chat.completion.chunk", created, model };
  return streamSSE(c, async (stream) => {
    const send = (choices: readonly object[], more: object = {}) =>
      stream.writeSSE({ data: JSON.stringify({ ...head, choices, ...more }) });
    const said = (index: number, delta: object, finish: string | null = null) =>
      send([{ index, delta, finish_reason: finish, logprobs: null }]);
    try {
      const replies = await Promise.all(
        order.choices.map(async (choice, index) => {
          await said(index, { role: "assistant", content: "" });
          for await (const content of pieces(choice)) await said(index, { content });
          const reply = await choice.reply;
          await said(index, {}, finishOf(reply));
          return reply;
        }),
      );
      if (wanted?.include_usage) await send([], { usage: usageOf(order, replies) });
      await stream.writeSSE({ data: "[DONE]" });
    } catch (error) {
      // The status is sent already.
      const { message } = error as Error;
      await stream.writeSSE({ data: JSON.stringify({ error: { message, type: "server_error", code: "failed" } }) });
    }
  });
}

/** Stands for bytes that are no whole character yet. */
const INCOMPLETE = /\ufffd+$/u;

/** A reply's text as it grows; together they are all of it. */
async function* pieces({ reply, text, written }: Choice): AsyncGenerator<string> {
  const tokens: number[] = [];
  let said = "";
  for (;;) {
    const more = await written(tokens.length).catch(() => []);
    if (more.length === 0) break;
    tokens.push(...more);
    const now = text(tokens).replace(INCOMPLETE, "");
    if (now.length > said.length) yield now.slice(said.length);
    said = now;
  }
  const all = text((await reply).tokens);
  if (all.length > said.length) yield all.slice(said.length);
}
