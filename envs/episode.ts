/**
 * One episode of a game in text: reads replies, keeps the budgets, says why it ended. Knows no particular game.
 *
 * - A reply is a turn, whatever it says; unknown actions are dropped, and the known ones run in order until the game or
 *   the budget ends.
 * - The penalty comes once per turn: an action was dropped, or none was read. Surplus actions cost nothing.
 * - An ending is final, and there is one reason.
 *
 * Source: RAGEN EnvStateManager.step. Unlike there, running out of turns is an ending of its own.
 */
import { parseReply } from "./answer.ts";
import type { Effect, Ending, Env, EpisodeRules, Game, Turn } from "./env.ts";

export function openEpisode(game: Game, rules: EpisodeRules): Env {
  return new Episode(game, rules);
}

/** An action that can be executed, and its name. */
interface Known {
  readonly name: string;
  act(): Effect;
}

class Episode implements Env {
  readonly opening: string;
  readonly #game: Game;
  readonly #rules: EpisodeRules;
  /** Action indices by lower-case name; null for a language game, which takes any text. */
  readonly #indices: ReadonlyMap<string, number> | null;
  #turns = 0;
  #actions = 0;
  #ending: Ending | null = null;

  constructor(game: Game, rules: EpisodeRules) {
    this.#game = game;
    this.#rules = rules;
    this.#indices =
      game.kind === "discrete" ? new Map(game.actions.map((name, index) => [name.toLowerCase(), index])) : null;
    this.opening = game.render();
  }

  get actionsLeft(): number {
    return this.#rules.actionsMax - this.#actions;
  }

  step(reply: string): Turn {
    if (this.#ending !== null) throw new Error(`this episode is over (${this.#ending}); open a new one`);
    const { actions, formed } = parseReply(reply, this.#rules);
    const known = actions.map((name) => this.#known(name)).filter((action) => action !== null);
    const wellFormed = formed && known.length > 0 && known.length === actions.length;
    const executed: string[] = [];
    let reward = 0;
    let last: Effect | null = null;
    for (const action of known.slice(0, this.actionsLeft)) {
      last = action.act();
      reward += last.reward;
      executed.push(action.name);
      if (last.done) break;
    }
    this.#turns++;
    this.#actions += executed.length;
    this.#ending = this.#endingAfter(last);
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
      extra: last?.extra ?? {},
    };
  }

  #known(name: string): Known | null {
    const game = this.#game;
    if (game.kind === "language") return { name, act: () => game.act(name) };
    const index = this.#indices!.get(name.toLowerCase());
    return index === undefined ? null : { name: game.actions[index]!, act: () => game.act(index) };
  }

  #endingAfter(last: Effect | null): Ending | null {
    if (last?.done) return last.success ? "success" : "over";
    if (this.#actions >= this.#rules.actionsMax) return "actions";
    return this.#turns >= this.#rules.turnsMax ? "turns" : null;
  }
}
