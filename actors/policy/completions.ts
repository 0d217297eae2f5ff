/**
 * Serves a policy through OpenAI's API: POST /v1/chat/completions and /v1/completions, GET /v1/models, /healthz and /metrics. This file
 * reads no run folder and opens no port. completion-request.ts checks the requests.
 *
 * - A reply is the text that an env would read: `<think>…</think><answer>…</answer>`. The client keeps the dialogue and sends earlier
 *   replies back unchanged.
 * - The policy writes at most `slots` replies at once. At most `queueMax` replies wait for a slot; the oldest gets the next slot. A further
 *   request gets the status 429.
 * - When a client disconnects, the server drops the client's waiting replies. The policy still writes a begun reply to its end.
 * - If the server has no token, it answers only requests to a loopback name, and /healthz. The content type of a POST must be JSON. A browser
 *   sends JSON from another site's page only after a preflight request, which this server refuses.
 *
 * Source: platform.openai.com/docs/api-reference/chat; return_token_ids, prompt_token_ids and token_ids as in vLLM
 * (docs.vllm.ai, OpenAI-compatible server).
 */
import { type Context, Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import { streamSSE } from "hono/streaming";
import type { Reply, ReplyRequest } from "../../model/decode/generate.ts";
import type { TokenChoice } from "../../model/decode/top-log-probs.ts";
import { hash64 } from "../../model/rng.ts";
import type { Dialogue, Message, ReplyPrefix } from "../../model/text/dialogue.ts";
import type { Remote } from "../process/worker-rpc.ts";
import type { PolicyMethods } from "../sampler/policy.ts";
import { bearer, isLoopback, sameSecret } from "../transport/address.ts";
import { type Asked, askedOf, RequestError, type RequestForm } from "./completion-request.ts";
import { ServeCounts, Slots } from "./serve-counts.ts";

export interface CompletionsOptions {
  /** The policy, which has loaded its weights. */
  readonly policy: Pick<Remote<PolicyMethods>, "open" | "reply" | "written" | "close">;
  readonly dialogue: Dialogue;
  readonly prefix: ReplyPrefix;
  /** The policy's name in the API. */
  readonly model: string;
  /** Maximum number of replies that the policy writes at once: its number of slots. */
  readonly slots: number;
  /** Maximum number of replies that wait for a slot. */
  readonly queueMax: number;
  /** The `bunraku` part of the model's card, as JSON: see served-card.ts. */
  readonly card: object;
  /** Maximum number of tokens of a dialogue with its reply. */
  readonly contextTokensMax: number;
  /** Maximum number of tokens of a reply, for a request without max_tokens. */
  readonly replyTokensMax: number;
  /** The temperature of a request that names none. */
  readonly temperature: number;
  readonly token: string | null;
  /** The clock, in milliseconds since the epoch. */
  readonly wallClock: () => number;
  /** Gives the seed of a request that names none. */
  readonly freshSeed: () => number;
}

const BODY_BYTES_MAX = 1 << 20;

const CHAT_PATH = "/v1/chat/completions";
const TEXT_PATH = "/v1/completions";

export function completionsApp(options: CompletionsOptions): Hono {
  const app = new Hono();
  const slots = new Slots(options.slots, options.queueMax);
  const counts = new ServeCounts();
  const begin = completer(options, slots, counts);
  app.onError((error, c) => refusal(c, error));
  app.notFound((c) => refusal(c, new RequestError(404, "not_found", `there is no ${c.req.method} ${c.req.path}`)));
  app.get("/healthz", (c) => c.json({ status: "ok" }));
  // Stands before the checks, so that it also counts the requests that they refuse.
  app.on("POST", [CHAT_PATH, TEXT_PATH], async (c, next) => {
    await next();
    counts.answered(c.res.status);
  });
  app.use(async (c, next) => {
    checkAccess(c, options.token);
    await next();
  });
  app.get("/metrics", (c) => c.text(counts.text(slots), 200, { "Content-Type": "text/plain; version=0.0.4" }));
  const created = Math.floor(options.wallClock() / 1000);
  const { card, contextTokensMax } = options;
  const model = {
    id: options.model,
    object: "model",
    created,
    owned_by: "bunraku",
    max_model_len: contextTokensMax,
    bunraku: card,
  };
  app.get("/v1/models", (c) => c.json({ object: "list", data: [model] }));
  app.get("/v1/models/:id", (c) => {
    checkModel(c.req.param("id"), options.model);
    return c.json(model);
  });
  const limit = bodyLimit({
    maxSize: BODY_BYTES_MAX,
    onError: () => {
      throw new RequestError(413, "too_large", `the body of a request may have at most ${BODY_BYTES_MAX} bytes`);
    },
  });
  const answer = (form: RequestForm) => async (c: Context) => {
    const asked = askedOf(form, await jsonOf(c));
    checkModel(asked.model, options.model);
    const completion = begin(asked, c.req.raw.signal);
    return asked.stream ? streamed(c, completion, asked) : c.json(await whole(completion, asked));
  };
  app.post(CHAT_PATH, limit, answer("chat"));
  app.post(TEXT_PATH, limit, answer("text"));
  return app;
}

function refusal(c: Context, error: Error): Response {
  const known = error instanceof RequestError;
  if (known && error.status === 429) c.header("Retry-After", "1");
  const type = known ? "invalid_request_error" : "server_error";
  const [code, param] = known ? [error.code, error.param] : ["failed", null];
  return c.json({ error: { message: error.message, type, code, param } }, known ? error.status : 500);
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
    "model",
  );
}

