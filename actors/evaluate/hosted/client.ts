/**
 * Sends requests to a hosted model and retries failed requests. This file knows no envs and no episodes.
 *
 * - The client tries again if it gets no answer, if the status is 408, 409, 425, 429 or 5xx, or if it cannot use the answer: the answer is
 *   a redirect, is too long, or has a text that the client cannot parse.
 * - The wait before a new try is random. The upper bound of the wait doubles with each try, up to a minute. If a server sends Retry-After,
 *   the client sends no request before the time in this header.
 * - The client sends the key in one header only, and removes the key from every error text of a server.
 * - An answer has a maximum size. The client refuses redirects, because a redirect could send the key to another server.
 */
import type { Message } from "../../../envs/text/prompt.ts";
import { parsedJson } from "../../checkpoint/json.ts";
import type { Clock } from "../../clock.ts";
import { messageOf } from "../../errors.ts";
import { boundedText } from "../../transport/bounded-text.ts";
import type { Completion, Provider } from "./provider.ts";

export interface ClientOptions {
  readonly provider: Provider;
  readonly model: string;
  /** The base address of the API, without a slash at the end. */
  readonly baseUrl: string;
  readonly key: string | null;
  readonly temperature: number | null;
  /** null means the server's default limit. */
  readonly replyTokensMax: number | null;
  /** Maximum number of tries of one request, the first included. */
  readonly triesMax: number;
  /** Longest time from the start of a try to the end of its answer. */
  readonly timeoutMs: number;
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
  readonly clock: Clock;
  /** Milliseconds since the epoch, for a Retry-After that is a date. */
  readonly wallClock: () => number;
  /** Uniform in [0, 1). */
  readonly uniform: () => number;
  /** The client calls this function before each retry, with the reason. */
  readonly warn: (text: string) => void;
}

/** A request failed and the client does not repeat the request, or the client was stopped. The message never contains the key. */
export class HostedError extends Error {
  override readonly name = "HostedError";
  /** The code of an OpenAI error, such as "context_length_exceeded"; null if the server sent no code. */
  readonly code: string | null;

  constructor(message: string, code: string | null = null) {
    super(message);
    this.code = code;
  }
}

const FIRST_WAIT_MS = 1000;
const WAIT_MS_MAX = 60_000;
/** The client gives up a request if the server's Retry-After is longer than this time. */
const RETRY_AFTER_MS_MAX = 600_000;
/** Time limit of a request for a model's description. */
const CARD_MS_MAX = 10_000;
const ANSWER_BYTES_MAX = 4 << 20;
/** Maximum number of characters of a server's error text in a message of the client. */
const DETAIL_CHARACTERS_MAX = 300;
const RETRIED = new Set([408, 409, 425, 429]);

interface Failure {
  readonly detail: string;
  readonly code: string | null;
  readonly retry: boolean;
  /** null if the server sent no valid Retry-After. */
  readonly retryAfterMs: number | null;
}

export class HostedClient {
  readonly #options: ClientOptions;
  /** Counts so far. The token counts are of answered requests only; a server may also charge for the tokens of failed requests. */
  readonly usage = { requests: 0, retries: 0, inputTokens: 0, outputTokens: 0 };
  /** The client sends no request before this time of `clock`. */
  #notBeforeMs = 0;
  #stopped = false;
  /** One function for each wait in progress; it ends the wait. */
  readonly #sleepers = new Set<() => void>();

  constructor(options: ClientOptions) {
    this.#options = options;
  }

  /** Lets the requests in progress finish. After this call the client sends no other request. */
  stop(): void {
    this.#stopped = true;
    for (const wake of this.#sleepers) wake();
  }

  /** @throws {HostedError} after `stop`, or if the request fails. After a failure the message names the model, the server and the last error */
  async complete(messages: readonly Message[]): Promise<Completion> {
    const { model, baseUrl, triesMax, warn } = this.#options;
    for (let tries = 1; ; tries++) {
      await this.#waitForTurn();
      if (this.#stopped) throw new HostedError("not sent: the evaluation was stopped");
      this.usage.requests++;
      if (tries > 1) this.usage.retries++;
      const result = await this.#try(messages);
      if ("text" in result) {
        this.usage.inputTokens += result.inputTokens;
        this.usage.outputTokens += result.outputTokens;
        return result;
      }
      const { retry, detail, code, retryAfterMs } = result;
      const where = `${model} at ${baseUrl}: ${detail}`;
      if (!retry || tries >= triesMax) {
        throw new HostedError(tries === 1 ? where : `${where} (${tries} tries)`, code);
      }
      if (retryAfterMs !== null && retryAfterMs > RETRY_AFTER_MS_MAX) {
        throw new HostedError(
          `${where}; its Retry-After is ${Math.ceil(retryAfterMs / 1000)} s, and the client waits at most ${RETRY_AFTER_MS_MAX / 1000} s`,
        );
      }
      const waitMs = this.#waitMs(tries, retryAfterMs);
      warn(`${where}; trying again in ${(waitMs / 1000).toFixed(1)} s`);
      await this.#sleep(waitMs);
    }
  }

  #waitMs(tries: number, retryAfterMs: number | null): number {
    const { uniform, clock } = this.#options;
    if (retryAfterMs === null) return uniform() * Math.min(WAIT_MS_MAX, FIRST_WAIT_MS * 2 ** (tries - 1));
    this.#notBeforeMs = Math.max(this.#notBeforeMs, clock.now() + retryAfterMs);
    // Until `#notBeforeMs` all requests wait, also new requests. The random part spreads the retries.
    return retryAfterMs + uniform() * FIRST_WAIT_MS;
  }

  async #waitForTurn(): Promise<void> {
    for (;;) {
      const leftMs = this.#notBeforeMs - this.#options.clock.now();
      if (leftMs <= 0 || this.#stopped) return;
      await this.#sleep(leftMs);
    }
  }

  #sleep(ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const wake = () => {
      cancel();
      this.#sleepers.delete(wake);
      resolve();
    };
    const cancel = this.#options.clock.after(ms, wake);
    this.#sleepers.add(wake);
    if (this.#stopped) wake();
    return promise;
  }

