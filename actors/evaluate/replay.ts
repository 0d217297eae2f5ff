/**
 * Plays a recorded episode again and finds the first difference between the replay and the record. This file reads no store and starts no
 * process.
 *
 * - `replayEnv` gives the env the recorded replies and compares the env's answers; it needs no policy. `replayWhole` also lets the policy
 *   write the replies, and compares them.
 * - Every value must be exactly equal: every token, log-probability, reward and observation, and the version and digest of the weights.
 * - `replayWhole` computes every value that it compares, except the policy version. `replayEnv` takes replies, log-probabilities, policy
 *   version and digest from the record, and computes the rest.
 */
import { isDeepStrictEqual } from "node:util";
import type { Dialogue } from "../../model/text/dialogue.ts";
import type { Clock } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import { EnvServer } from "../env-server/env-server.ts";
import { episodeOpener, tagOf } from "../play/envs-of-run.ts";
import { type EpisodePolicy, playEpisode, rulesOf } from "../play/play-episode.ts";
import type { ReplyTokens } from "../play/transcript.ts";
import type { PlayedOutcome, PolicyVersion, Ticket } from "../protocol.ts";

export interface Replay {
  readonly config: RunConfig;
  readonly ticket: Ticket;
  readonly recorded: PlayedOutcome;
  readonly dialogue: Dialogue;
  readonly clock: Clock;
  readonly warn: (text: string) => void;
}

/** The first value that differs. */
export interface Difference {
  /** Path of the value, such as "turns.2.observation" or "trajectory.tokens.17". */
  readonly where: string;
  readonly recorded: unknown;
  readonly replayed: unknown;
}

/** The env server records this name as the owner of the episode. */
const PLAYER = "replay";

/** Plays the env with the recorded replies. @returns null if all values are equal */
export const replayEnv = (replay: Replay): Promise<Difference | null> =>
  replayWhole(replay, recordedPolicy(replay), replay.recorded.trajectory);

/**
 * Plays the episode again with env and policy.
 *
 * @param policy   the policy, with `weights` loaded
 * @param weights  the version of the record, and the digest of the checkpoint. If the record has another digest, this counts as a difference
 * @returns null if all values are equal
 */
export async function replayWhole(
  replay: Replay,
  policy: EpisodePolicy,
  weights: PolicyVersion,
): Promise<Difference | null> {
  const { config, ticket, recorded, dialogue, clock, warn } = replay;
  const find = (env: string) => episodeOpener(config, env);
  const envs = new EnvServer({ ...config.envServer, find, episodesMax: 1, clock, warn });
  try {
    const outcome = await playEpisode(ticket, {
      rules: rulesOf(config),
      tag: tagOf(config, ticket.env),
      dialogue,
      weights,
      policy,
      askEnv: async (ask) => envs.answer(PLAYER, ask),
      closeEnv: ({ episode }) => envs.forget(PLAYER, episode),
    });
    return firstDifference(recorded, outcome);
  } catch (error) {
    if (error instanceof Divergence) return error.difference;
    throw error;
  } finally {
    await envs.stop();
  }
}

/**
 * Compares the policy version and digest in an episode's record with other records of the run. In a run that was never resumed, each version
 * has one digest, and each digest has one version. A resumed run publishes the weights of its checkpoint under a new version, and may use a
 * version number a second time for other weights. So a pair of version and digest is right if another record has the same pair.
 *
 * @param others  the pairs of version and digest in checkpoints and in other episodes of the run
 * @returns null if `others` contains the episode's pair, or if no pair of `others` has the episode's version or the episode's digest
 */
export function weightsDifference(
  { version, digest }: PolicyVersion,
  others: readonly PolicyVersion[],
): Difference | null {
  if (others.some((other) => other.version === version && other.digest === digest)) return null;
  const sameVersion = others.find((other) => other.version === version);
  if (sameVersion !== undefined) {
    return { where: "trajectory.digest", recorded: digest, replayed: sameVersion.digest };
  }
  const sameDigest = others.find((other) => other.digest === digest);
  if (sameDigest !== undefined) {
    return { where: "trajectory.version", recorded: version, replayed: sameDigest.version };
  }
  return null;
}

/** The replay asks for a turn that the record does not have. */
class Divergence extends Error {
  override readonly name = "Divergence";
  readonly difference: Difference;

  constructor(difference: Difference) {
    super(`replay differs at ${difference.where}`);
    this.difference = difference;
  }
}

/** A policy that returns the recorded tokens of each turn in order. */
function recordedPolicy({ recorded }: Replay): EpisodePolicy {
  const replies = repliesOf(recorded);
  let next = 0;
  return {
    open: () => Promise.resolve(),
    close: () => Promise.resolve(),
    reply() {
      const reply = replies[next++];
      if (reply !== undefined) return Promise.resolve(reply);
      throw new Divergence({ where: "turns.length", recorded: replies.length, replayed: "more" });
    },
  };
}

function repliesOf({ trajectory, turns }: PlayedOutcome): ReplyTokens[] {
  const { tokens, written, logProbs, turns: spans } = trajectory;
  return turns.map(({ cut }, turn) => {
    const { end = -1, version } = spans[turn] ?? {};
    let from = end + 1;
    while (from > 0 && written[from - 1] === 1) from--;
    const reply = { tokens: [...tokens.subarray(from, end + 1)], logProbs: [...logProbs.subarray(from, end + 1)], cut };
    return version === undefined ? reply : { ...reply, version };
  });
}

/** Searches depth first, in the order of the record's keys. 0 and -0 are equal, because a message writes both as 0. @returns null if the values are equal */
export function firstDifference(recorded: unknown, replayed: unknown, where = ""): Difference | null {
  if (recorded === replayed || isDeepStrictEqual(recorded, replayed)) return null;
  if (!isObject(recorded) || !isObject(replayed)) return { where, recorded, replayed };
  for (const key of new Set([...Object.keys(recorded), ...Object.keys(replayed)])) {
    const found = firstDifference(recorded[key], replayed[key], where === "" ? key : `${where}.${key}`);
    if (found !== null) return found;
  }
  return recorded.constructor === replayed.constructor ? null : { where, recorded, replayed };
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;
