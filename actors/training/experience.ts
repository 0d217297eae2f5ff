/**
 * A table of what random play of one board showed. For each observed state and each action, it has the states that followed and the mean
 * reward. A plan is the best sequence of actions by this table (value iteration over a finite horizon). The table needs only what the env
 * returns to a player: no rules, no solver.
 *
 * - With deterministic dynamics a plan may combine actions of different plays, and has the highest discounted reward of all combinations. If
 *   the env states that its dynamics are deterministic, a play reads known outcomes from the table, and executes actions only to find a new outcome.
 * - With random dynamics the shares in the table estimate probabilities, so the table needs more plays.
 * - If different plays have only their first state in common, the plan is the best single play.
 *
 * Source: certainty equivalence over a tabular maximum-likelihood model, Sutton and Barto 2018, section 6.3.
 */
import type { DiscreteGame, Effect, Game, LocalGame, OutsideGame } from "../../envs/env.ts";
import { type EnvTag, randomAction, uniformPlayer } from "../../envs/tag.ts";
import type { Uniform } from "../../model/rng.ts";

/** An index into the env's actions, or an action's text. */
export type Action = number | string;

/** What plays showed of one action in one state. */
interface Outcomes {
  readonly action: Action;
  count: number;
  reward: number;
  /** How often each state followed the action, in the order of first occurrence. If the action ended the game, no state followed. */
  readonly next: { readonly state: number; times: number }[];
}

/** These numbers stand in place of a state's index: no play tried the action, or the action ended the game. */
const UNTRIED = -1;
const ENDED = -2;

/** Values that differ by less than this count as equal. Of actions with equal values the plan takes the first, so equal boards have equal plans. */
const TIE = 1e-9;

/** A reward that comes one action later counts for this share of its value. So a plan wins early, even if the env does not reward an early win. */
const DISCOUNT = 0.99;

/** Maximum number of future actions whose rewards a plan counts. */
const HORIZON_MAX = 100;

export class Experience {
  /** True if at least one play won. */
  won = false;
  readonly #tag: EnvTag;
  readonly #states = new Map<string, number>();
  /** For each state, the outcomes of the actions that plays tried in it. */
  readonly #tried: Outcomes[][] = [];
  /** Number of all outcomes in `#tried`. */
  #outcomes = 0;
  /** (states, actions) the state that followed the action last, UNTRIED or ENDED; empty if the game has no list of actions. */
  readonly #followed: number[] = [];
  /** Values of the states, for each number of actions left. The first plan after `learn` computes them. */
  #values: Float64Array[] = [];

  constructor(tag: EnvTag) {
    this.#tag = tag;
  }

  /**
   * Plays one game of at most `actionsMax` actions, and adds what the game shows to the table. Closes a game outside this process. Values
   * that a plan has computed change only after the next `learn`. Returns a promise only for a game outside this process.
   *
   * @param game     newly opened, without an action
   * @param planned  share of the actions that follow the plan; the other actions are random
   */
  play(game: Game, actionsMax: number, uniform: Uniform, planned = 0): void | Promise<void> {
    if (game.kind === "outside") return this.#playOutside(game, actionsMax, uniform, planned);
    if (this.#isDeterministic(game, actionsMax)) this.#playUntried(game, actionsMax, uniform, planned);
    else this.#playLocal(game, actionsMax, uniform, planned);
  }

  async #playOutside(game: OutsideGame, actionsMax: number, uniform: Uniform, planned: number): Promise<void> {
    try {
      await game.start();
      let state = this.#stateOf(game);
      for (let left = actionsMax; left > 0 && state !== ENDED; left--) {
        const action = this.#planned(state, left, uniform, planned) ?? this.#tag.random(game, left, uniform);
        state = this.#record(game, state, action, await act(game, action));
      }
    } finally {
      await game.close();
    }
  }

