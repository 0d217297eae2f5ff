/**
 * Plays the turns of one episode at an env server, and records them. Samplers and evaluations of hosted models share this loop.
 * A `Player` writes the replies. This file knows no tokens and no prompts.
 *
 * - A `failed` answer of the env server becomes an `EpisodeError`, never a turn with reward 0.
 * - If an episode stops before the env ends it, `playTurns` closes the episode at the env server. Otherwise the server would keep it.
 */
import { EpisodeError } from "../errors.ts";
import type { AnswerTo, EnvAsk, Messages, StopReason, Ticket, TurnRecord } from "../protocol.ts";

/** The env server that holds the episode. */
export interface EnvConnection {
  askEnv<A extends EnvAsk>(ask: A): AnswerTo<A> | Promise<AnswerTo<A>>;
  /** Makes the env server forget the episode. */
  closeEnv(close: Messages["env.close"]): void;
}

export interface Player {
  /** @returns null if the context has no room for another turn. */
  reply(observation: string, actionsLeft: number): Promise<TurnReply | null>;
  /** `playTurns` calls this with each turn that the env answered. */
  turnPlayed(turn: TurnRecord): void;
  /** What the player subtracts from a turn's reward, in addition to the env's own penalty. */
  penalty?(turn: Pick<TurnRecord, "observation" | "reply" | "actions">): number;
}

/** What the env server and the turn's record need of a reply. */
export type TurnReply = { readonly text: string } & Pick<TurnRecord, "cut" | "dropped">;

export interface PlayedTurns {
  readonly stop: StopReason;
  readonly success: boolean;
  readonly turns: TurnRecord[];
  /** The state after the last turn. */
  readonly finalObservation: string;
  /** The env's further numbers, each summed over the turns. */
  readonly extra: Record<string, number>;
}

type EpisodeSeeds = Pick<Ticket, "episode" | "env" | "layoutSeed" | "dynamicsSeed" | "actionsPerTurnMax">;

/** @throws {EpisodeError} if the env failed or its server was lost; the error names the boundary of the failure. */
export async function playTurns(ticket: EpisodeSeeds, player: Player, env: EnvConnection): Promise<PlayedTurns> {
  const { episode, layoutSeed, dynamicsSeed } = ticket;
  const turns: TurnRecord[] = [];
  // A map, because an env may name a number "constructor".
  const extra = new Map<string, number>();
  const played = (finalObservation: string) => ({ turns, finalObservation, extra: Object.fromEntries(extra) });
  let isOpen = true;
  try {
    const board = { env: ticket.env, layoutSeed, dynamicsSeed, ...limitOf(ticket) };
    const opened = await askEnv(env, { type: "env.open", episode, ...board });
    let { observation, actionsLeft } = opened;
    for (;;) {
      const reply = await player.reply(observation, actionsLeft);
      if (reply === null) return { stop: "context", success: false, ...played(observation) };
      const stepped = await askEnv(env, { type: "env.step", episode, turn: turns.length, reply: reply.text });
      const turn = turnRecord(observation, reply, stepped, player);
      turns.push(turn);
      for (const [name, value] of Object.entries(stepped.extra)) extra.set(name, (extra.get(name) ?? 0) + value);
      player.turnPlayed(turn);
      ({ observation, actionsLeft } = stepped);
      if (stepped.ending === null) continue;
      isOpen = false;
      return { stop: stepped.ending, success: stepped.success, ...played(observation) };
    }
  } finally {
    if (isOpen) env.closeEnv({ type: "env.close", episode });
  }
}

/** Leaves the key out if its value is undefined: the type allows a missing key, but no undefined value. */
export const limitOf = ({ actionsPerTurnMax }: Pick<Ticket, "actionsPerTurnMax">) =>
  actionsPerTurnMax === undefined ? {} : { actionsPerTurnMax };

/** An episode that the game itself ended is scored. A budget that ran out, or a full context, truncates the episode. */
export const statusOf = (stop: StopReason): "scored" | "truncated" =>
  stop === "success" || stop === "over" ? "scored" : "truncated";

function turnRecord(
  observation: string,
  { text, cut, dropped }: TurnReply,
  stepped: Messages["env.stepped"],
  player: Player,
): TurnRecord {
  const { actions, reward, wellFormed, effective, valid } = stepped;
  const penalty = stepped.penalty - (player.penalty?.({ observation, reply: text, actions }) ?? 0);
  return { observation, reply: text, cut, dropped, actions, reward, penalty, wellFormed, effective, valid };
}

async function askEnv<A extends EnvAsk>(env: EnvConnection, ask: A) {
  const answer = await env.askEnv(ask);
  if (answer.type === "failed")
    throw new EpisodeError(answer.detail, answer.code === "deadline" ? "closed" : answer.code);
  return answer as Exclude<AnswerTo<A>, { type: "failed" }>;
}
