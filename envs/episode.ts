/**
 * One episode of a game in text: reads replies, keeps the budgets, says why it ended. Knows no particular game.
 *
 * - A reply is a turn, whatever it says; unknown actions are dropped, and the known ones run in order until the game or
 *   the budget ends.
 * - The penalty comes once per turn: an action was dropped, or none was read. Surplus actions cost nothing.
 * - An ending is final, and there is one reason.
 * - What a game answers at once, its episode does too; only a game that lives elsewhere is waited for.
 *
 * Source: RAGEN EnvStateManager.step. Unlike there, running out of turns is an ending of its own.
 */

import type { Effect, Ending, Env, EpisodeRules, Game, LocalEnv, LocalGame, OutsideGame, Turn } from "./env.ts";
import { parseReply } from "./text/answer.ts";

/** @returns a promise for a game that lives elsewhere, which has to begin there first. */
export function openEpisode(game: LocalGame, rules: EpisodeRules): LocalEnv;
export function openEpisode(game: Game, rules: EpisodeRules): LocalEnv | Promise<Env>;
export function openEpisode(game: Game, rules: EpisodeRules): LocalEnv | Promise<Env> {
  if (game.kind === "outside") return openOutside(game, rules);
  // No effect of a local game is a promise, so no turn is.
  return new Episode(game, rules) as LocalEnv;
}

async function openOutside(game: OutsideGame, rules: EpisodeRules): Promise<Env> {
  await game.start();
  return new Episode(game, rules);
}

/** An action that can be executed, and its name. */
interface Known {
  readonly name: string;
  act(): Effect | Promise<Effect>;
}

/** A turn on its way. */
interface Underway {
  readonly known: readonly Known[];
  readonly wellFormed: boolean;
  readonly executed: string[];
  reward: number;
  last: Effect | null;
}

class Episode implements Env {
  readonly opening: string;
  readonly #game: Game;
  readonly #rules: EpisodeRules;
  /** Actions by lower-case name; null for a game that takes any text. */
  readonly #listed: ReadonlyMap<string, { readonly name: string; readonly index: number }> | null;
  #turns = 0;
  #actions = 0;
  #waiting = false;
  #ending: Ending | null = null;

  constructor(game: Game, rules: EpisodeRules) {
    this.#game = game;
    this.#rules = rules;
    const actions = game.kind === "language" ? null : game.actions;
    this.#listed = actions && new Map(actions.map((name, index) => [name.toLowerCase(), { name, index }]));
    this.opening = game.render();
  }

  get actionsLeft(): number {
    return this.#rules.actionsMax - this.#actions;
  }

  step(reply: string): Turn | Promise<Turn> {
    if (this.#waiting) throw new Error("a turn of this episode is being played, or failed; wait, or open a new one");
    if (this.#ending !== null) throw new Error(`this episode is over (${this.#ending}); open a new one`);
    const { actions, formed } = parseReply(reply, this.#rules);
    const known = actions.map((name) => this.#known(name)).filter((action) => action !== null);
    const wellFormed = formed && known.length > 0 && known.length === actions.length;
    const affordable = known.slice(0, this.actionsLeft);
    return this.#execute({ known: affordable, wellFormed, executed: [], reward: 0, last: null });
  }

  close(): void | Promise<void> {
    if (this.#game.kind === "outside") return this.#game.close();
  }

  /** The actions not yet executed, at once as far as the game answers at once. */
  #execute(underway: Underway): Turn | Promise<Turn> {
    const { known, executed } = underway;
    while (executed.length < known.length) {
      const effect = known[executed.length]!.act();
      if (effect instanceof Promise) return this.#wait(underway, effect);
      if (noted(underway, effect).done) break;
    }
    return this.#finish(underway);
  }

  async #wait(underway: Underway, promise: Promise<Effect>): Promise<Turn> {
    this.#waiting = true;
    const { done } = noted(underway, await promise);
    this.#waiting = false;
    return done ? this.#finish(underway) : this.#execute(underway);
  }

  #finish({ executed, reward, wellFormed, last }: Underway): Turn {
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

  #known(name: string): Known | null {
    const game = this.#game;
    const known = this.#listed === null ? { name, index: -1 } : this.#listed.get(name.toLowerCase());
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

function noted(underway: Underway, effect: Effect): Effect {
  underway.executed.push(underway.known[underway.executed.length]!.name);
  underway.reward += effect.reward;
  underway.last = effect;
  return effect;
}
