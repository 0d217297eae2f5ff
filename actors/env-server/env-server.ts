/**
 * Env server: holds open episodes and plays turns on request. Knows no tokens, no model and no particular env.
 *
 * - Every ask gets exactly one answer: `env.opened`, `env.stepped` or `failed`. An error of an env, and no answer of it in
 *   `answerMsMax`, is `failed` with code "env", never a turn with reward 0; its episode is over.
 * - A step is played once: asked again (after a lost connection) it gets the same answer again, also while it is being
 *   played. Any other turn than the next is refused, and changes nothing.
 * - Episodes belong to the actor that opened them. Opening one again starts it anew.
 * - Every episode that was opened is closed once, however it ended; also one that opens after nobody waits for it any more.
 * - At most `episodesMax` are open; the next open fails at once: the sampler should wait, not this server's memory. One
 *   that nobody stepped for `idleMs` is forgotten. Of ended ones, as many are kept, for their last answer only.
 * - An env that answers at once is answered for at once; nobody waits for another's env.
 */
import type { z } from "zod";
import type { Env } from "../../envs/env.ts";
import type { Clock } from "../clock.ts";
import { describeError, EpisodeError, within } from "../errors.ts";
import type { OpenEpisode } from "../play/envs-of-run.ts";
import { type Answer, type AnswerTo, type Ask, type EnvAsk, type Messages, schemas, type Tell } from "../protocol.ts";
import type { Hello, HostHandler } from "../transport/handshake.ts";
import type { Peer } from "../transport/transport.ts";

export type EnvAnswer = Messages["env.opened" | "env.stepped" | "failed"];

/** What is here now, or has to be waited for. */
type Soon<T> = T | Promise<T>;

export interface EnvServerOptions {
  /** @throws {Error} if there is no such tag. */
  readonly find: (tag: string) => OpenEpisode;
  /** Open episodes allowed at once. */
  readonly episodesMax: number;
  /** An episode that nobody stepped for so long is forgotten. */
  readonly idleMs: number;
  /** An env that has to be waited for has failed after so long. */
  readonly answerMsMax: number;
  readonly clock: Clock;
  /** Told what went wrong when an episode was closed: nobody asked, so nobody is answered. */
  readonly warn: (text: string) => void;
}

/** The turn played last, and what it gave; a promise while it is being played. */
interface Played {
  readonly turn: number;
  readonly reply: string;
  readonly answer: Soon<EnvAnswer>;
}

interface Episode {
  /** What it is, for messages: "SimpleSokoban#123/7". */
  readonly label: string;
  /** null while it is being opened. */
  env: Env | null;
  last: Played | null;
  touchedAtMs: number;
}

/** Time for envs to close when the server stops: less than a supervisor gives an actor that is to leave. */
const STOP_MS = 2000;

export class EnvServer implements HostHandler {
  readonly #options: EnvServerOptions;
  /** By owner and episode. */
  readonly #open = new Map<string, Episode>();
  /** Last answers of ended episodes, oldest first. */
  readonly #ended = new Map<string, Played>();
  readonly #closing = new Set<Promise<void>>();
  #cancelReaping = () => {};

  constructor(options: EnvServerOptions) {
    this.#options = options;
    this.#reapLater();
  }

  /** Episodes open now. */
  get openCount(): number {
    return this.#open.size;
  }

  asked(_: Peer, ask: Exclude<Ask, Hello>, who: Hello): Soon<Answer> {
    if (ask.type === "env.open" || ask.type === "env.step") return this.answer(who.actor, ask);
    return { type: "failed", code: "protocol", detail: `an env server takes env.open and env.step, not ${ask.type}` };
  }

  told(_: Peer, message: Tell, who: Hello): void {
    if (message.type === "env.close") this.forget(who.actor, message.episode);
  }

  /** Never throws nor rejects for what an env did. @param owner the actor that asks. */
  answer<A extends EnvAsk>(owner: string, ask: A): Soon<AnswerTo<A>> {
    // Each kind of ask gets its own kind of answer; the compiler cannot follow that through a generic.
    return this.#answer(keyOf(owner, ask.episode), ask) as Soon<AnswerTo<A>>;
  }

