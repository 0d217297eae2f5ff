/**
 * The interfaces of this folder. A `Game` holds the rules of a task; an `Env` is one episode of a game, in text.
 * Env authors write a `Game`; `episode.ts` turns it into an `Env`. Knows no tokens, models, processes or clocks.
 */

/** The result of one action. */
export interface Effect {
  /** Reward of this action alone, in the game's own unit. */
  readonly reward: number;
  /** True if the game is over. Acting after that throws. */
  readonly done: boolean;
  /** True if the action changed the state. */
  readonly effective: boolean;
  /** False if the game could not interpret the action. */
  readonly valid: boolean;
  /** True if the task is solved now. */
  readonly success: boolean;
  /** Replaces `render()` as the observation, for games that answer with a message. */
  readonly message?: string;
  /** Further metrics by name. `dead_end` and `premature_stop` classify failures (analysis/failure.ts). */
  readonly extra?: Readonly<Record<string, number>>;
}

/** Rules of a task with a fixed list of actions. Single-use. Does not parse replies or count budgets. */
export interface DiscreteGame {
  readonly kind: "discrete";
  /** Action names in order; `act` takes an index into this list. */
  readonly actions: readonly string[];
  render(): string;
  act(action: number): Effect;
  /** True if success has become impossible. Omit it where this cannot be computed. */
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
  /** Starts the game. Call it once, first. The game holds no resource before this call, nor after it rejects. */
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
  /** uint32: boards, arms, questions. */
  readonly layout: number;
  /** uint32: slips, payouts. */
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
  /** Sum of the rewards of the executed actions; 0 if none. */
  readonly reward: number;
  /** 0, or the negative format penalty if an action was dropped or none was readable. */
  readonly penalty: number;
  /** Names of the executed actions, in order. */
  readonly actions: readonly string[];
  readonly actionsLeft: number;
  /** True if the reply had the required form and every action in it was known. */
  readonly wellFormed: boolean;
  /** `effective`, `valid` and `success` describe the last executed action; all are false if there was none. */
  readonly effective: boolean;
  readonly valid: boolean;
  readonly success: boolean;
  /** null while the episode continues. Stepping after an ending throws. */
  readonly ending: Ending | null;
  readonly extra: Readonly<Record<string, number>>;
}

/** One episode of one task, in text. Single-use: there is no reset. */
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
  /** Further actions are ignored. */
  readonly actionsPerTurnMax: number;
  /** Added once per turn in which an action was dropped or none was readable; 0 or negative. */
  readonly formatPenalty: number;
  /** Replies are `<think>…</think><answer>…</answer>`; if false, `<answer>…</answer>` alone. */
  readonly think: boolean;
}

/** A number generator: uniform in [0, 1). */
export type Uniform = () => number;
