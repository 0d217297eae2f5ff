/**
 * The env server holds open episodes and plays turns on request. It handles text and no tokens, and is the same for every env.
 *
 * - Every ask gets exactly one answer: `env.opened`, `env.stepped` or `failed`. If an env throws, or does not answer within `answerMsMax`,
 *   the episode ends. The answer is then `failed` with code "env", never a turn with reward 0.
 * - A number that float32 cannot hold, or a text that is too long, is also a failure of the env: see answer-limits.ts.
 * - The server plays a turn once. If a sampler repeats the ask for the last turn, for example after a lost message, the sampler gets the same
 *   answer. If the env still plays the turn, the repeated ask waits for this answer. The server refuses an ask for a turn that is neither the
 *   last nor the next. A refused ask for a turn changes nothing.
 * - An episode belongs to the actor that opened it. If this actor opens the episode again, the episode starts from the beginning.
 * - The server closes every opened env exactly once, after any end of the episode. It also closes an env that opened after `answerMsMax`.
 * - At most `episodesMax` episodes are open. A further `env.open` fails at once, so that memory stays bounded. The server closes an episode
 *   that has had no step for `idleMs`. For repeated asks the server keeps the last answers of ended episodes: at most `episodesMax` answers,
 *   with at most `ENDED_CHARS_MAX` characters in total.
 * - The server sends each answer as soon as the episode's env has answered: no episode waits for the env of another episode.
 */
import type { z } from "zod";
import type { Env } from "../../envs/env.ts";
import { type Clock, settlesIn } from "../clock.ts";
import { describeError, EpisodeError, schemaFaults, within } from "../errors.ts";
import type { OpenEpisode } from "../play/envs-of-run.ts";
import { type Answer, type AnswerTo, type Ask, type EnvAsk, type Messages, schemas, type Tell } from "../protocol.ts";
import type { Hello, HostHandler } from "../transport/handshake.ts";
import { failed, notTaken, refused } from "../transport/refusals.ts";
import type { Peer } from "../transport/transport.ts";
import { AnswerLimits } from "./answer-limits.ts";

export type EnvAnswer = Messages["env.opened" | "env.stepped" | "failed"];

type MaybePromise<T> = T | Promise<T>;

export interface EnvServerOptions {
  /** Finds the function that opens episodes of an env. @throws {Error} if the run plays no env of this name */
  readonly find: (name: string) => OpenEpisode;
  readonly episodesMax: number;
  /** The server closes an episode that has had no step for this time. */
  readonly idleMs: number;
  readonly answerMsMax: number;
  readonly clock: Clock;
  /** The server calls this when an env fails to close. No ask waits for the close, so no answer can report the failure. */
  readonly warn: (text: string) => void;
}

/** The last turn of an episode. `answer` is a promise while the env plays the turn. */
interface PlayedTurn {
  readonly turn: number;
  readonly reply: string;
  readonly answer: MaybePromise<EnvAnswer>;
}
/** The last turn of an ended episode. */
type LastTurn = PlayedTurn & { readonly answer: EnvAnswer };

interface Episode {
  /** Owner and id: see `keyOf`. */
  readonly key: string;
  readonly id: string;
  /** The episode's name in messages: "SimpleSokoban#123/7". */
  readonly label: string;
  /** null while the env is opening. */
  env: Env | null;
  readonly limits: AnswerLimits;
  last: PlayedTurn | null;
  touchedAtMs: number;
}

/** Maximum length of the text in an answer `failed`. An env's error may have a message of any length. */
const DETAIL_CHARS_MAX = 4096;
/** Maximum total number of characters of all kept last answers. One answer may have a million characters. */
const ENDED_CHARS_MAX = 2 ** 26;
/** How long a stopping server waits for envs to close: less than the default supervisor.stopGraceMs. */
const STOP_MS = 2000;

export class EnvServer implements HostHandler {
  readonly #options: EnvServerOptions;
  /** Open episodes by `keyOf`. */
  readonly #open = new Map<string, Episode>();
  /** Last turns of ended episodes by `keyOf`, oldest first. */
  readonly #ended = new Map<string, LastTurn>();
  #endedChars = 0;
  /** Resolve when an env has opened or failed to open. */
  readonly #opening = new Set<Promise<void>>();
  readonly #closing = new Set<Promise<void>>();
  #cancelIdleCheck = () => {};

  constructor(options: EnvServerOptions) {
    this.#options = options;
    this.#checkIdleLater();
  }

  get openCount(): number {
    return this.#open.size;
  }

  asked(_: Peer, ask: Exclude<Ask, Hello>, who: Hello): MaybePromise<Answer> {
    if (ask.type === "env.open" || ask.type === "env.step") return this.answer(who.actor, ask);
    return refused("to an env server from a sampler", ask.type);
  }

  told(_: Peer, message: Tell, who: Hello): void {
    if (message.type !== "env.close") throw notTaken("to an env server from a sampler", message.type);
    this.forget(who.actor, message.episode);
  }

