/**
 * A server that somebody else runs, asked in JSON over HTTP. Knows no env and no protocol.
 *
 * - An ask whose answer was lost is asked again, so it must mean the same twice. What the server refuses is not repeated.
 * - Everything is bounded: the time of a try, the tries, the bytes of an answer.
 * - A redirect is an error, and a token travels in the clear to this machine alone, past any proxy: it reaches only whom it
 *   was meant for.
 */
import { setTimeout as wait } from "node:timers/promises";
import { z } from "zod";

/** The keys of an env's options that say where its server is and how long it is waited for. */
export const serverOptions = {
  /** Name of the environment variable with the server's token, sent as a bearer token; null: it asks for none. */
  tokenVariable: z
    .string()
    .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "must be the name of an environment variable, not the token itself")
    .nullable()
    .default(null),
  /** Time for one try; after it the ask is repeated. */
  timeoutMs: z.int().positive().default(8000),
  /** Further tries after a lost answer, and while the server is busy. */
  retriesMax: z.int().nonnegative().max(10).default(2),
  /** Wait before the first of them; doubles with each. */
  retryMs: z.int().positive().default(200),
  /** A longer answer is refused. */
  answerBytesMax: z
    .int()
    .positive()
    .default(2 ** 20),
};

/** A server's address, as a key of an env's options. */
export const serverUrl = (standard: string) => z.string().refine(isServerUrl, URL_FORM).default(standard);

const URL_FORM = "must be http:// or https://, without user, password, query or fragment";

function isServerUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password, search, hash } = new URL(text);
  return /^https?:$/.test(protocol) && [username, password, search, hash].every((part) => part === "");
}

export interface ServerOptions {
  /** For messages: "the Lean server". */
  readonly name: string;
  /** For messages: how to get one. */
  readonly help: string;
  readonly url: string;
  readonly tokenVariable: string | null;
  readonly timeoutMs: number;
  readonly retriesMax: number;
  readonly retryMs: number;
  readonly answerBytesMax: number;
}

export interface AskOptions {
  /** Fires when nobody waits for the answer any more. */
  readonly signal?: AbortSignal;
  /** Time for one try, where it differs from the server's. */
  readonly timeoutMs?: number;
  /** Further tries, where their number differs. */
  readonly retriesMax?: number;
}

/** An answer that asking again, now or later, will not change. Its name stays that of any error: what it says is for people. */
export class Refused extends Error {}

/** An answer that is an error, and whether asking again may help. */
class Refusal extends Error {
  readonly passing: boolean;

  constructor(message: string, passing: boolean) {
    super(message);
    this.passing = passing;
  }
}

export class JsonServer {
  readonly #options: ServerOptions;
  readonly #base: string;
  /** It is on this machine. */
  readonly #near: boolean;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#base = options.url.replace(/\/+$/, "");
    this.#near = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(new URL(options.url).hostname);
  }

  /**
   * @param body  null asks with GET.
   * @throws {Error} one line: which server, what it did, and what to do; `Refused` if its answer is final; the reason of `signal` if
   *   that fired.
   */
  async ask<T>(path: string, body: unknown, schema: z.ZodType<T>, options: AskOptions = {}): Promise<T> {
    const { name, help, retryMs } = this.#options;
    const { signal, retriesMax = this.#options.retriesMax } = options;
    const headers = this.#headers();
    for (let tries = 1; ; tries++) {
      try {
        return parsed(await this.#try(path, body, headers, options), schema);
      } catch (error) {
        signal?.throwIfAborted();
        const passing = !(error instanceof Refusal) || error.passing;
        if (!passing || tries > retriesMax) {
          const after = tries === 1 ? "" : ` after ${tries} tries`;
          const hint = passing ? ` ${help}` : "";
          const text = `${name} at ${this.#base}${path}${after}: ${described(error)}.${hint}`;
          throw new (passing ? Error : Refused)(text, { cause: error });
        }
      }
      await wait(retryMs * 2 ** (tries - 1), undefined, signal === undefined ? {} : { signal }).catch((error) => {
        signal?.throwIfAborted();
        throw error;
      });
    }
  }

  #headers(): Record<string, string> {
    const { name, tokenVariable } = this.#options;
    const headers = { "content-type": "application/json", accept: "application/json" };
    if (tokenVariable === null) return headers;
    const token = process.env[tokenVariable];
    if (token === undefined || token === "") {
      throw new Error(`${name} asks for a token: set the environment variable ${tokenVariable}`);
    }
    const { protocol, hostname } = new URL(this.#base);
    if (protocol === "http:" && !this.#near) {
      throw new Error(`${name} is asked over http, which would show the token to others: use https for ${hostname}`);
    }
    return { ...headers, authorization: `Bearer ${token}` };
  }

  async #try(path: string, body: unknown, headers: Record<string, string>, options: AskOptions): Promise<string> {
    const { answerBytesMax } = this.#options;
    const { signal, timeoutMs = this.#options.timeoutMs } = options;
    const timeout = AbortSignal.timeout(timeoutMs);
    try {
      const response = await fetch(this.#base + path, {
        headers,
        method: body === null ? "GET" : "POST",
        body: body === null ? null : JSON.stringify(body),
        redirect: "manual",
        // Bun would ask the proxy of HTTP_PROXY for this very machine; its types do not know that false forbids it.
        ...(this.#near ? { proxy: false as never } : {}),
        signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
      });
      const text = await boundedText(response, answerBytesMax);
      if (response.ok) return text;
      throw refusal(response, text);
    } catch (error) {
      if (timeout.aborted) throw new Error(`no answer in ${timeoutMs} ms`);
      throw error;
    }
  }
}

function refusal(response: Response, text: string): Refusal {
  const { status } = response;
  if (status >= 300 && status < 400) {
    return new Refusal(`redirects to ${response.headers.get("location")}, which is not followed`, false);
  }
  const passing = status === 408 || status === 429 || status >= 500;
  return new Refusal(`answers ${status}: ${saying(text)}`, passing);
}

/** What an error's body says, in one line: its `error` or `detail`, if it has one. */
function saying(text: string): string {
  const said = ErrorBody.safeParse(tryJson(text));
  const found = said.success ? (said.data.error ?? said.data.detail) : undefined;
  const line = found === undefined ? text : typeof found === "string" ? found : JSON.stringify(found);
  return line.replaceAll(/\s+/g, " ").trim().slice(0, 300) || "nothing";
}

const ErrorBody = z.object({ error: z.unknown().optional(), detail: z.unknown().optional() });

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function parsed<T>(text: string, schema: z.ZodType<T>): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Refusal(`answers what is no JSON: ${JSON.stringify(text.slice(0, 100))}`, false);
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const reasons = result.error.issues.map(({ path, message }) => `${path.join(".") || "it"}: ${message}`);
  throw new Refusal(`answers something else than agreed (${reasons.slice(0, 3).join("; ")})`, false);
}

async function boundedText(response: Response, bytesMax: number): Promise<string> {
  const decoder = new TextDecoder("utf-8", { fatal: false });
  let text = "";
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.byteLength;
    // Leaving the loop cancels the rest of the body.
    if (bytes > bytesMax) throw new Refusal(`answers more than ${bytesMax} bytes (options.answerBytesMax)`, false);
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}

function described(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code } = error as { code?: unknown };
  return typeof code === "string" ? `cannot be reached (${code})` : error.message;
}