async function jsonOf(c: Context): Promise<unknown> {
  if (!/^application\/json\b/i.test(c.req.header("Content-Type") ?? ""))
    throw new RequestError(415, "content_type", "the content type must be application/json");
  try {
    return await c.req.json();
  } catch (error) {
    if (error instanceof RequestError) throw error;
    throw new RequestError(400, "json", "the body is not JSON");
  }
}

interface Completion {
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly prompt: readonly number[];
  readonly texts: Texts;
  /** The request's replies, which the policy may still be writing. */
  readonly choices: readonly Choice[];
}

interface Choice {
  readonly reply: Promise<Reply>;
  written(from: number): Promise<readonly number[]>;
}

type Texts = ReturnType<typeof textsOf>;

/** Functions that make the text of a reply from its tokens. @param stops  the stop texts of the request */
function textsOf({ dialogue, prefix }: CompletionsOptions, stops: readonly string[]) {
  const full = (tokens: readonly number[]) => dialogue.replyText(tokens, prefix);
  const text = (tokens: readonly number[]) => cutAt(full(tokens), prefix.length, stops);
  return {
    stops,
    /** The text of the reply's first tokens, up to the first stop text. */
    text,
    /** True if a stop text ends the text of these tokens. */
    stopped: (tokens: readonly number[]) => text(tokens).length < full(tokens).length,
    /** The smallest number of tokens from the beginning whose text contains the whole `text(tokens)`. */
    held(tokens: readonly number[]) {
      const whole = text(tokens);
      let count = 0;
      while (!full(tokens.slice(0, count)).startsWith(whole)) count++;
      return count;
    },
    tokenText: (token: number) => full([token]).slice(prefix.length),
  };
}

/**
 * Makes the function that begins completions. Each reply of a completion then waits for a free slot. The function throws a `RequestError` if the
 * messages cannot be encoded or are too long, or the queue is full.
 */