  /** If the env throws, the answer is `failed`. @param owner  the actor that asks */
  answer<A extends EnvAsk>(owner: string, ask: A): MaybePromise<AnswerTo<A>>;
  answer(owner: string, ask: EnvAsk): MaybePromise<EnvAnswer> {
    const key = keyOf(owner, ask.episode);
    try {
      const answer = ask.type === "env.open" ? this.#start(key, ask) : this.#step(key, ask);
      return answer instanceof Promise ? answer.catch(failure) : answer;
    } catch (error) {
      return failure(error);
    }
  }

  /** Closes an episode, and forgets the episode's last answer. */
  forget(owner: string, episode: string): void {
    const key = keyOf(owner, episode);
    this.#drop(key);
    this.#forgetLast(key);
  }

  /** Closes every episode. Resolves when all envs have closed, or after `STOP_MS`. */
  async stop(): Promise<void> {
    this.#cancelIdleCheck();
    for (const key of [...this.#open.keys()]) this.#drop(key);
    for (const key of [...this.#ended.keys()]) this.#forgetLast(key);
    const open = () => this.#opening.size + this.#closing.size;
    if (open() === 0) return;
    const { clock, warn } = this.#options;
    // An env that opens now is closed at once, because its episode is gone.
    const closed = Promise.all(this.#opening).then(() => Promise.all(this.#closing));
    if (await settlesIn(clock, STOP_MS, closed)) return;
    warn(`${open()} episodes were not closed in ${STOP_MS} ms`);
  }

  #start(key: string, ask: Messages["env.open"]): MaybePromise<EnvAnswer> {
    const { episodesMax, find } = this.#options;
    const { episode: id, env: tag, layoutSeed, dynamicsSeed } = ask;
    const label = `${tag}#${layoutSeed}/${dynamicsSeed}`;
    this.#drop(key);
    this.#forgetLast(key);
    if (this.#open.size >= episodesMax) this.#closeIdle();
    if (this.#open.size >= episodesMax) {
      throw new EpisodeError(
        `cannot open ${label}: ${this.#open.size} of ${episodesMax} episodes are open. ` +
          "Wait for one to finish, or raise envServer.episodesMax.",
        "capacity",
      );
    }
    const make = within("protocol", `cannot open ${label}`, () => find(tag));
    const opening = within("env", `${label} open`, () => make({ layout: layoutSeed, dynamics: dynamicsSeed }, ask));
    const limits = new AnswerLimits();
    const episode: Episode = { key, id, label, env: null, limits, last: null, touchedAtMs: 0 };
    this.#open.set(key, episode);
    if (!(opening instanceof Promise)) return this.#opened(episode, opening);
    const giveUp = (error: unknown) => {
      this.#remove(episode);
      // The env may still open after its deadline.
      void opening.then(
        (late) => this.#close(label, late),
        () => {},
      );
      throw error;
    };
    const answer = this.#inTime(`${label} open`, opening).then((env) => this.#opened(episode, env), giveUp);
    const forget = () => void this.#opening.delete(opened);
    const opened = answer.then(forget, forget);
    this.#opening.add(opened);
    return answer;
  }

  #opened(episode: Episode, env: Env): EnvAnswer {
    const { key, id, label } = episode;
    if (this.#open.get(key) !== episode) {
      this.#close(label, env);
      throw closedEarly(label);
    }
    episode.env = env;
    episode.touchedAtMs = this.#options.clock.now();
    try {
      return within("env", `${label} open`, () => {
        const { opening: observation, actionsLeft } = env;
        const answer = { type: "env.opened", episode: id, observation, actionsLeft };
        const opened = checked(schemas["env.opened"], answer);
        episode.limits.opened(opened);
        return opened;
      });
    } catch (error) {
      this.#remove(episode);
      throw error;
    }
  }

  #step(key: string, ask: Messages["env.step"]): MaybePromise<EnvAnswer> {
    const { episode: id, turn, reply } = ask;
    const episode = this.#open.get(key);
    const last = episode === undefined ? this.#ended.get(key) : episode.last;
    if (last?.turn === turn) {
      if (last.reply === reply) return last.answer;
      throw new EpisodeError(`episode ${id} turn ${turn} was already played with another reply`, "protocol");
    }
    const refusal = (state: string) => new EpisodeError(`episode ${id} ${state}; cannot play turn ${turn}`, "protocol");
    if (episode === undefined) {
      if (last) throw refusal(`ended with turn ${last.turn}`);
      const detail = `episode ${id} is not open here: it was never opened, or closed as idle. Open it again.`;
      throw new EpisodeError(detail, "closed");
    }
    const { env } = episode;
    if (env === null) throw new EpisodeError(`episode ${id} is still being opened`, "protocol");
    if (last?.answer instanceof Promise) throw refusal(`still plays turn ${last.turn}`);
    const next = last ? last.turn + 1 : 0;
    if (turn !== next) throw refusal(`is at turn ${next}`);
    const answer = this.#turn(env, episode, ask);
    const settled = (result: EnvAnswer) => this.#settle(episode, { turn, reply, answer: result });
    if (!(answer instanceof Promise)) return settled(answer);
    const later = answer.then(settled);
    episode.last = { turn, reply, answer: later };
    return later;
  }

  #settle(episode: Episode, played: LastTurn): EnvAnswer {
    const { key, label } = episode;
    if (this.#open.get(key) !== episode) return failure(closedEarly(label));
    if (played.answer.type === "env.stepped" && played.answer.ending === null) {
      episode.last = played;
      episode.touchedAtMs = this.#options.clock.now();
      return played.answer;
    }
    this.#remove(episode);
    this.#ended.set(key, played);
    this.#endedChars += charsOf(played);
    while (this.#ended.size > this.#options.episodesMax || this.#endedChars > ENDED_CHARS_MAX) {
      this.#forgetLast(this.#ended.keys().next().value!);
    }
    return played.answer;
  }

  #forgetLast(key: string): void {
    const last = this.#ended.get(key);
    if (last !== undefined) this.#endedChars -= charsOf(last);
    this.#ended.delete(key);
  }

  /** Plays a turn. The answer is `failed` if the env throws, is late, or returns no valid turn (for example, a reward that is no number). */
  #turn(env: Env, { id, label, limits }: Episode, { turn, reply }: Messages["env.step"]): MaybePromise<EnvAnswer> {
    const what = `${label} turn ${turn}`;
    const answer = (played: object): EnvAnswer =>
      within("env", what, () => {
        const stepped = checked(schemas["env.stepped"], { type: "env.stepped", episode: id, turn, ...played });
        limits.stepped(stepped);
        return stepped;
      });
    try {
      const played = within("env", what, () => env.step(reply));
      return played instanceof Promise ? this.#inTime(what, played).then(answer).catch(failure) : answer(played);
    } catch (error) {
      return failure(error);
    }
  }

  /** The promise's result. @throws {EpisodeError} if the promise has not settled after `answerMsMax` */
  async #inTime<T>(what: string, promise: Promise<T>): Promise<T> {
    const { clock, answerMsMax } = this.#options;
    if (await settlesIn(clock, answerMsMax, promise)) return promise;
    throw new EpisodeError(`${what}: no answer in ${answerMsMax} ms (envServer.answerMsMax)`, "env");
  }

