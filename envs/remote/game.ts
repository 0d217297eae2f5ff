/** A game on a remote env server; see protocol.ts. Knows no particular game. */
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
  /** The episode's id. Each further attempt at an episode has a new id. */
  readonly #episode = crypto.randomUUID();
  readonly #closing = new AbortController();
  #actions: readonly string[] | null = null;
  #state: Pick<AnswerOf<"step">, "observation" | "admissible" | "expert"> | null = null;
  #steps = 0;
  /** True if the server may hold the episode. */
  #mayBeOpen = false;
  #closed: Promise<void> | null = null;

  constructor(client: RemoteClient, opening: RemoteOpening) {
    this.#client = client;
    this.#opening = opening;
  }

  async start(): Promise<void> {
    const { env, seeds, expert, options } = this.#opening;
    await this.#client.ready();
    this.#mayBeOpen = true;
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
        this.#closing.signal,
      );
      this.#actions = opened.actions;
      this.#state = opened;
    } catch (error) {
      // If only the answer was lost, the server holds the episode, so close it. If this close is lost too, the server drops the idle episode later.
      void this.close().catch(() => {});
      throw error;
    }
  }

  get actions(): readonly string[] | null {
    return this.#actions;
  }

  /** The actions that the server lists for the current state; null if the server lists none. */
  get admissible(): readonly string[] | null {
    return this.#now().admissible ?? this.#actions;
  }

  /** The action of the server's expert; null if the server has no expert, or if the game did not request `expert`. */
  get expert(): string | null {
    return this.#now().expert;
  }

  render(): string {
    return this.#now().observation;
  }

  async act(action: string): Promise<Effect> {
    const ask = { ask: "step", episode: this.#episode, step: this.#steps, action } as const;
    const stepped = await this.#client.ask(ask, this.#closing.signal);
    this.#steps++;
    this.#state = stepped;
    const { reward, done, effective, valid, success, extra } = stepped;
    return { reward, done, effective, valid, success, extra };
  }

  close(): Promise<void> {
    this.#closing.abort(new Error("the episode was closed"));
    if (!this.#mayBeOpen) return Promise.resolve();
    this.#closed ??= this.#client.ask({ ask: "close", episode: this.#episode }).then(() => {});
    return this.#closed;
  }

  #now() {
    if (this.#state === null) throw new Error("this game has not started yet");
    return this.#state;
  }
}
