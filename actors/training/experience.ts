/**
 * What random play of one board showed, as a table: for each observed state and each action, the states that followed and the mean reward. A
 * plan is the best sequence of actions by this table (value iteration over a finite horizon). The table needs only what the env
 * returns to a player: no rules, no solver.
 *
 * - With deterministic dynamics the plan has the highest discounted reward that actions of different plays can reach together. If the env
 *   states that its dynamics are deterministic, a play does not repeat an action whose outcome is in the table.
 * - With random dynamics the shares in the table estimate probabilities, so the table needs more plays.
 * - If different plays have only their first state in common, the plan is the best single play.
 *
 * Source: certainty equivalence over a tabular maximum-likelihood model, Sutton and Barto 2018, section 6.3.
 */
import type { Effect, Game } from "../../envs/env.ts";
import { type EnvTag, uniformPlayer } from "../../envs/tag.ts";
import type { Uniform } from "../../model/rng.ts";

/** An index into the env's actions, or an action's text. */
export type Action = number | string;

interface Outcomes {
  count: number;
  reward: number;
  /** How often each state followed the action, in the order of first occurrence. If the action ended the game, no state followed. */
  readonly next: { readonly state: number; times: number }[];
}

/** Values that differ by less than this count as equal. Of actions with equal values the plan takes the first, so equal boards have equal plans. */
const TIE = 1e-9;

/** The weight of a reward that comes one action later. So a plan wins early, even if the env does not reward an early win. */
const DISCOUNT = 0.99;

/** Maximum number of future actions whose rewards a plan counts. */
const HORIZON_MAX = 100;

export class Experience {
  /** True if at least one play won. */
  won = false;
  readonly #tag: EnvTag;
  readonly #states = new Map<string, number>();
  readonly #outcomes: Map<Action, Outcomes>[] = [];
  /** Number of pairs of a state and an action that no play has tried; has no meaning if `#deterministicActions` is 0. */
  #untried = 0;
  /** Values of the states, for each number of actions left. The first plan after `learn` computes them. */
  #values: Float64Array[] = [];

  constructor(tag: EnvTag) {
    this.#tag = tag;
  }

  /**
   * Plays one game of at most `actionsMax` actions, and adds what the game shows to the table. Closes a game outside this process. Values
   * that a plan has computed change only after the next `learn`.
   *
   * @param game     newly opened, without an action
   * @param planned  share of the actions that follow the plan; the other actions are random
   */
  async play(game: Game, actionsMax: number, uniform: Uniform, planned = 0): Promise<void> {
    if (game.kind !== "outside") return this.#playStarted(game, actionsMax, uniform, planned);
    try {
      await game.start();
      await this.#playStarted(game, actionsMax, uniform, planned);
    } finally {
      await game.close();
    }
  }

