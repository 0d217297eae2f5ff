/**
 * Replays recorded episodes action by action with the env's own code, and lets a person continue by hand from any turn.
 * This code runs in the browser, in one bundle with the envs, and in tests.
 *
 * - `replay` compares the replay with the record, turn by turn. If the two differ, the page shows the replay and names the first difference.
 * - When a person plays, only the game and its maximum number of actions limit the play. The limit of turns and the reply format do not apply.
 */
import { z } from "zod";
import type { Effect, LocalGame } from "../../../envs/env.ts";
import { envTag } from "../../../envs/registry.ts";
import type { EpisodeRow, TurnRecord } from "../../protocol.ts";
import type { PlayAnswer } from "../answers.ts";

// With its JIT, zod generates code from text, which the page's content security policy forbids.
z.config({ jitless: true });

export interface Frame {
  /** Turn of the action, from 0. In a game that a person plays by hand, every frame has the turn at which the person took over. */
  readonly turn: number;
  /** The action before this frame; null for the first observation. */
  readonly action: string | null;
  readonly observation: string;
  /** Sum of the rewards of all actions so far, without penalties. */
  readonly reward: number;
  readonly done: boolean;
  readonly success: boolean;
}

export interface Replay {
  readonly frames: readonly Frame[];
  /** The first difference from the record; null if there is none. */
  readonly difference: string | null;
}

type Ticket = Pick<EpisodeRow["ticket"], "env" | "layoutSeed" | "dynamicsSeed">;
export interface Recorded {
  readonly turns: readonly Readonly<Pick<TurnRecord, "observation" | "actions" | "reward">>[];
  readonly finalObservation: string;
}

/** @throws {Error} if the env is unknown here or cannot open the board. */
function openGame(ticket: Ticket, { envs, compat }: PlayAnswer): LocalGame {
  const { tag, options } = envs.find(({ name }) => name === ticket.env) ?? { tag: ticket.env, options: {} };
  const env = envTag(tag, options, compat);
  if (env.browser === false)
    throw new Error(`${tag} does not run in a browser; replay the episode with \`bun run replay\``);
  const game = env.open({ layout: ticket.layoutSeed, dynamics: ticket.dynamicsSeed });
  if (game.kind === "outside") throw new Error(`${ticket.env} runs in another process, which a browser cannot reach`);
  return game;
}

function act(game: LocalGame, action: string): Effect {
  if (game.kind === "language") return game.act(action);
  const index = game.actions.indexOf(action);
  if (index === -1) throw new Error(`no action ${JSON.stringify(action)}; the actions are ${game.actions.join(", ")}`);
  return game.act(index);
}

/** @throws {Error} if the env cannot be played here, or does not have a recorded action. */
export function replay(ticket: Ticket, { turns, finalObservation }: Recorded, play: PlayAnswer): Replay {
  const game = openGame(ticket, play);
  let observation = game.render();
  const frames: Frame[] = [{ turn: 0, action: null, observation, reward: 0, done: false, success: false }];
  let difference: string | null = null;
  let total = 0;
  turns.forEach((recorded, turn) => {
    if (observation !== recorded.observation) difference ??= `turn ${turn + 1} starts with another observation`;
    let reward = 0;
    // A game shows the message of an action only once. So in a turn without actions, the next observation is the game's state.
    if (recorded.actions.length === 0) observation = game.render();
    for (const action of recorded.actions) {
      const effect = act(game, action);
      reward += effect.reward;
      observation = effect.message ?? game.render();
      const { done, success } = effect;
      frames.push({ turn, action, observation, reward: total + reward, done, success });
    }
    total += reward;
    if (Math.abs(reward - recorded.reward) > 1e-9) {
      difference ??= `turn ${turn + 1} earns ${reward}, but the record has ${recorded.reward}`;
    }
  });
  if (observation !== finalObservation) difference ??= "the final observation differs";
  return { frames, difference };
}

/** A game that a person plays by hand from a turn of a recorded episode. */
export class ManualGame {
  /** Names of the actions; null if any text is an action. */
  readonly actions: readonly string[] | null;
  frame: Frame;
  actionsLeft: number;
  readonly #game: LocalGame;

  /** Plays the recorded turns before `turn`. @throws {Error} if `replay` would throw, or if the game ends before `turn` */
  constructor(ticket: Ticket, { turns }: Recorded, turn: number, play: PlayAnswer) {
    const game = openGame(ticket, play);
    this.#game = game;
    this.actions = game.kind === "discrete" ? game.actions : null;
    this.frame = { turn, action: null, observation: game.render(), reward: 0, done: false, success: false };
    const known = play.envs.find(({ name }) => name === ticket.env);
    this.actionsLeft = known === undefined ? envTag(ticket.env).actionsMax : known.rules.actionsMax;
    for (const action of turns.slice(0, turn).flatMap(({ actions }) => actions)) this.play(action);
  }

  /** @throws {Error} if the game is over, or has no such action */
  play(action: string): void {
    if (this.frame.done) throw new Error("the game is over; take over at an earlier turn");
    if (this.actionsLeft === 0) throw new Error("no actions are left; take over at an earlier turn");
    const { reward, message, done, success } = act(this.#game, action);
    this.actionsLeft--;
    const observation = message ?? this.#game.render();
    this.frame = { turn: this.frame.turn, action, observation, reward: this.frame.reward + reward, done, success };
  }
}

// All modules have loaded. Before this line, a call of a stubbed module does nothing; after it, a call throws (assets.ts).
Object.assign(globalThis, { [Symbol.for(import.meta.url)]: true });
