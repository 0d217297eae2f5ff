/**
 * The client of one remote env server: sends at most `requestsMax` requests at once. Knows no game.
 *
 * - Before the first episode the client checks that the server speaks the protocol of protocol.ts and has the env.
 */
import { JsonServer, limiter, Refused, type ServerOptions } from "../outside/json-server.ts";
import { type AnswerOf, answerSchemas, Health, type RemoteAsk } from "./protocol.ts";

interface ClientOptions extends ServerOptions {
  readonly requestsMax: number;
  /** The env that episodes open; null for the first env of the server. */
  readonly env: string | null;
}

export class RemoteClient {
  readonly #server: JsonServer;
  readonly #env: string | null;
  readonly #limit: ReturnType<typeof limiter>;
  #ready: Promise<void> | null = null;

  constructor(options: ClientOptions) {
    this.#server = new JsonServer(options);
    this.#env = options.env;
    this.#limit = limiter(options.requestsMax);
  }

  /** @throws {Error} if no server of this protocol answers. @throws {Refused} if the server lacks the env. */
  ready(): Promise<void> {
    this.#ready ??= this.#checkHealth().catch((error) => {
      this.#ready = null;
      throw error;
    });
    return this.#ready;
  }

  /** @throws {Refused} if the server refuses. @throws {Error} if the server gives no answer. Throws the reason of an aborted `signal`. */
  ask<A extends RemoteAsk>({ ask, ...body }: A, signal?: AbortSignal): Promise<AnswerOf<A["ask"]>> {
    return this.#limit(async () => {
      signal?.throwIfAborted();
      // The schema of this ask checks the answer.
      return (await this.#server.ask<unknown>(`/${ask}`, body, answerSchemas[ask], signal)) as AnswerOf<A["ask"]>;
    });
  }

  async #checkHealth(): Promise<void> {
    const { envs } = await this.#server.ask("/health", null, Health);
    if (this.#env !== null && !envs.includes(this.#env)) {
      const name = JSON.stringify(this.#env);
      throw new Refused(`the remote server has no env ${name}; it has ${envs.join(", ")} (options.env)`);
    }
  }
}
