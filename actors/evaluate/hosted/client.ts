/**
 * Asks a hosted model, again and again if need be. Knows no env and no episode.
 *
 * - Tried again: no answer, none in time, 408, 409, 425, 429, 5xx, and an answer that makes no sense. Anything else is final.
 * - Waits double from try to try, up to a minute, and chance spreads them; a Retry-After of the server is kept to by everybody.
 * - The key goes into one header and nowhere else: it is struck out of whatever a server says.
 * - Answers are bounded, and redirects refused: a key must not follow one.
 */
import type { Message } from "../../../envs/text/prompt.ts";
import type { Clock } from "../../clock.ts";
import type { Completion, Provider } from "./provider.ts";

export interface ClientOptions {
  readonly provider: Provider;
  readonly model: string;
  /** Without a slash at its end. */
  readonly baseUrl: string;
  readonly key: string | null;
  readonly temperature: number | null;
  readonly replyTokensMax: number;
  /** Tries of one request, the first included. */
  readonly triesMax: number;
  /** From the request to the end of its answer. */
  readonly timeoutMs: number;
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
  readonly clock: Clock;
  /** Milliseconds since the epoch, for a Retry-After that is a date. */
  readonly wallClock: () => number;
  /** Uniform in [0, 1). */
  readonly uniform: () => number;
  /** Told why something is tried again. */
  readonly warn: (text: string) => void;
}

export interface Usage {
  readonly requests: number;
  /** Of them, those that were tries after the first. */
  readonly retries: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
}

/** A request that failed for good. The message has no secret in it. */
export class HostedError extends Error {
  override readonly name = "HostedError";
}

const FIRST_WAIT_MS = 1000;
const WAIT_MS_MAX = 60_000;
/** A server that wants longer than this is not waited for. */
const RETRY_AFTER_MS_MAX = 600_000;
const ANSWER_BYTES_MAX = 4 << 20;
/** Of what a server says of an error. */
const DETAIL_LETTERS_MAX = 300;
const PASSING = new Set([408, 409, 425, 429]);

interface Failure {
  readonly detail: string;
  readonly again: boolean;
  /** What the server asked for; null if nothing. */
  readonly retryAfterMs: number | null;
}

export class HostedClient {
  readonly #options: ClientOptions;
  #usage = { requests: 0, retries: 0, inputTokens: 0, outputTokens: 0 };
  /** No request before this time on the clock: the server asked for it. */
  #notBeforeMs = 0;
  #stopped = false;
  /** Ends of the waits going on. */
  readonly #sleepers = new Set<() => void>();

  constructor(options: ClientOptions) {
    this.#options = options;
  }

  /** Of all answered requests. What a server counted of requests that failed is not known. */
  get usage(): Usage {
    return this.#usage;
  }

  /** What is under way gets its answer; nothing is tried again or begun. */
  stop(): void {
    this.#stopped = true;
    for (const wake of this.#sleepers) wake();
  }

  /** @throws {HostedError} naming the server, what it said last, and how often it was tried. */
  async complete(messages: readonly Message[]): Promise<Completion> {
    const { model, baseUrl, triesMax, warn } = this.#options;
    for (let tries = 1; ; tries++) {
      await this.#waitForTurn();
      if (this.#stopped) throw new HostedError("not asked: the evaluation ends");
      this.#usage.requests++;
      if (tries > 1) this.#usage.retries++;
      const result = await this.#try(messages);
      if ("text" in result) {
        this.#usage.inputTokens += result.inputTokens;
        this.#usage.outputTokens += result.outputTokens;
        return result;
      }
      const { again, detail, retryAfterMs } = result;
      const where = `${model} at ${baseUrl}: ${detail}`;
      if (!again || tries >= triesMax) throw new HostedError(tries === 1 ? where : `${where} (${tries} tries)`);
      if (retryAfterMs !== null && retryAfterMs > RETRY_AFTER_MS_MAX) {
        throw new HostedError(`${where}; it asks to wait ${Math.ceil(retryAfterMs / 1000)} s, which is too long`);
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
    // Those who were all told the same time do not come back at the same moment.
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
    const abort = new AbortController();
    let late = false;
    const cancel = clock.after(timeoutMs, () => {
      late = true;
      abort.abort();
    });
    try {
      const response = await this.#options.fetch(`${baseUrl}${provider.path}`, {
        method: "POST",
        redirect: "error",
        signal: abort.signal,
        headers: { "content-type": "application/json", ...provider.headers(key) },
        body: JSON.stringify(provider.body({ model, messages, temperature, replyTokensMax }, own)),
      });
      const text = await boundedText(response);
      if (!response.ok) return this.#refusal(response, text);
      return provider.read(JSON.parse(text));
    } catch (error) {
      const said = error instanceof Error ? error.message : String(error);
      const detail = late ? `no answer in ${timeoutMs / 1000} s` : this.#told(said);
      return { detail, again: true, retryAfterMs: null };
    } finally {
      cancel();
    }
  }

  #refusal({ status, headers }: Response, text: string): Failure {
    const retryAfterMs = retryAfter(headers.get("retry-after"), this.#options.wallClock());
    return {
      detail: `status ${status}: ${this.#told(text)}`,
      again: PASSING.has(status) || status >= 500,
      retryAfterMs,
    };
  }

  /** Foreign words as one short line without the key, and without anything that a terminal would obey. */
  #told(text: string): string {
    const { key } = this.#options;
    const clean = key === null ? text : text.replaceAll(key, "(hidden)");
    return clean
      .replaceAll(/[\s\p{C}]+/gu, " ")
      .trim()
      .slice(0, DETAIL_LETTERS_MAX);
  }
}

async function boundedText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let byteCount = 0;
  for await (const chunk of response.body ?? []) {
    byteCount += chunk.length;
    if (byteCount > ANSWER_BYTES_MAX) throw new Error(`the answer has more than ${ANSWER_BYTES_MAX >> 20} MiB`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** Seconds or a date. @returns null if there is none that makes sense */
export function retryAfter(header: string | null, nowMs: number): number | null {
  if (header === null || header.trim() === "") return null;
  const seconds = Number(header);
  if (Number.isFinite(seconds)) return seconds >= 0 ? 1000 * seconds : null;
  const at = Date.parse(header);
  return Number.isNaN(at) ? null : Math.max(0, at - nowMs);
}
