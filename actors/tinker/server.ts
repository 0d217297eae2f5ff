/**
 * A client of a server that speaks Tinker's protocol: JSON over HTTP. The server queues some requests, and the client fetches their results
 * later. `ask` and `post` fetch no queued result, so they work with an inference server too. This file knows no model and no episode.
 *
 * - The client sends a request again, until the deadline, if it cannot reach the server, or if the server answers 425, 429 or 503. In these
 *   cases the server has not taken the request.
 * - If an answer is lost, the client sends the request again only if the caller allows this (`repeatable`). A second forward_backward or optim_step
 *   would train twice.
 * - The client asks for a queued result again after the status 408 (not ready yet) and after a lost answer.
 * - An answer of more than `ANSWER_BYTES_MAX` bytes is an error, and so is a redirect.
 *
 * Source: the schemas of skyrl-tx 0.3.0 (tx/tinker/api.py), which serves the protocol of https://tinker-docs.thinkingmachines.ai.
 */
import { z } from "zod";
import { parsedJson } from "../checkpoint/json.ts";
import { type Clock, pause } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import { messageOf, RunError, schemaFaults } from "../errors.ts";
import type { Messages } from "../protocol.ts";
import { noProxyHere } from "../transport/address.ts";
import { boundedText } from "../transport/bounded-text.ts";

export interface ServerPorts {
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
  readonly clock: Clock;
  /** Takes texts for the log, such as the reason for the first retry of a request. */
  readonly warn: (text: string) => void;
}

export interface ServerOptions extends ServerPorts {
  /** The server's address without a path: "http://127.0.0.1:8801". */
  readonly url: string;
  /** Longest time from the first try of a request to the request's result. */
  readonly deadlineMs: number;
  /** The text before the path of each request, such as "/api/v1/". */
  readonly root: string;
}

/** @param root  see `ServerOptions` @throws {RunError} if the config names no server */
export function openServer({ engine }: Pick<RunConfig, "engine">, ports: ServerPorts, root = "/api/v1/"): ModelServer {
  if (engine.url === null) throw new RunError("engine.url is not set; it is the address of the run's server");
  return new ModelServer({ ...ports, url: engine.url.replace(/\/+$/, ""), deadlineMs: engine.deadlineMs, root });
}

/** Why the client gave up a request, in one line. */
export class ServerError extends Error {
  override readonly name = "ServerError";
  /** Whether the server answered with an error that ends the retries. */
  readonly isFinal: boolean;

  constructor(message: string, isFinal = false) {
    super(message);
    this.isFinal = isFinal;
  }
}

const FIRST_WAIT_MS = 250;
const WAIT_MS_MAX = 5000;
/** Longest time of one try. The server answers a request for a result within 300 s, and all other requests at once. */
const TRY_MS_MAX = 330_000;
const ANSWER_BYTES_MAX = 2 ** 30;
/** Maximum number of characters of a server's error text in a message. */
const DETAIL_CHARACTERS_MAX = 300;
/** Statuses that mean that the server has not taken the request. */
const NOT_TAKEN = new Set([425, 429, 503]);

/** Why a try gave no usable answer. */
interface Failure {
  readonly text: string;
  /** none: the server has not taken the request. pending: no result yet. lost: perhaps taken, but no answer came. final: a retry is useless. */
  readonly kind: "none" | "pending" | "lost" | "final";
}

const Future = z.object({ request_id: z.string() });

export class ModelServer {
  readonly #options: ServerOptions;
  readonly #abort = new AbortController();

  constructor(options: ServerOptions) {
    this.#options = options;
  }

  get url(): string {
    return this.#options.url;
  }

  /** Makes open requests fail. The client then sends no more requests. */
  close(): void {
    this.#abort.abort();
  }

  /** Sends a request that the server may take twice. @throws {ServerError} */
  async ask<T>(path: string, body: unknown, schema: z.ZodType<T>): Promise<T> {
    return this.#parsed(path, await this.#send(path, body, true, this.#deadline()), schema);
  }

  /** Like `ask`, but ignores the content of the answer. @throws {ServerError} */
  async post(path: string, body: unknown): Promise<void> {
    await this.#send(path, body, true, this.#deadline());
  }

  /**
   * The result of a request that the server queues.
   *
   * @param repeatable  whether the server may take the request twice
   * @throws {ServerError}
   */
  async result<T>(path: string, body: unknown, schema: z.ZodType<T>, repeatable: boolean): Promise<T> {
    const deadline = this.#deadline();
    const { request_id } = this.#parsed(path, await this.#send(path, body, repeatable, deadline), Future);
    const answer = await this.#send("retrieve_future", { request_id }, true, deadline, path);
    return this.#parsed(path, answer, schema);
  }

