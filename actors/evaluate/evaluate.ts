/**
 * Evaluates a policy on fixed boards, and stores nothing. As in a sampler, `playEpisode` plays the episodes, but here it calls an env server
 * in the same thread.
 *
 * - With the run's `validate` settings, an evaluation has the boards, the temperature and the coins of the run's own validation of the same
 *   update. (Coins are the random numbers that choose tokens.) So the result is exactly the number that the run reported.
 * - If an episode cannot be played, the evaluation fails: a share of fewer boards cannot be compared with a share of all boards.
 */
import { boardInterval, type Evaluation, passCurve } from "../../envs/analysis/evaluate.ts";
import type { Failure } from "../../envs/analysis/failure.ts";
import type { EnvTag } from "../../envs/tag.ts";
import type { Dialogue } from "../../model/text/dialogue.ts";
import { writtenTokens } from "../../model/trajectory.ts";
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

/** `meanReward` does not include penalties. */
export interface PolicyEvaluation extends Evaluation {
  /** Share of turns with a malformed reply. */
  readonly formatErrors: number;
  readonly stops: Readonly<Record<StopReason, number>>;
  readonly failures: Readonly<Record<Failure, number>>;
  /** null if no thought makes a claim that the env can check. */
  readonly thoughts: Thoughts | null;
  /**
   * Estimate of the policy's entropy at this temperature, in nats per written token: the mean of -log p over the sampled tokens.
   * null at temperature 0, and for a hosted model.
   */
  readonly entropy: number | null;
  /** The played tickets, in the order of the boards. */
  readonly played: readonly PlayedTicket[];
}

export interface EvaluationOptions {
  /** `env` and `validate` may differ from the run's. All other settings equal those of the run that trained the policy. */
  readonly config: RunConfig;
  /** The policy, with its weights loaded. */
  readonly policy: EpisodePolicy;
  readonly dialogue: Dialogue;
  /** From `startSavedPolicy`. The name `validation` determines the coins. */
  readonly weights: { readonly version: number; readonly digest: string; readonly validation: string };
  /** Number of episodes that run at once, equal to the number of slots of `policy`. */
  readonly slots: number;
  readonly clock: Clock;
  /** The evaluation calls this function with each problem that does not change the result. */
  readonly warn: (text: string) => void;
  readonly progress?: (played: number, solved: number) => void;
}

/**
 * @returns the result of each env of the config, by name
 * @throws {Error} if an episode cannot be played; the message names the first such episode and the reason.
 */
export async function evaluatePolicy(options: EvaluationOptions): Promise<ReadonlyMap<string, PolicyEvaluation>> {
  const { config, weights, slots, clock, warn, progress } = options;
  const tags = new Map(playedEnvs(config).map(({ name }) => [name, tagOf(config, name)]));
  const tickets = validationTickets(config, weights.validation, config.validate.temperature, weights.version);
  const find = (env: string) => episodeOpener(config, env);
  const envs = new EnvServer({ ...config.envServer, find, episodesMax: slots, clock, warn });
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
    // After an error, this line keeps the other calls of `playOn` from beginning another episode.
    next = tickets.length;
    await envs.stop();
  }
  const byEnv = Map.groupBy(played, ({ ticket }) => ticket.env);
  return new Map([...tags].map(([name, tag]) => [name, summary(byEnv.get(name)!, tag)]));
}

/** The env server records this name as the owner of each episode. */
export const PLAYER = "eval";

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
    entropy: entropyOf(played),
    played,
  };
}

/** Mean of -log p over all tokens that the policy wrote; null if there are no such tokens, or if the temperature is 0. */
export function entropyOf(played: readonly PlayedTicket[]): number | null {
  if (played.some(({ ticket }) => ticket.temperature === 0)) return null;
  const trajectories = played.map(({ outcome }) => outcome.trajectory);
  const tokens = trajectories.reduce((total, trajectory) => total + writtenTokens(trajectory), 0);
  // A log-probability is 0 where the policy did not write the token.
  const sum = trajectories.reduce((total, { logProbs }) => logProbs.reduce((part, one) => part - one, total), 0);
  return tokens === 0 ? null : sum / tokens;
}
