/**
 * Env server: holds open episodes and plays turns on request. Knows no tokens, no model and no particular env.
 *
 * - Every ask gets exactly one answer: `env.opened`, `env.stepped` or `failed`. An error of an env is `failed` with code
 *   "env", never a turn with reward 0; its episode is over.
 * - A step is played once: asked again (after a lost connection) it gets the same answer again. Any other turn than the
 *   next is refused, and changes nothing.
 * - Episodes belong to the actor that opened them. Opening one again starts it anew.
 * - At most `episodesMax` are open; the next open fails at once: the sampler should wait, not this server's memory. One
 *   that nobody stepped for `idleMs` is forgotten. Of ended ones, as many are kept, for their last answer only.
 */
import type { z } from "zod";
import type { Env, Seeds } from "../envs/env.ts";
import type { Clock } from "./clock.ts";
import { EpisodeError, within } from "./errors.ts";
import { type Answer, type Ask, type Messages, schemas, type Tell } from "./protocol.ts";
import type { Hello, HostHandler } from "./transport/handshake.ts";
import type { Peer } from "./transport/transport.ts";

export type EnvAsk = Messages["env.open" | "env.step"];
export type EnvAnswer = Messages["env.opened" | "env.stepped" | "failed"];

/** Makes the episodes of one tag. */
export type OpenEpisode = (seeds: Seeds) => Env;

export interface EnvServerOptions {
  /** @throws {Error} if there is no such tag. */
  readonly find: (tag: string) => OpenEpisode;
  /** Open episodes allowed at once. */
  readonly episodesMax: number;
  /** An episode that nobody stepped for so long is forgotten. */
  readonly idleMs: number;
  readonly clock: Clock;
}

/** The turn played last, and what it gave. */
interface Played {
  readonly turn: number;
  readonly reply: string;
  readonly answer: EnvAnswer;
}

interface Episode {
  readonly env: Env;
  /** What it is, for messages: "SimpleSokoban#123/7". */
  readonly label: string;
  last: Played | null;
  touchedAtMs: number;
}

export class EnvServer implements HostHandler {
  readonly #options: EnvServerOptions;
  /** By owner and episode. */
  readonly #open = new Map<string, Episode>();
  /** Last answers of ended episodes, oldest first. */
  readonly #ended = new Map<string, Played>();
  #cancelReaping = () => {};

  constructor(options: EnvServerOptions) {
    this.#options = options;
    this.#reapLater();
  }

  /** Episodes open now. */
  get openCount(): number {
    return this.#open.size;
  }

  asked(_: Peer, ask: Exclude<Ask, Hello>, who: Hello): Answer {
    if (ask.type === "env.open" || ask.type === "env.step") return this.answer(who.actor, ask);
    return { type: "failed", code: "protocol", detail: `an env server takes env.open and env.step, not ${ask.type}` };
  }

  told(_: Peer, message: Tell, who: Hello): void {
    if (message.type === "env.close") this.forget(who.actor, message.episode);
  }

  /** @param owner the actor that asks. */
  answer(owner: string, ask: EnvAsk): EnvAnswer {
    try {
      return this.#play(keyOf(owner, ask.episode), ask);
    } catch (error) {
      if (!(error instanceof EpisodeError)) throw error;
      return { type: "failed", code: error.boundary, detail: error.message };
    }
  }

  forget(owner: string, episode: string): void {
    const key = keyOf(owner, episode);
    this.#open.delete(key);
    this.#ended.delete(key);
  }

  /** Forget everything. */
  stop(): void {
    this.#cancelReaping();
    this.#open.clear();
    this.#ended.clear();
  }