  #answer(key: string, ask: EnvAsk): Soon<EnvAnswer> {
    try {
      const answer = this.#play(key, ask);
      return answer instanceof Promise ? answer.catch(failure) : answer;
    } catch (error) {
      return failure(error);
    }
  }

  forget(owner: string, episode: string): void {
    const key = keyOf(owner, episode);
    this.#drop(key);
    this.#ended.delete(key);
  }

  /** Forget everything. Resolves when every env is closed; those that take longer than `STOP_MS` are left to themselves. */
  async stop(): Promise<void> {
    this.#cancelReaping();
    for (const key of [...this.#open.keys()]) this.#drop(key);
    this.#ended.clear();
    if (this.#closing.size === 0) return;
    await new Promise<void>((resolve) => {
      const cancel = this.#options.clock.after(STOP_MS, () => {
        this.#options.warn(`${this.#closing.size} episodes were not closed in ${STOP_MS} ms`);
        resolve();
      });
      void Promise.all(this.#closing).then(() => {
        cancel();
        resolve();
      });
    });
  }

  #play(key: string, ask: EnvAsk): Soon<EnvAnswer> {
    switch (ask.type) {
      case "env.open":
        return this.#start(key, ask);
      case "env.step":
        return this.#step(key, ask);
      default:
        return ask satisfies never;
    }
  }

  #start(key: string, { episode, env: tag, layoutSeed, dynamicsSeed }: Messages["env.open"]): Soon<EnvAnswer> {
    const label = `${tag}#${layoutSeed}/${dynamicsSeed}`;
    const { episodesMax, find } = this.#options;
    this.#drop(key);
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
    const opening = within("env", `${label} open`, () => make({ layout: layoutSeed, dynamics: dynamicsSeed }));
    const seat: Episode = { label, env: null, last: null, touchedAtMs: 0 };
    this.#open.set(key, seat);
    return opening instanceof Promise
      ? this.#seatLater(key, seat, episode, opening)
      : this.#seat(key, seat, episode, opening);
  }

  async #seatLater(key: string, seat: Episode, episode: string, opening: Promise<Env>): Promise<EnvAnswer> {
    let env: Env;
    try {
      env = await this.#inTime(`${seat.label} open`, opening);
    } catch (error) {
      this.#forsake(key, seat);
      // It may still open, long after anybody wants it.
      void opening.then(
        (late) => this.#close(seat.label, late),
        () => {},
      );
      throw error;
    }
    if (this.#open.get(key) === seat) return this.#seat(key, seat, episode, env);
    this.#close(seat.label, env);
    throw forgotten(seat.label);
  }

  #seat(key: string, seat: Episode, episode: string, env: Env): EnvAnswer {
    seat.env = env;
    seat.touchedAtMs = this.#options.clock.now();
    try {
      return within("env", `${seat.label} open`, () => {
        const { opening: observation, actionsLeft } = env;
        return checked(schemas["env.opened"], { type: "env.opened", episode, observation, actionsLeft });
      });
    } catch (error) {
      this.#forsake(key, seat);
      throw error;
    }
  }

  #step(key: string, ask: Messages["env.step"]): Soon<EnvAnswer> {
    const episode = this.#open.get(key);
    if (episode === undefined) return this.#afterEnd(key, ask);
    const { last, env } = episode;
    if (env === null) throw new EpisodeError(`episode ${ask.episode} is still being opened`, "protocol");
    if (last?.turn === ask.turn) return repeated(last, ask);
    const next = last === null ? 0 : last.turn + 1;
    if (ask.turn !== next || last?.answer instanceof Promise) {
      const at = last?.answer instanceof Promise ? `still plays turn ${last.turn}` : `is at turn ${next}`;
      throw new EpisodeError(`episode ${ask.episode} ${at}; cannot play turn ${ask.turn}`, "protocol");
    }
    const answer = this.#turn(env, episode.label, ask);
    const settled = (given: EnvAnswer) =>
      this.#settle(key, episode, { turn: ask.turn, reply: ask.reply, answer: given });
    if (!(answer instanceof Promise)) return settled(answer);
    const later = answer.then(settled);
    episode.last = { turn: ask.turn, reply: ask.reply, answer: later };
    return later;
  }

  #settle(key: string, episode: Episode, played: Played & { readonly answer: EnvAnswer }): EnvAnswer {
    if (this.#open.get(key) !== episode) return failure(forgotten(episode.label));
    if (played.answer.type === "env.stepped" && played.answer.ending === null) {
      episode.last = played;
      episode.touchedAtMs = this.#options.clock.now();
    } else {
      this.#drop(key);
      this.#end(key, played);
    }
    return played.answer;
  }

  #afterEnd(key: string, ask: Messages["env.step"]): Soon<EnvAnswer> {
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

  /** An env that throws, is late, or gives what is no turn (a reward that is not a number), has failed. */
  #turn(env: Env, label: string, { episode, turn, reply }: Messages["env.step"]): Soon<EnvAnswer> {
    const what = `${label} turn ${turn}`;
    const answer = (given: object): EnvAnswer =>
      within("env", what, () => checked(schemas["env.stepped"], { type: "env.stepped", episode, turn, ...given }));
    try {
      const given = within("env", what, () => env.step(reply));
      return given instanceof Promise ? this.#inTime(what, given).then(answer).catch(failure) : answer(given);
    } catch (error) {
      return failure(error);
    }
  }

  /** What has to be waited for, or an error of the env when its time is over. */
  #inTime<T>(what: string, promise: Promise<T>): Promise<T> {
    const { clock, answerMsMax } = this.#options;
    return new Promise((resolve, reject) => {
      const cancel = clock.after(answerMsMax, () => {
        reject(new EpisodeError(`${what}: no answer in ${answerMsMax} ms (envServer.answerMsMax)`, "env"));
      });
      void promise.then(resolve, reject).finally(cancel);
    });
  }

  #end(key: string, played: Played): void {
    this.#ended.set(key, played);
    if (this.#ended.size <= this.#options.episodesMax) return;
    for (const oldest of this.#ended.keys()) {
      this.#ended.delete(oldest);
      return;
    }
  }

  #drop(key: string): void {
    const episode = this.#open.get(key);
    if (episode !== undefined) this.#forsake(key, episode);
  }

  /** Close an episode, and give its place to another unless one took it already. */
  #forsake(key: string, episode: Episode): void {
    if (this.#open.get(key) === episode) this.#open.delete(key);
    if (episode.env !== null) this.#close(episode.label, episode.env);
  }

  #close(label: string, env: Env): void {
    const { warn } = this.#options;
    const said = (error: unknown) => warn(`${label} could not be closed: ${describeError(error)}`);
    try {
      const closed = env.close();
      if (!(closed instanceof Promise)) return;
      const closing = this.#inTime(`${label} close`, closed)
        .catch(said)
        .finally(() => this.#closing.delete(closing));
      this.#closing.add(closing);
    } catch (error) {
      said(error);
    }
  }

  #reapLater(): void {
    this.#cancelReaping = this.#options.clock.after(this.#options.idleMs / 4, () => {
      this.#reap();
      this.#reapLater();
    });
  }

  /** An episode whose env is busy is not idle: that has a limit of its own. */
  #reap(): void {
    const { clock, idleMs } = this.#options;
    const now = clock.now();
    for (const [key, episode] of this.#open) {
      const busy = episode.env === null || episode.last?.answer instanceof Promise;
      if (!busy && now - episode.touchedAtMs > idleMs) this.#forsake(key, episode);
    }
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

function repeated(last: Played, { episode, turn, reply }: Messages["env.step"]): Soon<EnvAnswer> {
  if (last.reply === reply) return last.answer;
  throw new EpisodeError(`episode ${episode} turn ${turn} was already played with another reply`, "protocol");
}

const forgotten = (label: string) => new EpisodeError(`${label} was forgotten before its env answered`, "closed");

/** The answer for what went wrong within one episode. @throws what is a bug of ours */
function failure(error: unknown): Messages["failed"] {
  if (!(error instanceof EpisodeError)) throw error;
  return { type: "failed", code: error.boundary, detail: error.message };
}