function completer(options: CompletionsOptions, slots: Slots, counts: ServeCounts) {
  const { model, policy, dialogue, wallClock, freshSeed } = options;
  let begun = 0;

  /** @param gone  aborted when the client has disconnected */
  return (asked: Asked, gone: AbortSignal): Completion => {
    const prompt = promptOf(asked.messages, options);
    const tokensMax = roomFor(prompt.length, asked.tokensMax, options);
    const most = slots.slots + slots.queueMax;
    if (asked.count > most)
      throw new RequestError(400, "n", `n is ${asked.count}; this server takes at most ${most} replies at once`, "n");
    if (asked.count > slots.room) {
      const text = `${slots.taken} of ${slots.slots} replies are being written, and ${slots.waiting} of ${slots.queueMax} wait; try again later`;
      throw new RequestError(429, "busy", text);
    }
    const number = ++begun;
    const seed = asked.seed ?? freshSeed();
    const { temperature, topP, topK, tops } = asked;
    const request = {
      prompt,
      settings: { temperature: temperature ?? options.temperature, topP, topK },
      stops: dialogue.stops,
      tokensMax,
      ...(tops === null ? {} : { tops }),
    };
    const choices = Array.from({ length: asked.count }, (_, index) => {
      const coins = { seed, episode: hash64(`choice ${index}`) };
      return choice(`${number}.${index}`, { ...request, coins }, gone);
    });
    const created = Math.floor(wallClock() / 1000);
    const id = `${asked.form === "chat" ? "chatcmpl" : "cmpl"}-${created}-${number}`;
    return { id, created, model, prompt, texts: textsOf(options, asked.stops), choices };
  };

  function choice(sequence: string, request: ReplyRequest, gone: AbortSignal): Choice {
    const started = Promise.withResolvers<void>();
    const write = async () => {
      const free = await slots.take(gone);
      try {
        await policy.open(sequence);
        try {
          const reply = policy.reply(sequence, request);
          started.resolve();
          const written = await reply;
          counts.wrote(request.prompt.length, written.tokens.length);
          return written;
        } finally {
          await policy.close(sequence);
        }
      } finally {
        free();
      }
    };
    const reply = write();
    // A stream awaits the reply only later. Without these handlers, an earlier failure would be an unhandled rejection.
    reply.catch(started.reject);
    started.promise.catch(() => {});
    return {
      reply,
      async written(from) {
        await started.promise;
        return policy.written(sequence, from);
      },
    };
  }
}

function promptOf(messages: Asked["messages"], { dialogue, prefix }: CompletionsOptions): number[] {
  let tokens: number[] = [];
  let prompt: Message[] = [];
  // Uses concat, because `push(...tokens)` fails for a long text: a call may not have so many arguments.
  const pushPrompt = () => {
    tokens = tokens.concat(dialogue.promptTokens(prompt, { first: tokens.length === 0, prefix }));
    prompt = [];
  };
  try {
    for (const { role, content } of messages) {
      if (role !== "assistant") {
        prompt.push({ role, content });
        continue;
      }
      pushPrompt();
      tokens = tokens.concat(dialogue.replyTokens(content, prefix));
    }
    pushPrompt();
  } catch (error) {
    if (error instanceof RangeError) throw new RequestError(400, "messages", `messages: ${error.message}`, "messages");
    throw error;
  }
  return tokens;
}

function roomFor(
  promptTokens: number,
  asked: number | null,
  { contextTokensMax, replyTokensMax }: CompletionsOptions,
): number {
  const room = contextTokensMax - promptTokens;
  if (room >= (asked ?? 1)) return asked ?? Math.min(replyTokensMax, room);
  const wanted = asked === null ? "" : ` and ${asked} of reply`;
  const text = `${promptTokens} tokens of messages${wanted} do not fit into a context of ${contextTokensMax}`;
  const param = asked === null || room < 1 ? "messages" : "max_tokens";
  throw new RequestError(400, "context_length_exceeded", text, param);
}

/** The text before the first stop text. @param from  index of the first character that may belong to a stop text */
function cutAt(text: string, from: number, stops: readonly string[]): string {
  const found = stops.map((stop) => text.indexOf(stop, from)).filter((at) => at >= 0);
  return found.length === 0 ? text : text.slice(0, Math.min(...found));
}

/** The text. If its end may be the beginning of a stop text, the text without this end. */
function heldBack(text: string, from: number, stops: readonly string[]): string {
  for (let at = from; at < text.length; at++) {
    const end = text.slice(at);
    if (stops.some((stop) => stop.startsWith(end))) return text.slice(0, at);
  }
  return text;
}

const finishOf = ({ cut, tokens }: Reply, { stopped }: Texts) => (cut && !stopped(tokens) ? "length" : "stop");

function usageOf({ prompt }: Completion, replies: readonly Reply[]) {
  const promptTokens = prompt.length;
  const written = replies.reduce((sum, { tokens }) => sum + tokens.length, 0);
  return { prompt_tokens: promptTokens, completion_tokens: written, total_tokens: promptTokens + written };
}

