/**
 * How good a policy is on fixed boards: plays them as a sampler does, with an env server called directly in place of one
 * behind a socket. Learns nothing and stores nothing.
 *
 * - The boards, the temperature and the coins are those of the run's own validation of the same update. So with the run's
 *   `validate` settings the result is the number that the run itself reported, not one near it.
 * - An episode that could not be played is an error, never a failure of the policy: a share of fewer boards would be
 *   compared with shares of all of them.
 */

import { boardInterval } from "../../envs/analysis/evaluate.ts";
import type { Failure } from "../../envs/analysis/failure.ts";
import { type PassAtK, passCurve } from "../../envs/analysis/pass-at-k.ts";
import type { EnvTag } from "../../envs/tag.ts";
import type { Dialogue } from "../../model/text/dialogue.ts";
import type { Clock } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import { EnvServer } from "../env-server/env-server.ts";
import { episodeOpener, playedEnvs, tagOf } from "../play/envs-of-run.ts";
import type { PlayedTicket } from "../play/finished-ticket.ts";
import { type EpisodePolicy, playEpisode, rulesOf } from "../play/play-episode.ts";
import { STOP_REASONS, type StopReason, type Ticket } from "../protocol.ts";
import { failureCounts, type Thoughts, thoughtsOf } from "../training/behavior.ts";
import { rolloutMetrics } from "../training/rollout-metrics.ts";
import { validationTickets } from "../training/tickets-to-play.ts";

export interface PolicyEvaluation {
  /** Share of episodes that ended in success, and its 95 % Wilson interval. */
  readonly success: number;
  readonly ci95: readonly [low: number, high: number];
  /** Per episode; the reward without penalties. */
  readonly meanReward: number;
  readonly meanTurns: number;
  readonly meanActions: number;
  /** Share of turns whose reply did not have the asked-for form. */
  readonly formatErrors: number;
  /** Share of boards solved by at least one of k tries; of one try if there was only one. */
  readonly passAt: readonly PassAtK[];
  /** Episodes by why they stopped. */
  readonly stops: Readonly<Record<StopReason, number>>;
  /** Failed episodes by why they failed. */
  readonly failures: Readonly<Record<Failure, number>>;
  /** null if its thoughts claim nothing that can be checked. */
  readonly thoughts: Thoughts | null;
}

export interface EvaluationOptions {
  /** `env` says what is played, one env or a mix, `validate` which boards of each and how warm; the rest is as the policy was trained. */
  readonly config: RunConfig;
  /** With weights loaded. */
  readonly policy: EpisodePolicy;
  readonly dialogue: Dialogue;
  /** What `startSavedPolicy` gave. */
  readonly weights: { readonly version: number; readonly digest: string; readonly validation: string };
  /** Episodes played at once; as many as the policy has. */
  readonly slots: number;
  readonly clock: Clock;
  /** Told what went wrong and changes no result. */
  readonly warn: (text: string) => void;
  /** After each episode. */
  readonly progress?: (played: number, solved: number) => void;
}

/**
 * @returns each env of the config by its name
 * @throws {Error} naming the first episode that could not be played, and why.
 */
export async function evaluatePolicy(options: EvaluationOptions): Promise<ReadonlyMap<string, PolicyEvaluation>> {
  const { config, weights, slots, clock, warn, progress } = options;
  const tags = new Map(playedEnvs(config).map(({ name }) => [name, tagOf(config, name)]));
  const tickets = validationTickets(config, weights.validation, config.validate.temperature, weights.version);
  const { idleMs, answerMsMax } = config.envServer;
  const envs = new EnvServer({
    find: (env) => episodeOpener(config, env),
    episodesMax: slots,
    idleMs,
    answerMsMax,
    clock,
    warn,
  });
  const played: PlayedTicket[] = new Array(tickets.length);
  let [next, done, solved] = [0, 0, 0];
  async function playOn(): Promise<void> {
    while (next < tickets.length) {
      const index = next++;
      const one = await playOne(tickets[index]!, options, tags.get(tickets[index]!.env)!, envs);
      played[index] = one;
      if (one.outcome.success) solved++;
      progress?.(++done, solved);
    }
  }
  try {
    await Promise.all(Array.from({ length: Math.min(slots, tickets.length) }, playOn));
  } finally {
    // After an error, the others play no further episode.
    next = tickets.length;
    await envs.stop();
  }
  const byEnv = Map.groupBy(played, ({ ticket }) => ticket.env);
  return new Map([...tags].map(([name, tag]) => [name, summary(byEnv.get(name)!, tag)]));
}

/** Whom the env server's episodes belong to. */
const PLAYER = "eval";

async function playOne(
  ticket: Ticket,
  { config, policy, dialogue, weights }: EvaluationOptions,
  tag: EnvTag,
  envs: EnvServer,
): Promise<PlayedTicket> {
  const outcome = await playEpisode(ticket, {
    rules: rulesOf(config),
    tag,
    dialogue,
    policy,
    weights,
    askEnv: async (ask) => envs.answer(PLAYER, ask),
    closeEnv: ({ episode }) => envs.forget(PLAYER, episode),
  });
  if ("trajectory" in outcome) return { ticket, sampler: PLAYER, outcome };
  throw new Error(`board ${ticket.layoutSeed} of ${ticket.env} could not be played: ${outcome.detail}`);
}

/** What was played of one env, in numbers. */
export function summary(played: readonly PlayedTicket[], tag: EnvTag): PolicyEvaluation {
  const metrics = rolloutMetrics("validate", played);
  const boards = [...Map.groupBy(played, ({ ticket }) => ticket.group).values()];
  const solved = boards.map((tries) => tries.filter(({ outcome }) => outcome.success).length);
  const tries = played.length / boards.length;
  const stopped = (stop: StopReason) => played.filter(({ outcome }) => outcome.stop === stop).length;
  return {
    success: metrics["validate/success"]!,
    ci95: boardInterval(solved, tries),
    passAt: passCurve(solved, tries),
    meanReward: metrics["validate/reward_mean"]!,
    meanTurns: metrics["validate/turns"]!,
    meanActions: metrics["validate/actions"]!,
    formatErrors: metrics["validate/format_errors"]!,
    stops: Object.fromEntries(STOP_REASONS.map((stop) => [stop, stopped(stop)])) as Record<StopReason, number>,
    failures: failureCounts(played, () => tag),
    thoughts: thoughtsOf(played, () => tag),
  };
}
