/**
 * Plays a recorded episode again, and says where it comes out different. Knows no store and no process.
 *
 * - Two questions, apart: does the env still answer so to the recorded replies, and does the policy still write these replies?
 *   For the first the recorded tokens are handed out in place of a policy; everything else is as a sampler plays.
 * - Equal means equal bytes: every token, log-probability, reward and observation.
 */
import { isDeepStrictEqual } from "node:util";
import type { Dialogue } from "../../model/text/dialogue.ts";
import type { Clock } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import { EnvServer } from "../env-server/env-server.ts";
import { opener } from "../env-server/start.ts";
import { tagOf } from "../play/envs-of-run.ts";
import { playEpisode } from "../play/play-episode.ts";
import type { GivenReply } from "../play/transcript.ts";
import type { Outcome, PlayedOutcome, Ticket } from "../protocol.ts";
import type { Replies } from "../sampler/policy.ts";
import { rulesOf } from "../sampler/start.ts";

export interface Replay {
  readonly config: RunConfig;
  readonly ticket: Ticket;
  readonly recorded: PlayedOutcome;
  readonly dialogue: Dialogue;
  readonly clock: Clock;
  readonly warn: (text: string) => void;
}

/** Where a replay differs first from the record. */
export interface Difference {
  /** "turns.2.observation", "trajectory.tokens[17]". */
  readonly where: string;
  readonly recorded: unknown;
  readonly replayed: unknown;
}

/** The env, with the recorded replies. @returns null if all is equal */
export const replayEnv = (replay: Replay): Promise<Difference | null> => playAgain(replay, recordedPolicy(replay));

/** Env and sampler. @param policy  with the episode's own weights loaded @returns null if all is equal */
export const replayWhole = (replay: Replay, policy: Replies): Promise<Difference | null> => playAgain(replay, policy);

/** Whom the env server's episodes belong to. */
const PLAYER = "replay";

async function playAgain(replay: Replay, policy: Replies): Promise<Difference | null> {
  const { config, ticket, recorded, dialogue, clock, warn } = replay;
  const { idleMs, answerMsMax } = config.envServer;
  const find = (env: string) => opener(config, env);
  const envs = new EnvServer({ find, episodesMax: 1, idleMs, answerMsMax, clock, warn });
  try {
    const outcome = await playEpisode(ticket, {
      rules: rulesOf(config),
      tag: tagOf(config, ticket.env),
      dialogue,
      weights: recorded.trajectory,
      policy,
      askEnv: async (ask) => envs.answer(PLAYER, ask),
      closeEnv: ({ episode }) => envs.forget(PLAYER, episode),
    });
    return firstDifference(recorded, withoutOthers(outcome));
  } catch (error) {
    if (error instanceof Divergence) return error.difference;
    throw error;
  } finally {
    await envs.stop();
  }
}

/** What the trajectory says of its weights, and nothing that `weights` brought besides. */
function withoutOthers(outcome: Outcome): Outcome {
  if (!("trajectory" in outcome)) return outcome;
  const { tokens, written, logProbs, contexts, turns, version, digest } = outcome.trajectory;
  return { ...outcome, trajectory: { tokens, written, logProbs, contexts, turns, version, digest } };
}

/** The record ran out, or asks something else: the replay cannot go on. */
class Divergence extends Error {
  override readonly name = "Divergence";
  readonly difference: Difference;

  constructor(difference: Difference) {
    super(`replay differs at ${difference.where}`);
    this.difference = difference;
  }
}

/** Hands out what was written, a turn at a time. */
function recordedPolicy({ recorded }: Replay): Replies {
  const replies = repliesOf(recorded);
  let next = 0;
  return {
    open: () => Promise.resolve(),
    close: () => Promise.resolve(),
    reply() {
      const reply = replies[next++];
      if (reply !== undefined) return Promise.resolve(reply as GivenReply & { tokens: number[]; logProbs: number[] });
      throw new Divergence({ where: "turns.length", recorded: replies.length, replayed: "more" });
    },
  };
}

function repliesOf({ trajectory, turns }: PlayedOutcome): GivenReply[] {
  const { tokens, written, logProbs, turns: spans } = trajectory;
  return spans.map(({ end }, turn) => {
    let from = end + 1;
    while (from > 0 && written[from - 1] === 1) from--;
    const { cut } = turns[turn]!;
    return { tokens: [...tokens.subarray(from, end + 1)], logProbs: [...logProbs.subarray(from, end + 1)], cut };
  });
}

/** Depth first, in the order of the record's keys. */
export function firstDifference(recorded: unknown, replayed: unknown, where = ""): Difference | null {
  if (isDeepStrictEqual(recorded, replayed)) return null;
  if (!isTree(recorded) || !isTree(replayed)) return { where, recorded, replayed };
  for (const key of new Set([...Object.keys(recorded), ...Object.keys(replayed)])) {
    const found = firstDifference(recorded[key], replayed[key], where === "" ? key : `${where}.${key}`);
    if (found !== null) return found;
  }
  return { where, recorded, replayed };
}

const isTree = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;