  #deadline(): number {
    return this.#options.clock.now() + this.#options.deadlineMs;
  }

  async #send(path: string, body: unknown, repeatable: boolean, deadline: number, of = path): Promise<string> {
    const { clock, deadlineMs, warn } = this.#options;
    for (let tries = 1; ; tries++) {
      const answer = await this.#try(path, body, deadline - clock.now());
      if (typeof answer === "string") return answer;
      const { text, kind } = answer;
      const server = `the server at ${this.url}, ${of}`;
      if (this.#abort.signal.aborted) throw new ServerError(`${server}: stopped`);
      const where = `${server}: ${text}`;
      if (kind === "final") throw new ServerError(where, true);
      if (kind === "lost" && !repeatable)
        throw new ServerError(`${where}; the answer is lost, and ${of} cannot be sent twice`);
      const waitMs = Math.min(WAIT_MS_MAX, FIRST_WAIT_MS * 2 ** (tries - 1));
      if (clock.now() + waitMs >= deadline)
        throw new ServerError(`${where}; no result in ${deadlineMs / 1000} s (engine.deadlineMs)`);
      if (tries === 1 && kind !== "pending") warn(`${where}; trying again`);
      await pause(clock, waitMs);
    }
  }

  /** @returns the text of the answer, or why there is none */
  async #try(path: string, body: unknown, leftMs: number): Promise<string | Failure> {
    const late = new AbortController();
    const tryMs = Math.min(TRY_MS_MAX, leftMs);
    const cancel = this.#options.clock.after(tryMs, () => late.abort());
    try {
      const response = await this.#options.fetch(`${this.url}${this.#options.root}${path}`, {
        method: body === null ? "GET" : "POST",
        ...(body === null ? {} : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
        redirect: "manual",
        ...noProxyHere(this.url),
        signal: AbortSignal.any([late.signal, this.#abort.signal]),
      });
      const text = await boundedText(response, ANSWER_BYTES_MAX, tooLarge);
      return response.ok ? text : failureOf(response.status, text);
    } catch (error) {
      if (late.signal.aborted) return { text: `no answer in ${Math.round(tryMs / 1000)} s`, kind: "lost" };
      const { code, message } = error as { code?: unknown; message: string };
      const refused = code === "ConnectionRefused" || code === "ECONNREFUSED" || code === "FailedToOpenSocket";
      if (refused) return { text: "cannot be reached", kind: "none" };
      if (error instanceof ServerError) return { text: message, kind: "final" };
      return { text: `the connection broke (${typeof code === "string" ? code : message})`, kind: "lost" };
    } finally {
      cancel();
    }
  }

  #parsed<T>(path: string, answer: string, schema: z.ZodType<T>): T {
    const of = `the server at ${this.url}, ${path}`;
    let json: unknown;
    try {
      json = JSON.parse(answer);
    } catch (error) {
      throw new ServerError(`${of}: its answer is not JSON (${messageOf(error)})`, true);
    }
    const { success, data, error } = schema.safeParse(json);
    if (success) return data;
    const faults = schemaFaults({ issues: error.issues.slice(0, 3) }, "it");
    throw new ServerError(`${of}: answers in another format (${faults})`);
  }
}

/** A failed result is a 400 or 500 with a reason in JSON. A 500 without JSON is a temporary fault, such as a locked database of skyrl-tx. */
function failureOf(status: number, text: string): Failure {
  const reason = reasonIn(text);
  const detail = reason === "" ? `answers ${status} without a reason` : `answers ${status}: ${reason}`;
  if (status < 400) return { text: "answers with a redirect, and Bunraku follows none", kind: "final" };
  if (NOT_TAKEN.has(status)) return { text: detail, kind: "none" };
  if (status === 408) return { text: detail, kind: "pending" };
  const isLost = status > 500 || (status === 500 && !text.startsWith("{"));
  return { text: detail, kind: isLost ? "lost" : "final" };
}

function reasonIn(text: string): string {
  const detail = (parsedJson(text) as { detail?: unknown } | null | undefined)?.detail ?? text;
  const line = typeof detail === "string" ? detail : JSON.stringify(detail);
  return line.replaceAll(/\s+/g, " ").trim().slice(0, DETAIL_CHARACTERS_MAX);
}

const tooLarge = () => new ServerError(`answers more than ${ANSWER_BYTES_MAX} bytes`);

/** The message that samplers get. Its digest is the digest of the name, because the server never shows the bytes of the weights. */
export const servedVersion = (version: number, name: string): Messages["weights"] => ({
  type: "weights",
  version,
  digest: digestOf(name),
  byteLength: 0,
  location: { kind: "server", name },
});

/** sha256 in hex. */
export const digestOf = (name: string): string => new Bun.CryptoHasher("sha256").update(name).digest("hex");
