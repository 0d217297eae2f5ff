/**
 * Plays one episode of a game in text: parses replies, counts budgets, reports the ending. Knows no particular game.
 *
 * - Every reply is a turn, with at most the first `actionsPerTurnMax` actions of the reply.
 * - An episode drops unknown actions. It executes known actions in order until the game is over or the action budget is used up.
 * - A turn gets one format penalty if its reply lacks the required form, has an unknown action or has no action. Actions beyond the limits give
 *   no penalty.
 * - Episodes of local games are synchronous; only outside games return promises.
 *
 * Source: RAGEN EnvStateManager.step. Unlike in RAGEN, the turn limit has its own ending, `turns`.
 */

import type { Effect, Ending, Env, EpisodeRules, Game, LocalEnv, LocalGame, OutsideGame, Turn } from "./env.ts";
import { ACTION_SEPARATOR, parseReply } from "./text/answer.ts";

/** @returns the episode; for an outside game, which has to start first, a promise of the episode. */
export function openEpisode(game: LocalGame, rules: EpisodeRules): LocalEnv;
export function openEpisode(game: Game, rules: EpisodeRules): LocalEnv | Promise<Env>;
export function openEpisode(game: Game, rules: EpisodeRules): LocalEnv | Promise<Env> {
  if (game.kind === "outside") return openOutside(game, rules);
  // The effects of a local game are not promises, so its turns are not promises either.
  return new Episode(game, rules) as LocalEnv;
}

async function openOutside(game: OutsideGame, rules: EpisodeRules): Promise<Env> {
  await game.start();
  try {
    return new Episode(game, rules);
  } catch (error) {
    // Report `error`. If `close` fails too, its error is not reported.
    await game.close().catch(() => {});
    throw error;
  }
}

interface KnownAction {
  readonly name: string;
  act(): Effect | Promise<Effect>;
}

interface TurnInProgress {
  readonly known: readonly KnownAction[];
  readonly wellFormed: boolean;
  readonly executed: string[];
  reward: number;
  last: Effect | null;
}

class Episode implements Env {
  readonly opening: string;
  readonly #game: Game;
  readonly #rules: EpisodeRules;
  /** Actions by lower-case name; null if the game takes any text. */
  readonly #byName: ReadonlyMap<string, { readonly name: string; readonly index: number }> | null;
  #turns = 0;
  #actions = 0;
  #pending = false;
  #ending: Ending | null = null;

  constructor(game: Game, rules: EpisodeRules) {
    this.#game = game;
    this.#rules = rules;
    const actions = game.kind === "language" ? null : game.actions;
    this.#byName = actions && actionsByName(actions);
    this.opening = game.render();
  }

  get actionsLeft(): number {
    return this.#rules.actionsMax - this.#actions;
  }

  step(reply: string): Turn | Promise<Turn> {
    if (this.#pending)
      throw new Error(
        "the previous turn of this episode has not ended, or it failed; wait for it, or open a new episode",
      );
    if (this.#ending !== null) throw new Error(`this episode is over (${this.#ending}); open a new one`);
    const wholeAnswer = this.#game.kind === "outside" && this.#game.takesWholeAnswer === true;
    const { actions, formed } = parseReply(reply, { ...this.#rules, wholeAnswer });
    const known = actions.map((name) => this.#find(name)).filter((action) => action !== null);
    const wellFormed = formed && known.length > 0 && known.length === actions.length;
    const affordable = known.slice(0, this.actionsLeft);
    return this.#execute({ known: affordable, wellFormed, executed: [], reward: 0, last: null });
  }

  close(): void | Promise<void> {
    if (this.#game.kind === "outside") return this.#game.close();
  }

  /** Executes the remaining actions. If the game answers synchronously, this method does too. */
  #execute(turn: TurnInProgress): Turn | Promise<Turn> {
    const { known, executed } = turn;
    while (executed.length < known.length) {
      const effect = known[executed.length]!.act();
      if (effect instanceof Promise) return this.#wait(turn, effect);
      if (record(turn, effect).done) break;
    }
    return this.#finish(turn);
  }

  async #wait(turn: TurnInProgress, promise: Promise<Effect>): Promise<Turn> {
    this.#pending = true;
    const { done } = record(turn, await promise);
    this.#pending = false;
    return done ? this.#finish(turn) : this.#execute(turn);
  }

  #finish({ executed, reward, wellFormed, last }: TurnInProgress): Turn {
    this.#turns++;
    this.#actions += executed.length;
    this.#ending = this.#endingAfter(last);
    const game = this.#game;
    const lost = this.#ending !== null && !last?.success && game.kind === "discrete" && game.isLost?.() === true;
    return {
      observation: last?.message ?? this.#game.render(),
      reward,
      penalty: wellFormed ? 0 : this.#rules.formatPenalty,
      actions: executed,
      actionsLeft: this.actionsLeft,
      wellFormed,
      effective: last?.effective ?? false,
      valid: last?.valid ?? false,
      success: last?.success ?? false,
      ending: this.#ending,
      extra: lost ? { ...last?.extra, dead_end: 1 } : (last?.extra ?? {}),
    };
  }

  #find(name: string): KnownAction | null {
    const game = this.#game;
    const known = this.#byName === null ? { name, index: -1 } : this.#byName.get(name.toLowerCase());
    if (known === undefined) return null;
    const act = () => (game.kind === "discrete" ? game.act(known.index) : game.act(known.name));
    return { name: known.name, act };
  }

  #endingAfter(last: Effect | null): Ending | null {
    if (last?.done) return last.success ? "success" : "over";
    if (this.#actions >= this.#rules.actionsMax) return "actions";
    return this.#turns >= this.#rules.turnsMax ? "turns" : null;
  }
}

/**
 * Actions by lower-case name.
 *
 * @throws {Error} that names an action which no reply can choose
 */
export function actionsByName(names: readonly string[]): ReadonlyMap<string, { name: string; index: number }> {
  const byName = new Map(names.map((name, index) => [name.toLowerCase(), { name, index }]));
  const unread = names.find((name, index) => {
    return (
      name === "" ||
      name !== name.trim() ||
      name.includes(ACTION_SEPARATOR) ||
      byName.get(name.toLowerCase())!.index !== index
    );
  });
  if (unread === undefined) return byName;
  const text = `no reply can choose the action ${JSON.stringify(unread)} of ${JSON.stringify(names)}`;
  throw new Error(`${text}; names must differ by more than case, contain no || and neither start nor end with a space`);
}

function record(turn: TurnInProgress, effect: Effect): Effect {
  turn.executed.push(turn.known[turn.executed.length]!.name);
  turn.reward += effect.reward;
  turn.last = effect;
  return effect;
}
