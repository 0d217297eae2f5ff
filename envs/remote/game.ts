/** A game that is played by a remote env server; see protocol.ts. Knows no particular game. */
import type { Effect, OutsideGame, Seeds } from "../env.ts";
import type { RemoteClient } from "./client.ts";
import type { AnswerOf } from "./protocol.ts";

export interface RemoteOpening {
  readonly env: string | null;
  readonly seeds: Seeds;
  readonly expert: boolean;
  readonly options: Readonly<Record<string, unknown>>;
}

export class RemoteGame implements OutsideGame {
  readonly kind = "outside";
  readonly #client: RemoteClient;
  readonly #opening: RemoteOpening;
  /** Only has to be different from all others, also from those of another attempt. */
  readonly #episode = crypto.randomUUID();
  readonly #leaving = new AbortController();
  #actions: readonly string[] | null = null;
  #seen: Pick<AnswerOf<"step">, "observation" | "admissible" | "expert"> | null = null;
  #steps = 0;
  /** The server may hold the episode. */
  #asked = false;
  #closed: Promise<void> | null = null;

  constructor(client: RemoteClient, opening: RemoteOpening) {
    this.#client = client;
    this.#opening = opening;
  }

  async start(): Promise<void> {
    const { env, seeds, expert, options } = this.#opening;
    await this.#client.ready();
    this.#asked = true;
    try {
      const opened = await this.#client.ask(
        {
          ask: "open",
          episode: this.#episode,
          env,
          expert,
          options: { ...options },
          layoutSeed: seeds.layout,
          dynamicsSeed: seeds.dynamics,
        },
        this.#leaving.signal,
      );
      this.#actions = opened.actions;
      this.#seen = opened;
    } catch (error) {
      // The answer may be lost and the episode open. Nobody waits for this; if it is lost too, the server forgets the episode.
      void this.close().catch(() => {});
      throw error;
    }
  }

  get actions(): readonly string[] | null {
    return this.#actions;
  }

  /** Actions that make sense now; null if they cannot be listed. */
  get admissible(): readonly string[] | null {
    return this.#now().admissible ?? this.#actions;
  }

  /** What the server's own player would do now; null if there is none, or it was not asked for. */
  get expert(): string | null {
    return this.#now().expert;
  }

  render(): string {
    return this.#now().observation;
  }

  async act(action: string): Promise<Effect> {
    const ask = { ask: "step", episode: this.#episode, step: this.#steps, action } as const;
    const stepped = await this.#client.ask(ask, this.#leaving.signal);
    this.#steps++;
    this.#seen = stepped;
    const { reward, done, effective, valid, success, extra } = stepped;
    return { reward, done, effective, valid, success, extra };
  }

  close(): Promise<void> {
    this.#leaving.abort(new Error("the episode was closed"));
    if (!this.#asked) return Promise.resolve();
    this.#closed ??= this.#client.ask({ ask: "close", episode: this.#episode }).then(() => {});
    return this.#closed;
  }

  #now() {
    if (this.#seen === null) throw new Error("this game has not started yet");
    return this.#seen;
  }
}