async function whole(completion: Completion, { form, tokenIds }: Asked) {
  const replies = await Promise.all(completion.choices.map(({ reply }) => reply));
  const { id, created, model, prompt, texts } = completion;
  const isChat = form === "chat";
  const asked = tokenIds ? { prompt_token_ids: prompt } : {};
  return {
    ...(isChat && asked),
    id,
    object: isChat ? "chat.completion" : "text_completion",
    created,
    model,
    usage: usageOf(completion, replies),
    choices: replies.map((reply, index) => {
      const text = texts.text(reply.tokens);
      const logprobs = logProbsOf(reply, texts, { form, tokenIds });
      const written = tokenIds ? { token_ids: [...reply.tokens] } : {};
      const ending = { index, finish_reason: finishOf(reply, texts), logprobs, ...written, ...(!isChat && asked) };
      return isChat ? { ...ending, message: { role: "assistant", content: text, refusal: null } } : { ...ending, text };
    }),
  };
}

/**
 * Log-probabilities at temperature 1, in the form of the API; null if the request does not ask for them. An answer with token_ids has the
 * values of all written tokens. Any other answer leaves out the policy's stop token, and the tokens after a stop text of the request.
 */
function logProbsOf(
  { tokens, choices, cut }: Reply,
  { tokenText, stopped, held }: Texts,
  { form, tokenIds }: Pick<Asked, "form" | "tokenIds">,
): object | null {
  if (choices === undefined) return null;
  const before = stopped(tokens) ? held(tokens) : tokens.length - (cut ? 0 : 1);
  const shown = tokenIds ? choices : choices.slice(0, before);
  if (form === "text") {
    return {
      tokens: shown.map(({ token }) => tokenText(token)),
      token_logprobs: shown.map(({ logProb }) => logProb),
      top_logprobs: shown.map(({ top }) =>
        Object.fromEntries(top.map(({ token, logProb }) => [tokenText(token), logProb])),
      ),
    };
  }
  const entry = ({ token, logProb }: Omit<TokenChoice, "top">) => {
    const text = tokenText(token);
    return { token: text, logprob: logProb, bytes: [...new TextEncoder().encode(text)] };
  };
  return { content: shown.map((choice) => ({ ...entry(choice), top_logprobs: choice.top.map(entry) })), refusal: null };
}

function streamed(c: Context, completion: Completion, { form, includeUsage }: Asked): Response {
  const { id, created, model, texts } = completion;
  const isChat = form === "chat";
  const head = { id, object: isChat ? "chat.completion.chunk" : "text_completion", created, model };
  return streamSSE(c, async (stream) => {
    const send = (choices: readonly object[], more: object = {}) =>
      stream.writeSSE({ data: JSON.stringify({ ...head, choices, ...more }) });
    const sendPiece = (index: number, content: string | null, finish: string | null = null) => {
      const piece = isChat ? { delta: content === null ? {} : { content } } : { text: content ?? "" };
      return send([{ index, ...piece, finish_reason: finish, logprobs: null }]);
    };
    try {
      const replies = await Promise.all(
        completion.choices.map(async (choice, index) => {
          const delta = { role: "assistant", content: "" };
          if (isChat) await send([{ index, delta, finish_reason: null, logprobs: null }]);
          for await (const content of pieces(choice, texts)) await sendPiece(index, content);
          const reply = await choice.reply;
          await sendPiece(index, null, finishOf(reply, texts));
          return reply;
        }),
      );
      if (includeUsage) await send([], { usage: usageOf(completion, replies) });
      await stream.writeSSE({ data: "[DONE]" });
    } catch (error) {
      // The server has sent the status already, so it sends the error in the stream.
      const { message } = error as Error;
      await stream.writeSSE({ data: JSON.stringify({ error: { message, type: "server_error", code: "failed" } }) });
    }
  });
}

/** Replacement characters at the end of a text. They replace the bytes of a character that is not complete yet. */
const INCOMPLETE = /\ufffd+$/u;

/** The text of a reply, piece by piece, while the policy writes it. */
async function* pieces({ reply, written }: Choice, { text, stops }: Texts): AsyncGenerator<string> {
  const tokens: number[] = [];
  let sent = "";
  for (;;) {
    const more = await written(tokens.length).catch(() => []);
    if (more.length === 0) break;
    tokens.push(...more);
    const now = heldBack(text(tokens).replace(INCOMPLETE, ""), sent.length, stops);
    if (now.length > sent.length) yield now.slice(sent.length);
    sent = now;
  }
  const all = text((await reply).tokens);
  if (all.length > sent.length) yield all.slice(sent.length);
}