  #drop(key: string): void {
    const episode = this.#open.get(key);
    if (episode !== undefined) this.#remove(episode);
  }

  /** Closes an episode's env, and forgets the episode, unless a newer episode has the same key. */
  #remove(episode: Episode): void {
    if (this.#open.get(episode.key) === episode) this.#open.delete(episode.key);
    if (episode.env !== null) this.#close(episode.label, episode.env);
  }

  #close(label: string, env: Env): void {
    const { warn } = this.#options;
    const report = (error: unknown) => warn(`${label} could not be closed: ${describeError(error)}`);
    try {
      const closed = env.close();
      if (!(closed instanceof Promise)) return;
      const closing = this.#inTime(`${label} close`, closed)
        .catch(report)
        .finally(() => this.#closing.delete(closing));
      this.#closing.add(closing);
    } catch (error) {
      report(error);
    }
  }

  #checkIdleLater(): void {
    this.#cancelIdleCheck = this.#options.clock.after(this.#options.idleMs / 4, () => {
      this.#closeIdle();
      this.#checkIdleLater();
    });
  }

  /** Closes idle episodes. An episode whose env is busy is not idle: `answerMsMax` limits how long the env may be busy. */
  #closeIdle(): void {
    const { clock, idleMs } = this.#options;
    const now = clock.now();
    for (const episode of this.#open.values()) {
      const busy = episode.env === null || episode.last?.answer instanceof Promise;
      if (!busy && now - episode.touchedAtMs > idleMs) this.#remove(episode);
    }
  }
}

/** Checks what an env returned. @throws {Error} with every fault */
function checked<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new Error(schemaFaults(parsed.error, "turn"));
}

/** The key contains the owner, because two samplers may hold one episode: the learner reissues an expired ticket that a sampler still plays. */
const keyOf = (owner: string, episode: string): string => JSON.stringify([owner, episode]);

function charsOf({ reply, answer }: LastTurn): number {
  if (answer.type === "failed") return reply.length + answer.detail.length;
  if (answer.type === "env.opened") return reply.length + answer.observation.length;
  const { observation, actions, extra } = answer;
  return [reply, observation, ...actions, ...Object.keys(extra)].reduce((sum, text) => sum + text.length, 0);
}

const closedEarly = (label: string) => new EpisodeError(`${label} was closed before its env answered`, "closed");

/** Makes the answer from an `EpisodeError`. @throws any other error, which is a bug */
function failure(error: unknown): Messages["failed"] {
  if (!(error instanceof EpisodeError)) throw error;
  return failed(error.boundary, error.message.slice(0, DETAIL_CHARS_MAX));
}
