/**
 * A client for a server that answers JSON over HTTP. Knows no env and no protocol.
 *
 * - If an answer is lost or has status 408, 429 or 5xx, the client repeats the request. So requests must be idempotent. If the server refuses a
 *   request, the client does not repeat it.
 * - The options limit the time of a try, the number of tries and the bytes of an answer.
 * - Redirects are errors. The client sends a token only over https or to this machine. A request to this machine uses no proxy.
 */
import { setTimeout as wait } from "node:timers/promises";
import { z } from "zod";

/** The options that every env with a server has besides the server's address. */
export const serverOptions = {
  /** Environment variable with the server's bearer token; null sends no token. */
  tokenVariable: z
    .string()
    .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "must be the name of an environment variable, not the token itself")
    .nullable()
    .default(null),
  /** Time limit of one try. */
  timeoutMs: z.int().positive().default(8000),
  /** Further tries after a lost answer, or status 408, 429 or 5xx. */
  retriesMax: z.int().nonnegative().max(10).default(2),
  /** Delay before the second try; the delay doubles with each further try. */
  retryMs: z.int().positive().default(200),
  /** Maximum length of an answer. The client refuses a longer answer. */
  answerBytesMax: z
    .int()
    .positive()
    .default(2 ** 20),
};

/** The option for the server's address. */
export const serverUrl = (standard: string) =>
  z
    .string()
    .refine(isServerUrl, "must be http:// or https://, without user, password, query or fragment")
    .default(standard);

function isServerUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password } = new URL(text);
  return /^https?:$/.test(protocol) && username + password === "" && !/[?#]/.test(text);
}

export interface ServerOptions extends Readonly<z.infer<z.ZodObject<typeof serverOptions>>> {
  /** For error messages: "the Lean server". */
  readonly name: string;
  /** For error messages: how to start or reach the server. */
  readonly help: string;
  readonly url: string;
}

/** A final error: the client does not repeat the request, because it would fail again. */
export class Refused extends Error {}

/** The random player cannot play: the server lists no actions. */
export class NoRandomPlayer extends Refused {}

export class JsonServer {
  readonly #options: ServerOptions;
  readonly #base: string;
  readonly #isLocal: boolean;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#base = options.url.replace(/\/+$/, "");
    this.#isLocal = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(new URL(options.url).hostname);
  }

  /**
   * @param body  the body of a POST; null for a GET
   * @throws {Refused} for a final error, such as a missing token before the first request
   * @throws {Error} in one line, after the last try. If `signal` is aborted, `ask` throws the signal's reason.
   */
  async ask<T>(path: string, body: unknown, schema: z.ZodType<T>, signal?: AbortSignal): Promise<T> {
    const { name, help, retriesMax, retryMs } = this.#options;
    const headers = this.#headers();
    for (let tries = 1; ; tries++) {
      try {
        return parsed(await this.#try(path, body, headers, signal), schema);
      } catch (error) {
        signal?.throwIfAborted();
        const final = error instanceof Refused;
        if (final || tries > retriesMax) {
          const after = tries === 1 ? "" : ` after ${tries} tries`;
          const text = `${name} at ${this.#base}${path}${after}: ${described(error)}.`;
          throw final ? new Refused(text, { cause: error }) : new Error(`${text} ${help}`, { cause: error });
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
      throw new Refused(`${name} needs a token: set the environment variable ${tokenVariable}`);
    }
    const { protocol, hostname } = new URL(this.#base);
    if (protocol === "http:" && !this.#isLocal) {
      throw new Refused(`${name} cannot get a token over http, which others can read: use https for ${hostname}`);
    }
    return { ...headers, authorization: `Bearer ${token}` };
  }

  async #try(path: string, body: unknown, headers: Record<string, string>, signal?: AbortSignal): Promise<string> {
    const { timeoutMs, answerBytesMax } = this.#options;
    const timeout = AbortSignal.timeout(timeoutMs);
    try {
      const response = await fetch(this.#base + path, {
        headers,
        method: body === null ? "GET" : "POST",
        body: body === null ? null : JSON.stringify(body),
        redirect: "manual",
        // Without `proxy: false` Bun uses HTTP_PROXY even for this machine. Bun's types do not list the value false.
        ...(this.#isLocal ? { proxy: false as never } : {}),
        signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
      });
      if (!response.ok) throw failure(response, await bodyText(response, answerBytesMax));
      const text = await bodyText(response, answerBytesMax);
      if (text === null) throw new Refused(`answers more than ${answerBytesMax} bytes (options.answerBytesMax)`);
      return text;
    } catch (error) {
      if (timeout.aborted) throw new Error(`no answer in ${timeoutMs} ms`);
      throw error;
    }
  }
}

/** @param text  the body of the answer; null if the body is too long */
function failure({ status, headers }: Response, text: string | null): Error {
  if (status >= 300 && status < 400) {
    return new Refused(`redirects to ${headers.get("location")}, which is not followed`);
  }
  const message = `answers ${status}: ${text === null ? "a long text" : reasonIn(text)}`;
  return status === 408 || status === 429 || status >= 500 ? new Error(message) : new Refused(message);
}

/** The reason in an error body, in one line of at most 300 characters: the body's `error` or `detail`; if it has neither, the whole body. */
function reasonIn(text: string): string {
  const body = Body.safeParse(text).data;
  const reason = body?.error ?? body?.detail ?? text;
  const line = typeof reason === "string" ? reason : JSON.stringify(reason);
  return line.replaceAll(/\s+/g, " ").trim().slice(0, 300) || "nothing";
}

const Json = z.string().transform((text, context): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    context.addIssue("no JSON");
    return z.NEVER;
  }
});
const Body = Json.pipe(z.object({ error: z.unknown().optional(), detail: z.unknown().optional() }));

function parsed<T>(text: string, schema: z.ZodType<T>): T {
  const json = Json.safeParse(text);
  if (!json.success) throw new Refused(`answers ${JSON.stringify(text.slice(0, 100))}, which is not JSON`);
  const result = schema.safeParse(json.data);
  if (result.success) return result.data;
  const reasons = result.error.issues.map(({ path, message }) => `${path.join(".") || "it"}: ${message}`);
  throw new Refused(`answers in another format (${reasons.slice(0, 3).join("; ")})`);
}

/** The body as text; null if it has more than `bytesMax` bytes. @throws {Refused} if the status is 2xx and the body is not UTF-8 */
async function bodyText(response: Response, bytesMax: number): Promise<string | null> {
  const decoder = new TextDecoder("utf-8", { fatal: response.ok });
  const decoded = (...chunk: Parameters<typeof decoder.decode>) => {
    try {
      return decoder.decode(...chunk);
    } catch {
      throw new Refused("answers bytes that are not UTF-8; encode the JSON in UTF-8");
    }
  };
  let text = "";
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.byteLength;
    // Leaving the loop cancels the rest of the body.
    if (bytes > bytesMax) return null;
    text += decoded(chunk, { stream: true });
  }
  return text + decoded();
}

function described(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code } = error as { code?: unknown };
  return typeof code === "string" ? `cannot be reached (${code})` : error.message;
}

/** Limits how many asynchronous tasks run at once; further tasks wait in the order of their calls. */
export type Limiter = <T>(task: () => Promise<T>) => Promise<T>;

export function limiter(runningMax: number): Limiter {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (task) => {
    if (running < runningMax) running++;
    else await new Promise<void>((start) => waiting.push(start));
    try {
      return await task();
    } finally {
      // The next task takes this place directly, so that no later call overtakes it.
      const next = waiting.shift();
      if (next === undefined) running--;
      else next();
    }
  };
}