  #play(key: string, ask: EnvAsk): EnvAnswer {
    switch (ask.type) {
      case "env.open":
        return this.#start(key, ask);
      case "env.step":
        return this.#step(key, ask);
      default:
        return ask satisfies never;
    }
  }

  #start(key: string, { episode, env: tag, layoutSeed, dynamicsSeed }: Messages["env.open"]): EnvAnswer {
    const label = `${tag}#${layoutSeed}/${dynamicsSeed}`;
    const { episodesMax, clock, find } = this.#options;
    this.#open.delete(key);
    this.#ended.delete(key);
    if (this.#open.size >= episodesMax) this.#reap();
    if (this.#open.size >= episodesMax) {
      throw new EpisodeError(
        `cannot open ${label}: ${this.#open.size} of ${episodesMax} episodes are open. ` +
          "Wait for one to finish, or raise envServer.episodesMax.",
        "capacity",
      );
    }
    const make = within("protocol", `cannot open ${label}`, () => find(tag));
    return within("env", `${label} open`, () => {
      const env = make({ layout: layoutSeed, dynamics: dynamicsSeed });
      const { opening: observation, actionsLeft } = env;
      const answer = checked(schemas["env.opened"], { type: "env.opened", episode, observation, actionsLeft });
      this.#open.set(key, { env, label, last: null, touchedAtMs: clock.now() });
      return answer;
    });
  }

  #step(key: string, ask: Messages["env.step"]): EnvAnswer {
    const episode = this.#open.get(key);
    if (episode === undefined) return this.#afterEnd(key, ask);
    const { last } = episode;
    if (last?.turn === ask.turn) return repeated(last, ask);
    const next = last === null ? 0 : last.turn + 1;
    if (ask.turn !== next) {
      throw new EpisodeError(`episode ${ask.episode} is at turn ${next}; cannot play turn ${ask.turn}`, "protocol");
    }
    const answer = this.#turn(episode, ask);
    const played = { turn: ask.turn, reply: ask.reply, answer };
    if (answer.type === "env.stepped" && answer.ending === null) {
      episode.last = played;
      episode.touchedAtMs = this.#options.clock.now();
    } else {
      this.#open.delete(key);
      this.#end(key, played);
    }
    return answer;
  }

  #afterEnd(key: string, ask: Messages["env.step"]): EnvAnswer {
    const last = this.#ended.get(key);
    if (last?.turn === ask.turn) return repeated(last, ask);
    throw last === undefined
      ? new EpisodeError(
          `episode ${ask.episode} is not open here: it was never opened, or forgotten. Open it again.`,
          "closed",
        )
      : new EpisodeError(
          `episode ${ask.episode} ended with turn ${last.turn}; cannot play turn ${ask.turn}`,
          "protocol",
        );
  }

  /** An env that throws, or gives what is no turn (a reward that is not a number), has failed. */
  #turn({ env, label }: Episode, { episode, turn, reply }: Messages["env.step"]): EnvAnswer {
    try {
      return within("env", `${label} turn ${turn}`, () =>
        checked(schemas["env.stepped"], { type: "env.stepped", episode, turn, ...env.step(reply) }),
      );
    } catch (error) {
      if (!(error instanceof EpisodeError)) throw error;
      return { type: "failed", code: error.boundary, detail: error.message };
    }
  }

  #end(key: string, played: Played): void {
    this.#ended.set(key, played);
    if (this.#ended.size <= this.#options.episodesMax) return;
    for (const oldest of this.#ended.keys()) {
      this.#ended.delete(oldest);
      return;
    }
  }

  #reapLater(): void {
    this.#cancelReaping = this.#options.clock.after(this.#options.idleMs / 4, () => {
      this.#reap();
      this.#reapLater();
    });
  }

  #reap(): void {
    const { clock, idleMs } = this.#options;
    const now = clock.now();
    for (const [key, { touchedAtMs }] of this.#open) if (now - touchedAtMs > idleMs) this.#open.delete(key);
  }
}

/** What an env author's code gave, if it is a message that can be sent. */
function checked<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new Error(parsed.error.issues.map(({ path, message }) => `${path.join(".")}: ${message}`).join("; "));
}

/** Two owners may hold episodes of one id: an expired ticket is issued again while its first player still plays. */
const keyOf = (owner: string, episode: string): string => JSON.stringify([owner, episode]);

function repeated(last: Played, { episode, turn, reply }: Messages["env.step"]): EnvAnswer {
  if (last.reply === reply) return last.answer;
  throw new EpisodeError(`episode ${episode} turn ${turn} was already played with another reply`, "protocol");
}
