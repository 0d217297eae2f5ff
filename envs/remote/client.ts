/**
 * The client of one remote env server: at most `requestsMax` requests at once, and up to `batchMax` waiting asks in each.
 * Knows no game.
 *
 * - Asks are sent in their order; those of one batch succeed or fail one by one.
 * - Before the first of them the server is asked whether it speaks this protocol and has the env.
 */
import { z } from "zod";
import { type JsonServer, Refused } from "../outside/json-server.ts";
import { type AnswerOf, answerSchemas, Failed, Health, type RemoteAsk } from "./protocol.ts";

export interface ClientOptions {
  readonly requestsMax: number;
  readonly batchMax: number;
  /** The env that will be opened; null for the server's first. */
  readonly env: string | null;
}

interface Waiting {
  readonly ask: RemoteAsk;
  readonly signal: AbortSignal | undefined;
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

const Answers = z.object({ answers: z.array(z.unknown()) });

export class RemoteClient {
  readonly #server: JsonServer;
  readonly #options: ClientOptions;
  readonly #waiting: Waiting[] = [];
  #requests = 0;
  #scheduled = false;
  #ready: Promise<void> | null = null;

  constructor(server: JsonServer, options: ClientOptions) {
    this.#server = server;
    this.#options = options;
  }

  /** @throws {Error} if nobody is there, or somebody else is. */
  ready(): Promise<void> {
    this.#ready ??= this.#meet().catch((error) => {
      this.#ready = null;
      throw error;
    });
    return this.#ready;
  }

  /** @throws {Error} what the server says is wrong, or why it could not be asked; the reason of `signal` if that fired. */
  async ask<A extends RemoteAsk>(ask: A, signal?: AbortSignal): Promise<AnswerOf<A["ask"]>> {
    signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const leave = () => reject(signal?.reason);
    signal?.addEventListener("abort", leave);
    this.#waiting.push({ ask, signal, resolve, reject });
    this.#sendSoon();
    try {
      // Checked against the schema of this very ask before it was resolved.
      return (await promise) as AnswerOf<A["ask"]>;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }

  async #meet(): Promise<void> {
    const { env } = this.#options;
    const { envs } = await this.#server.ask("/health", null, Health);
    if (env !== null && !envs.includes(env)) {
      throw new Refused(`the remote server has no env ${JSON.stringify(env)}; it has ${envs.join(", ")} (options.env)`);
    }
  }

  /** After whoever else asks in this moment, so that they travel together. */
  #sendSoon(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#send();
    });
  }

  #send(): void {
    const { requestsMax, batchMax } = this.#options;
    while (this.#requests < requestsMax && this.#waiting.length > 0) {
      const wanted = this.#waiting.splice(0, batchMax).filter(({ signal }) => signal?.aborted !== true);
      this.#requests++;
      void this.#deliver(wanted).finally(() => {
        this.#requests--;
        this.#send();
      });
    }
  }

  /** Never rejects. */
  async #deliver(waiting: readonly Waiting[]): Promise<void> {
    try {
      const [first] = waiting;
      if (waiting.length > 1) await this.#deliverTogether(waiting);
      else if (first !== undefined) first.resolve(await this.#one(first));
    } catch (error) {
      for (const { reject } of waiting) reject(error);
    }
  }

  #one({ ask: { ask, ...body }, signal }: Waiting): Promise<unknown> {
    return this.#server.ask<unknown>(`/${ask}`, body, answerSchemas[ask], signal === undefined ? {} : { signal });
  }

  async #deliverTogether(waiting: readonly Waiting[]): Promise<void> {
    const asks = waiting.map(({ ask }) => ask);
    const { answers } = await this.#server.ask("/batch", { asks }, Answers);
    if (answers.length !== asks.length) {
      throw new Error(`the remote server answers ${answers.length} of the ${asks.length} asks of a batch`);
    }
    waiting.forEach((one, i) => {
      settle(one, answers[i]);
    });
  }
}

function settle({ ask: { ask }, resolve, reject }: Waiting, given: unknown): void {
  const failed = Failed.safeParse(given);
  const answer = answerSchemas[ask].safeParse(given);
  if (failed.success) reject(new Refused(`the remote server: ${failed.data.error}`));
  else if (answer.success) resolve(answer.data);
  else reject(new Refused(`the remote server answers ${ask} with something else: ${answer.error.issues[0]!.message}`));
}