  #playLocal(game: LocalGame, actionsMax: number, uniform: Uniform, planned: number): void {
    let state = this.#stateOf(game);
    for (let left = actionsMax; left > 0 && state !== ENDED; left--) {
      const action = this.#planned(state, left, uniform, planned) ?? this.#tag.random(game, left, uniform);
      state = this.#record(game, state, action, act(game, action) as Effect);
    }
  }

  /**
   * Plays a deterministic game. While the table has the outcome of each chosen action, the play follows the table and executes nothing. Before
   * the play tries an action without an outcome in the table, it executes the actions chosen so far.
   */
  #playUntried(game: DiscreteGame, actionsMax: number, uniform: Uniform, planned: number): void {
    const actionCount = game.actions.length;
    const actions = new Int32Array(actionsMax);
    /** Number of the first actions that the game has executed. */
    let executed = 0;
    let state = this.#stateOf(game);
    for (let i = 0; i < actionsMax && state !== ENDED; i++) {
      const best = planned > 0 ? this.#planned(state, actionsMax - i, uniform, planned) : null;
      const action = (best as number | null) ?? randomAction(game, uniform);
      actions[i] = action;
      const next = this.#followed[state * actionCount + action]!;
      if (next !== UNTRIED) {
        state = next;
        continue;
      }
      while (executed < i) game.act(actions[executed++]!);
      executed++;
      state = this.#record(game, state, action, game.act(action));
    }
  }

  /** In a share `planned` of the calls, the best action by the table; null in the other calls, or if the table has no action. */
  #planned(state: number, actionsLeft: number, uniform: Uniform, planned: number): Action | null {
    return planned > 0 && uniform() < planned ? this.#best([[state, 1]], actionsLeft) : null;
  }

  /** Adds the effect of an executed action to the table. @returns the state that followed, or ENDED */
  #record(game: Game, state: number, action: Action, effect: Effect): number {
    let outcomes = this.#outcomesOf(state, action);
    if (outcomes === undefined) {
      outcomes = { action, count: 0, reward: 0, next: [] };
      this.#tried[state]!.push(outcomes);
      this.#outcomes++;
    }
    outcomes.count++;
    outcomes.reward += effect.reward;
    const next = effect.done ? ENDED : this.#stateOf(game);
    if (next === ENDED) this.won ||= effect.success;
    else addTo(outcomes.next, next);
    if (game.kind === "discrete") this.#followed[state * game.actions.length + (action as number)] = next;
    return next;
  }

  /** True if equal actions in equal states have equal effects, and the random player is uniform. */
  #isDeterministic(game: Game, actionsMax: number): game is DiscreteGame {
    const { deterministicActions = 0, random } = this.#tag;
    return game.kind === "discrete" && random === uniformPlayer && actionsMax <= deterministicActions;
  }

  /** True if no further play of this many actions can add to the table. */
  isComplete(game: Game, actionsMax: number): boolean {
    const states = this.#tried.length;
    return states > 0 && this.#isDeterministic(game, actionsMax) && this.#outcomes === states * game.actions.length;
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
        const { count: plays, next } = this.#outcomesOf(state, action)!;
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
    for (const action of this.#tried[states[0]![0]]!.map((tried) => tried.action).sort(inOrder)) {
      let value = 0;
      for (const [state, share] of states) {
        const outcomes = this.#outcomesOf(state, action);
        value += outcomes === undefined ? Number.NaN : share * returnOf(outcomes, values);
      }
      if (!Number.isNaN(value) && (best === null || value > best.value + TIE)) best = { action, value };
    }
    return best?.action ?? null;
  }

  /** The value of every state if the episode has this many actions left. */
  #valuesWith(actionsLeft: number): Float64Array {
    const horizon = Math.min(actionsLeft, HORIZON_MAX);
    const states = this.#tried.length;
    if (this.#values.length === 0) this.#values = [new Float64Array(states)];
    while (this.#values.length <= horizon) {
      const before = this.#values.at(-1)!;
      const values = new Float64Array(states);
      for (let state = 0; state < states; state++) {
        const tried = this.#tried[state]!;
        let best = tried.length === 0 ? 0 : Number.NEGATIVE_INFINITY;
        for (let i = 0; i < tried.length; i++) best = Math.max(best, returnOf(tried[i]!, before));
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

  #outcomesOf(state: number, action: Action): Outcomes | undefined {
    const tried = this.#tried[state]!;
    for (let i = 0; i < tried.length; i++) if (tried[i]!.action === action) return tried[i];
    return undefined;
  }

  /** The index of the game's present state. Adds a new state to the table. */
  #stateOf(game: Game): number {
    const text = this.#describe(game);
    const known = this.#states.get(text);
    if (known !== undefined) return known;
    const state = this.#tried.push([]) - 1;
    this.#states.set(text, state);
    if (game.kind === "discrete") for (const _ of game.actions) this.#followed.push(UNTRIED);
    return state;
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
  for (let i = 0; i < next.length; i++) sum += next[i]!.times * DISCOUNT * (values[next[i]!.state] ?? 0);
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
