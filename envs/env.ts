/**
 * The interfaces of this folder. A `Game` holds the rules of a task; an `Env` is one episode of a game, in text.
 * Env authors write a `Game`; `episode.ts` turns it into an `Env`. Knows no tokens, models, processes or clocks.
 */

/** The result of one action. */
export interface Effect {
  /** Reward of this action alone, in the game's own unit. */
  readonly reward: number;
  /** True if the game is over. A later `act` throws an error. */
  readonly done: boolean;
  /** True if the action changed the state. */
  readonly effective: boolean;
  /** False if the game could not interpret the action. */
  readonly valid: boolean;
  /** True if the task is solved now. */
  readonly success: boolean;
  /** The observation after the action, for games that answer with a message. If omitted, `render()` gives the observation. */
  readonly message?: string;
  /** Further metrics by name. `dead_end` and `premature_stop` classify failures (analysis/failure.ts). */
  readonly extra?: Readonly<Record<string, number>>;
}

/** The game of a task with a fixed list of actions. One object plays one episode. It parses no replies and counts no budgets. */
export interface DiscreteGame {
  readonly kind: "discrete";
  /** Action names in order; `act` takes an index into this list. */
  readonly actions: readonly string[];
  render(): string;
  act(action: number): Effect;
  /** True if success has become impossible. A game that cannot know omits the method. */
  isLost?(): boolean;
}

/** A game whose actions are free text (an equation, a search query). */
export interface LanguageGame {
  readonly kind: "language";
  render(): string;
  act(action: string): Effect;
}

/**
 * A game that runs elsewhere: behind HTTP or in another process. Its calls are asynchronous and may reject for reasons
 * outside the game. The game holds a resource that `close` releases.
 */
export interface OutsideGame {
  readonly kind: "outside";
  /** Starts the game. Call it once, before the other methods. The game holds no resource before this call, and none if the call rejects. */
  start(): Promise<void>;
  /** Action names, known after `start`; null if the game takes any text. */
  readonly actions: readonly string[] | null;
  /** True if an answer is one action, whatever separators it contains. */
  readonly takesWholeAnswer?: boolean;
  render(): string;
  /** Call it again only after the previous call has settled. */
  act(action: string): Promise<Effect>;
  /** Releases the resource. A pending call then rejects. Repeated calls are allowed. */
  close(): Promise<void>;
}

/** A game that answers synchronously. */
export type LocalGame = DiscreteGame | LanguageGame;

export type Game = LocalGame | OutsideGame;

/** Equal seeds make equal episodes. Episodes of a group share the layout seed; their dynamics seeds differ. */
export interface Seeds {
  /** uint32. Decides boards, arms and questions. */
  readonly layout: number;
  /** uint32. Decides slips and payouts. */
  readonly dynamics: number;
}

/** Why an episode ended. */
export type Ending =
  /** The task was solved. */
  | "success"
  /** The game ended without success (a hole, a wrong answer). */
  | "over"
  /** The episode's action budget is used up. */
  | "actions"
  /** The turn limit is reached. */
  | "turns";

/** The result of one reply. */
export interface Turn {
  /** The next observation; on the last turn, the final state. */
  readonly observation: string;
  /** Sum of the rewards of the executed actions; 0 if the turn has no executed action. */
  readonly reward: number;
  /** The format penalty (0 or negative) if `wellFormed` is false; otherwise 0. */
  readonly penalty: number;
  /** Names of the executed actions, in order. */
  readonly actions: readonly string[];
  readonly actionsLeft: number;
  /** True if the reply has the required form and at least one action, and every action in it is known. */
  readonly wellFormed: boolean;
  /** `effective`, `valid` and `success` describe the last executed action; all are false if the turn has no executed action. */
  readonly effective: boolean;
  readonly valid: boolean;
  readonly success: boolean;
  /** null while the episode continues. A `step` after the ending throws an error. */
  readonly ending: Ending | null;
  readonly extra: Readonly<Record<string, number>>;
}

/** One episode of one task, in text. There is no reset: each episode is a new object. */
export interface Env {
  /** The first observation. */
  readonly opening: string;
  readonly actionsLeft: number;
  /**
   * Plays one turn. Call it again only after the previous turn has settled.
   *
   * @throws {Error} if the episode is over. A reply that cannot be parsed is a turn, not an error.
   */
  step(reply: string): Turn | Promise<Turn>;
  /** Releases the resources of the episode. The caller that opened the episode calls `close` once, whatever the ending. */
  close(): void | Promise<void>;
}

/** An episode of a local game: it answers synchronously. */
export interface LocalEnv extends Env {
  step(reply: string): Turn;
  close(): void;
}

/** Budgets and parsing rules. Source: RAGEN es_manager and ctx_manager. */
export interface EpisodeRules {
  readonly turnsMax: number;
  readonly actionsMax: number;
  /** Maximum number of actions of one reply that the episode executes. The episode ignores further actions of the reply. */
  readonly actionsPerTurnMax: number;
  /** The penalty of each turn whose reply is not `wellFormed`; 0 or negative. */
  readonly formatPenalty: number;
  /** True: a reply has the form `<think>…</think><answer>…</answer>`. False: a reply has the form `<answer>…</answer>`. */
  readonly think: boolean;
}

/** A number generator: uniform in [0, 1). */
export type Uniform = () => number;