  async #try(messages: readonly Message[]): Promise<Completion | Failure> {
    const { provider, model, baseUrl, key, temperature, replyTokensMax, timeoutMs, clock } = this.#options;
    const own = baseUrl === provider.baseUrl;
    const late = new AbortController();
    const cancel = clock.after(timeoutMs, () => late.abort());
    try {
      const response = await this.#options.fetch(`${baseUrl}${provider.path}`, {
        method: "POST",
        redirect: "error",
        signal: late.signal,
        headers: { "content-type": "application/json", ...provider.headers(key) },
        body: JSON.stringify(provider.body({ model, messages, temperature, replyTokensMax }, own)),
      });
      const text = await boundedText(response, ANSWER_BYTES_MAX, tooLarge);
      if (!response.ok) return this.#refusal(response, text);
      return provider.read(this.#parsed(text));
    } catch (error) {
      const detail = late.signal.aborted ? `no answer in ${timeoutMs / 1000} s` : this.#cleaned(messageOf(error));
      return { detail, code: null, retry: true, retryAfterMs: null };
    } finally {
      cancel();
    }
  }

  #parsed(text: string): unknown {
    try {
      return JSON.parse(text);
    } catch {
      throw new Error(`the answer is no JSON, so the address may be wrong: ${this.#cleaned(text)}`);
    }
  }

  #refusal({ status, headers }: Response, text: string): Failure {
    const retryAfterMs = retryAfter(headers.get("retry-after"), this.#options.wallClock());
    return {
      detail: `status ${status}: ${this.#cleaned(text)}`,
      code: errorCode(text),
      retry: RETRIED.has(status) || status >= 500,
      retryAfterMs,
    };
  }

  /** A server's text as one short line, without control characters and with "(hidden)" in place of the key. */
  #cleaned(text: string): string {
    const { key } = this.#options;
    const clean = key === null ? text : text.replaceAll(key, "(hidden)");
    return clean
      .replaceAll(/[\s\p{C}]+/gu, " ")
      .trim()
      .slice(0, DETAIL_CHARACTERS_MAX);
  }
}

export type Usage = Readonly<HostedClient["usage"]>;

/** The server's description of the model, GET /models/MODEL; null if the request fails. */
export async function modelCard({
  provider,
  model,
  baseUrl,
  key,
  fetch,
}: Pick<ClientOptions, "provider" | "model" | "baseUrl" | "key" | "fetch">): Promise<unknown> {
  try {
    const response = await fetch(`${baseUrl}/models/${encodeURIComponent(model)}`, {
      redirect: "error",
      signal: AbortSignal.timeout(CARD_MS_MAX),
      headers: provider.headers(key),
    });
    const text = await boundedText(response, ANSWER_BYTES_MAX, tooLarge);
    return response.ok ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

const tooLarge = () => new Error(`the answer has more than ${ANSWER_BYTES_MAX >> 20} MiB`);

/** The error code in the body of an answer of OpenAI's API; null if the body has no code. */
function errorCode(text: string): string | null {
  const code = (parsedJson(text) as { error?: { code?: unknown } | null } | null | undefined)?.error?.code;
  return typeof code === "string" ? code : null;
}

/** Converts a Retry-After header, which is seconds or a date, to milliseconds from now; null if the header is missing or invalid. */
export function retryAfter(header: string | null, nowMs: number): number | null {
  if (header === null || header.trim() === "") return null;
  const seconds = Number(header);
  if (Number.isFinite(seconds)) return seconds >= 0 ? 1000 * seconds : null;
  const at = Date.parse(header);
  return Number.isNaN(at) ? null : Math.max(0, at - nowMs);
}
