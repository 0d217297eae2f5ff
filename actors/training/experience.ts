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

/** These numbers stand in place of a state's index: no play tried the action, or the action ended the game. */
const UNTRIED = -1;
const ENDED = -2;

/** Values that differ by less than this count as equal. Of actions with equal values the plan takes the first, so equal boards have equal plans. */
const TIE = 1e-9;

/** A reward that comes one action later counts for this share of its value. So a plan wins early, even if the env does not reward an early win. */
const DISCOUNT = 0.99;

/** Memory of a state without its text, and of an entry. Measured: 19 KB for a board of SimpleSokoban, with 67 states and 268 entries. */
const STATE_BYTES = 120;
const ENTRY_BYTES = 40;

/** Maximum number of future actions whose rewards a plan counts. */
const HORIZON_MAX = 100;

export class Experience {
  /** True if at least one play won. */
  won = false;
  readonly #tag: EnvTag;
  readonly #states = new Map<string, number>();
  /** Number of the game's actions; 0 if the game has no list of actions. */
  #actionCount = 0;
  /**
   * (entries) An entry is an action in a state: how often plays tried it, the sum of its rewards, and the state that followed last. With a
   * list of actions, each state has an entry for each action, in the list's order. Otherwise it has an entry for each action that plays tried.
   */
  readonly #counts: number[] = [];
  readonly #rewards: number[] = [];
  readonly #followed: number[] = [];
  /** How often each state followed, in the order of first occurrence. Only entries that different states followed. ENDED counts as a state. */
  readonly #frequencies = new Map<number, Map<number, number>>();
  /** Number of entries that plays tried. */
  #tried = 0;
  #textBytes = 0;
  /** Only without a list of actions: for each state, the entries by their actions; for each entry, its state. */
  readonly #entries: Map<Action, number>[] = [];
  readonly #owners: number[] = [];
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
    const entry = this.#entryOf(state, action) ?? this.#addEntry(state, action);
    const count = this.#counts[entry]!++;
    if (count === 0) this.#tried++;
    this.#rewards[entry]! += effect.reward;
    const next = effect.done ? ENDED : this.#stateOf(game);
    if (next === ENDED) this.won ||= effect.success;
    const before = this.#followed[entry]!;
    this.#followed[entry] = next;
    const frequencies = this.#frequencies.get(entry);
    if (frequencies !== undefined) frequencies.set(next, (frequencies.get(next) ?? 0) + 1);
    else if (count > 0 && before !== next) {
      this.#frequencies.set(
        entry,
        new Map([
          [before, count],
          [next, 1],
        ]),
      );
    }
    return next;
  }

  /** True if equal actions in equal states have equal effects, and the random player is uniform. */
  #isDeterministic(game: Game, actionsMax: number): game is DiscreteGame {
    const { deterministicActions = 0, random } = this.#tag;
    return game.kind === "discrete" && random === uniformPlayer && actionsMax <= deterministicActions;
  }

  /** Estimated memory of the table. */
  get bytes(): number {
    return STATE_BYTES * this.#states.size + ENTRY_BYTES * this.#counts.length + this.#textBytes;
  }

  /** True if no further play of this many actions can add to the table. */
  isComplete(game: Game, actionsMax: number): boolean {
    return this.#tried > 0 && this.#isDeterministic(game, actionsMax) && this.#tried === this.#counts.length;
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
        const entry = this.#entryOf(state, action)!;
        const plays = this.#counts[entry]!;
        const frequencies = this.#frequencies.get(entry) ?? [[this.#followed[entry]!, plays] as const];
        for (const [to, times] of frequencies)
          if (to !== ENDED) after.set(to, (after.get(to) ?? 0) + (share * times) / plays);
      }
      reached = [...after];
    }
    return plan;
  }

  /** The action with the highest value over these states; null if the table has no action that plays tried in all of these states. */
  #best(states: readonly (readonly [state: number, share: number])[], actionsLeft: number): Action | null {
    const values = this.#valuesWith(actionsLeft - 1);
    let best: { action: Action; value: number } | null = null;
    for (const action of this.#actionsOf(states[0]![0])) {
      let value = 0;
      for (const [state, share] of states) {
        const entry = this.#entryOf(state, action);
        value += entry === undefined || this.#counts[entry] === 0 ? Number.NaN : share * this.#returnOf(entry, values);
      }
      if (!Number.isNaN(value) && (best === null || value > best.value + TIE)) best = { action, value };
    }
    return best?.action ?? null;
  }

  /** The value of every state if the episode has this many actions left; 0 for a state in which plays tried no action. */
  #valuesWith(actionsLeft: number): Float64Array {
    const horizon = Math.min(actionsLeft, HORIZON_MAX);
    const states = this.#states.size;
    if (this.#values.length === 0) this.#values = [new Float64Array(states)];
    while (this.#values.length <= horizon) {
      const before = this.#values.at(-1)!;
      const values = new Float64Array(states).fill(Number.NEGATIVE_INFINITY);
      for (let entry = 0; entry < this.#counts.length; entry++) {
        if (this.#counts[entry] === 0) continue;
        const state = this.#actionCount > 0 ? (entry / this.#actionCount) | 0 : this.#owners[entry]!;
        values[state] = Math.max(values[state]!, this.#returnOf(entry, before));
      }
      for (let state = 0; state < states; state++) if (values[state] === Number.NEGATIVE_INFINITY) values[state] = 0;
      this.#values.push(values);
    }
    return this.#values[horizon]!;
  }

  /** Mean reward and discounted value that followed. A state that a play first met after the last `learn` has no value yet: it counts as 0. */
  #returnOf(entry: number, values: Float64Array): number {
    const count = this.#counts[entry]!;
    let sum = this.#rewards[entry]!;
    // Most tables have no frequencies, and `valuesWith` calls this method often.
    const frequencies = this.#frequencies.size > 0 ? this.#frequencies.get(entry) : undefined;
    if (frequencies === undefined) {
      const followed = this.#followed[entry]!;
      if (followed !== ENDED) sum += count * DISCOUNT * (values[followed] ?? 0);
    } else {
      for (const [state, times] of frequencies) if (state !== ENDED) sum += times * DISCOUNT * (values[state] ?? 0);
    }
    return sum / count;
  }

  #describe(game: Game): string {
    const observation = game.render();
    return this.#tag.stateOf?.(observation) ?? observation;
  }

  /** The actions of a state's entries, in order. */
  #actionsOf(state: number): readonly Action[] {
    if (this.#actionCount > 0) return [...Array(this.#actionCount).keys()];
    return [...this.#entries[state]!.keys()].sort();
  }

  #entryOf(state: number, action: Action): number | undefined {
    if (typeof action === "number") return state * this.#actionCount + action;
    return this.#entries[state]!.get(action);
  }

  #addEntry(state: number, action: Action): number {
    this.#entries[state]!.set(action, this.#counts.length);
    this.#owners.push(state);
    return this.#pushEntry();
  }

  #pushEntry(): number {
    this.#rewards.push(0);
    this.#followed.push(UNTRIED);
    return this.#counts.push(0) - 1;
  }

  /** The index of the game's present state. Adds a new state to the table. */
  #stateOf(game: Game): number {
    const text = this.#describe(game);
    const known = this.#states.get(text);
    if (known !== undefined) return known;
    const state = this.#states.size;
    this.#states.set(text, state);
    this.#textBytes += text.length;
    if (game.kind === "discrete") {
      this.#actionCount = game.actions.length;
      for (const _ of game.actions) this.#pushEntry();
    } else {
      this.#entries.push(new Map());
    }
    return state;
  }
}

/** @throws {TypeError} if the action is not of the game's kind */
function act(game: Game, action: Action): Effect | Promise<Effect> {
  if (game.kind === "discrete" && typeof action === "number") return game.act(action);
  if (game.kind !== "discrete" && typeof action === "string") return game.act(action);
  throw new TypeError(`a ${game.kind} game cannot play ${JSON.stringify(action)}`);
}
