/** Metrics of the episodes that an update or a validation played. All functions are pure. */
import { passCurve } from "../../envs/analysis/evaluate.ts";
import { repetition, rewardSpread } from "../../model/health/diagnostics.ts";
import { mean } from "../../model/statistics.ts";
import { rawReward, type Trajectory, writtenTokens } from "../../model/trajectory.ts";
import { type MetricName, type MetricValues, metric, partName } from "../metrics/metrics.ts";
import type { FinishedTicket, PlayedTicket } from "../play/finished-ticket.ts";
import { type Outcome, type PlayedOutcome, STOP_REASONS, type Ticket } from "../protocol.ts";

/**
 * Metrics of played tickets, under `train/` or `validate/`. With several envs, each env has its own metrics too.
 *
 * @param played    at least one
 * @param thinkEnd  the token that closes a thought; null if the prompt asks for no thought, or if no single token closes one
 */
export function rolloutMetrics(
  purpose: Ticket["purpose"],
  played: readonly PlayedTicket[],
  thinkEnd: number | null = null,
): MetricValues {
  const values = numbersOf(purpose, played, thinkEnd);
  const byEnv = Map.groupBy(played, ({ ticket }) => ticket.env);
  if (byEnv.size > 1) {
    for (const [env, own] of byEnv) {
      for (const [name, value] of Object.entries(numbersOf(purpose, own, thinkEnd)) as [MetricName, number][]) {
        if (metric(name).parts === "env") values[partName(name, "env", env)] = value;
      }
      const spread = purpose === "train" ? spreadOf(own) : null;
      if (spread !== null) values[partName("train/in_group_std", "env", env)] = spread;
    }
  }
  return values;
}

/** In-group standard deviation of the raw reward; null if no group has two members. */
const spreadOf = (played: readonly PlayedTicket[]): number | null =>
  rewardSpread(
    played.map(({ outcome }) => rawReward(outcome.trajectory)),
    played.map(({ ticket }) => ticket.group),
  )?.rewardStd ?? null;

function numbersOf(purpose: Ticket["purpose"], played: readonly PlayedTicket[], thinkEnd: number | null): MetricValues {
  const outcomes = played.map(({ outcome }) => outcome);
  const meanOf = (of: (outcome: PlayedOutcome) => number) => mean(outcomes.map(of));
  const turns = outcomes.flatMap((outcome) => outcome.turns);
  const share = (of: (turn: (typeof turns)[number]) => boolean) => turns.filter(of).length / turns.length;
  const common = {
    success: meanOf(({ success }) => Number(success)),
    reward_mean: meanOf(({ trajectory }) => rawReward(trajectory)),
    turns: meanOf((outcome) => outcome.turns.length),
    actions: meanOf((outcome) => outcome.turns.reduce((sum, { actions }) => sum + actions.length, 0)),
    format_errors: share(({ wellFormed }) => !wellFormed),
  };
  const boards = [...Map.groupBy(played, ({ ticket }) => ticket.group).values()];
  const solved = boards.map((tries) => tries.filter(({ outcome }) => outcome.success).length);
  if (purpose === "validate") return { ...prefixed("validate", common), ...passes(solved, played.length) };
  const stops = STOP_REASONS.map((stop) => [`stop_${stop}`, meanOf((outcome) => Number(outcome.stop === stop))]);
  return prefixed("train", {
    ...common,
    penalty_mean: meanOf((outcome) => outcome.turns.reduce((sum, { penalty }) => sum + penalty, 0)),
    reply_tokens: meanOf(({ trajectory }) => writtenTokens(trajectory)),
    ...(thinkEnd === null ? {} : { think_tokens: meanOf(({ trajectory }) => thinkTokens(trajectory, thinkEnd)) }),
    effective: share(({ effective }) => effective),
    valid: share(({ valid }) => valid),
    thinking_rate: share(({ reply }) => THOUGHT.test(reply)),
    ...repetitionOf(outcomes),
    ...likelihoodOf(outcomes),
    cut_replies: share(({ cut }) => cut),
    overflowed_turns: share(({ dropped }) => dropped > 0),
    contexts: meanOf(({ trajectory }) => trajectory.contexts.length),
    groups: boards.length,
    pass_at_group: solved.filter((count) => count > 0).length / boards.length,
    ...Object.fromEntries(stops),
  });
}

/** pass@k; empty if each board has only one try. The caller gives all boards the same number of tries. */
function passes(solved: readonly number[], played: number): MetricValues {
  const tries = played / solved.length;
  if (tries < 2 || !Number.isInteger(tries)) return {};
  return Object.fromEntries(passCurve(solved, tries).map(({ k, share }) => [partName("validate/pass", "k", k), share]));
}

/** Matches a reply whose thought is closed and not empty. */
const THOUGHT = /<think>\s*(?!<\/think>)\S[\s\S]*?<\/think>/;

/** Length of the n-grams whose repetition is a sign of the Echo Trap. */
const GRAM_TOKENS = 4;

function repetitionOf(outcomes: readonly PlayedOutcome[]): Record<string, number> {
  const shares = outcomes
    .map(({ trajectory: { tokens, written } }) =>
      repetition(
        tokens.filter((_, i) => written[i] === 1),
        GRAM_TOKENS,
      ),
    )
    .filter((share) => share !== null);
  return shares.length === 0 ? {} : { repetition: mean(shares) };
}

/** Mean log-probability of the written tokens of solved episodes; empty if the policy solved no episode. */
function likelihoodOf(outcomes: readonly PlayedOutcome[]): Record<string, number> {
  const solved = outcomes.filter(({ success }) => success).map(({ trajectory }) => trajectory);
  const tokens = solved.reduce((sum, trajectory) => sum + writtenTokens(trajectory), 0);
  if (tokens === 0) return {};
  const sumOf = ({ logProbs, written }: Trajectory) => logProbs.reduce((sum, one, i) => sum + one * written[i]!, 0);
  return { solved_log_prob: solved.reduce((sum, trajectory) => sum + sumOf(trajectory), 0) / tokens };
}

const prefixed = (prefix: string, values: Record<string, number>) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [`${prefix}/${name}`, value]));

/** Counts the written tokens of each turn before the token that closes the thought. If no token closes the thought, counts the whole turn. */
function thinkTokens({ tokens, written, turns }: Trajectory, thinkEnd: number): number {
  let count = 0;
  let at = 0;
  for (const { end } of turns) {
    // Only a written token closes a thought, because a prompt may contain the thought of an earlier turn.
    while (at <= end && !(written[at] === 1 && tokens[at] === thinkEnd)) count += written[at++]!;
    at = end + 1;
  }
  return count;
}

/** How many of an update's tickets ended in each way. */
export function endCounts(finished: readonly FinishedTicket[]): MetricValues {
  const count = (...of: Outcome["status"][]) => finished.filter(({ outcome }) => of.includes(outcome.status)).length;
  return {
    "train/scored_episodes": count("scored"),
    "train/truncated_episodes": count("truncated"),
    "train/env_errors": count("envError"),
    "train/aborted_episodes": count("aborted"),
    "train/failed_episodes": count("envError", "aborted"),
  };
}