  async #playStarted(game: Game, actionsMax: number, uniform: Uniform, planned: number): Promise<void> {
    const actionCount = this.#deterministicActions(game, actionsMax);
    /** Actions that the game has not played yet, because the table has their outcomes. */
    const skipped: Action[] = [];
    let state = this.#add(this.#describe(game), actionCount);
    for (let left = actionsMax; left > 0; left--) {
      const best = planned > 0 && uniform() < planned ? this.#best([[state, 1]], left) : null;
      const action = best ?? this.#tag.random(game, left, uniform);
      const tried = this.#outcomes[state]!;
      let outcomes = tried.get(action);
      if (outcomes === undefined) {
        outcomes = { count: 0, reward: 0, next: [] };
        tried.set(action, outcomes);
        this.#untried--;
      } else if (actionCount > 0) {
        if (outcomes.next.length === 0) return;
        skipped.push(action);
        state = outcomes.next[0]!.state;
        continue;
      }
      for (const earlier of skipped) void act(game, earlier);
      skipped.length = 0;
      const acted = act(game, action);
      const effect = acted instanceof Promise ? await acted : acted;
      outcomes.count++;
      outcomes.reward += effect.reward;
      if (effect.done) {
        this.won ||= effect.success;
        return;
      }
      state = this.#add(this.#describe(game), actionCount);
      addTo(outcomes.next, state);
    }
  }

  /** Number of the game's actions; 0 if an action may have several outcomes, or if the random player is not uniform. */
  #deterministicActions(game: Game, actionsMax: number): number {
    const { deterministicActions = 0, random } = this.#tag;
    const isKnown = game.kind === "discrete" && random === uniformPlayer && actionsMax <= deterministicActions;
    return isKnown ? game.actions.length : 0;
  }

  /** True if no further play of this many actions can add to the table. */
  isComplete(game: Game, actionsMax: number): boolean {
    const hasPlayed = this.#outcomes.length > 0;
    return hasPlayed && this.#untried === 0 && this.#deterministicActions(game, actionsMax) > 0;
  }

  /** Discards the values of the states, so that the next plan computes new values from all plays so far. */
  learn(): void {
    this.#values = [];
  }

  /**
   * Plans the next actions from the game's present state. Each action is the best one over all states in which the game may then be.
   *
   * @param actionsLeft  actions left in the episode
   * @param count        maximum number of actions to plan; the plan is shorter if the table has no further action
   * @returns an empty plan in a state where random play tried no action
   */
  plan(game: Game, actionsLeft: number, count: number): Action[] {
    const start = this.#states.get(this.#describe(game));
    const plan: Action[] = [];
    let reached: (readonly [state: number, share: number])[] = start === undefined ? [] : [[start, 1]];
    for (let left = actionsLeft; left > actionsLeft - count && reached.length > 0; left--) {
      const action = this.#best(reached, left);
      if (action === null) break;
      plan.push(action);
      const after = new Map<number, number>();
      for (const [state, share] of reached) {
        const { count: plays, next } = this.#outcomes[state]!.get(action)!;
        for (const { state: to, times } of next) after.set(to, (after.get(to) ?? 0) + (share * times) / plays);
      }
      reached = [...after];
    }
    return plan;
  }

  /** The action with the highest value over these states; null if the table has no action that plays tried in all of these states. */
  #best(states: readonly (readonly [state: number, share: number])[], actionsLeft: number): Action | null {
    const values = this.#valuesWith(actionsLeft - 1);
    let best: { action: Action; value: number } | null = null;
    for (const action of [...this.#outcomes[states[0]![0]]!.keys()].sort(inOrder)) {
      let value = 0;
      for (const [state, share] of states) {
        const outcomes = this.#outcomes[state]!.get(action);
        value += outcomes === undefined ? Number.NaN : share * returnOf(outcomes, values);
      }
      if (!Number.isNaN(value) && (best === null || value > best.value + TIE)) best = { action, value };
    }
    return best?.action ?? null;
  }

  /** The value of every state if the episode has this many actions left. */
  #valuesWith(actionsLeft: number): Float64Array {
    const horizon = Math.min(actionsLeft, HORIZON_MAX);
    const states = this.#outcomes.length;
    if (this.#values.length === 0) this.#values = [new Float64Array(states)];
    while (this.#values.length <= horizon) {
      const before = this.#values.at(-1)!;
      const values = new Float64Array(states);
      for (let state = 0; state < states; state++) {
        const known = this.#outcomes[state]!;
        let best = known.size === 0 ? 0 : Number.NEGATIVE_INFINITY;
        for (const outcomes of known.values()) best = Math.max(best, returnOf(outcomes, before));
        values[state] = best;
      }
      this.#values.push(values);
    }
    return this.#values[horizon]!;
  }

  #describe(game: Game): string {
    const observation = game.render();
    return this.#tag.stateOf?.(observation) ?? observation;
  }

  #add(text: string, actionCount: number): number {
    const known = this.#states.get(text);
    if (known !== undefined) return known;
    this.#untried += actionCount;
    this.#states.set(text, this.#outcomes.length);
    return this.#outcomes.push(new Map()) - 1;
  }
}

function addTo(next: Outcomes["next"], state: number): void {
  for (const followed of next) {
    if (followed.state === state) {
      followed.times++;
      return;
    }
  }
  next.push({ state, times: 1 });
}

function returnOf({ count, reward, next }: Outcomes, values: Float64Array): number {
  let sum = reward;
  // A state that a play first met after the last `learn` has no value yet. Its value counts as 0.
  for (const { state, times } of next) sum += times * DISCOUNT * (values[state] ?? 0);
  return sum / count;
}

const inOrder = (a: Action, b: Action): number =>
  typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : 1;

/** @throws {TypeError} if the action is not of the game's kind */
function act(game: Game, action: Action): Effect | Promise<Effect> {
  if (game.kind === "discrete" && typeof action === "number") return game.act(action);
  if (game.kind !== "discrete" && typeof action === "string") return game.act(action);
  throw new TypeError(`a ${game.kind} game cannot play ${JSON.stringify(action)}`);
}
