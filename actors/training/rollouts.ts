/** What an update or a validation plays, and what its outcomes say in numbers. Pure. */

import { passCurve } from "../../envs/analysis/pass-at-k.ts";
import { repetition, rewardSpread } from "../../model/health/diagnostics.ts";
import type { TrainingEpisode, UpdateResult, UpdateSettings } from "../../model/learn/update/types.ts";
import { hash64 } from "../../model/rng.ts";
import { rawReward, type Trajectory, writtenTokens } from "../../model/trajectory.ts";
import type { RunConfig } from "../config/config.ts";
import type { Finished } from "../learner/tickets.ts";
import { type MetricName, metric, partName } from "../metrics/metrics.ts";
import { playedEnvs } from "../play/envs-of-run.ts";
import { type EpisodeRow, type Outcome, type PlayedOutcome, STOP_REASONS, type Ticket } from "../protocol.ts";
import { boardsPerUpdate, groupEnvs } from "./curriculum.ts";

/** Seed of an episode's slips and payouts. RAGEN shares them within a group; strict mode gives each member its own. */
function dynamicsSeed(config: RunConfig, layoutSeed: number, member: number): number {
  return config.prompt.compat === "strict" ? hash64(`dynamics ${layoutSeed} ${member}`)[0] : layoutSeed;
}

/** Names the episodes of an update or validation, and so their coins. @param round  how often the run was rolled back */
export const batchName = (purpose: "u" | "v", update: number, round: number): string =>
  `${purpose}${update}${round === 0 ? "" : `r${round}`}`;

/** A group to be played: its number in the update, and its env. */
export interface Wanted {
  readonly group: number;
  readonly env: string;
}

export const wantedGroups = (envs: readonly string[]): Wanted[] => envs.map((env, group) => ({ group, env }));

/**
 * The tickets of update `update` (from 0): P groups of N, each group on the next board.
 *
 * @param round  how often the run was rolled back
 * @param wanted  numbers from 0; those from P on replace others (learner.resampleRoundsMax)
 */
export function trainingTickets(
  config: RunConfig,
  update: number,
  version: number,
  round = 0,
  wanted: readonly Wanted[] = wantedGroups(groupEnvs(config)),
): Ticket[] {
  const { groupSize, firstSeed, temperature, topP, topK } = config.rollout;
  const exact = config.learner.mode === "sync";
  const name = batchName("u", update, round);
  return wanted.flatMap(({ group, env }) => {
    const layoutSeed = firstSeed + update * boardsPerUpdate(config) + group;
    return Array.from({ length: groupSize }, (_, member) => ({
      episode: `${name}.g${group}.m${member}`,
      purpose: "train" as const,
      group,
      member,
      env,
      layoutSeed,
      dynamicsSeed: dynamicsSeed(config, layoutSeed, member),
      temperature,
      topP,
      topK,
      version,
      exact,
      attempt: 0,
    }));
  });
}

/**
 * The tickets of one validation: always the same boards, of each env, and on each as many tries as are asked for.
 *
 * @param name  unique among the validations of a run
 */
export function validationTickets(config: RunConfig, name: string, temperature: number, version: number): Ticket[] {
  const { episodes, groupSize, firstSeed } = config.validate;
  const envs = playedEnvs(config);
  return Array.from({ length: envs.length * episodes * groupSize }, (_, i) => {
    const [group, member] = [Math.floor(i / groupSize), i % groupSize];
    const layoutSeed = firstSeed + (group % episodes);
    // The first try at a board is called, and so plays, as it would if there were no other.
    const episode = `${name}.t${temperature}.b${group}${member === 0 ? "" : `.m${member}`}`;
    return {
      episode,
      purpose: "validate",
      group,
      member,
      env: envs[Math.floor(group / episodes)]!.name,
      layoutSeed,
      dynamicsSeed: dynamicsSeed(config, layoutSeed, member),
      temperature,
      topP: 1,
      topK: 0,
      version,
      exact: true,
      attempt: 0,
    } as const;
  });
}

export interface PlayedTicket extends Finished {
  readonly outcome: PlayedOutcome;
}

/** What the trainer is given of episodes. */
export const trainedOn = (
  played: readonly PlayedTicket[],
  { estimator }: Pick<UpdateSettings, "estimator">,
): TrainingEpisode[] =>
  played.map(({ ticket, outcome }) => ({
    trajectory: outcome.trajectory,
    group: ticket.group,
    tag: ticket.env,
    ...(estimator.kind === "gigpo" ? { anchors: outcome.turns.map(({ observation }) => observation) } : {}),
  }));

/** Those whose outcome may enter a loss. */
export const playedOf = (finished: readonly Finished[]): PlayedTicket[] =>
  finished.filter((one): one is PlayedTicket => "trajectory" in one.outcome);

/**
 * Metrics of what was played, under `train/` or `validate/`; of several envs, those of each as well.
 *
 * @param played    at least one
 * @param thinkEnd  the token that closes a thought; null if the policy is not asked to think
 */
export function rolloutMetrics(
  purpose: Ticket["purpose"],
  played: readonly PlayedTicket[],
  thinkEnd: number | null = null,
): Values {
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

type Values = Partial<Record<MetricName, number>>;

/** In-group standard deviation of the raw reward; null if no group has two members. */
const spreadOf = (played: readonly PlayedTicket[]): number | null =>
  rewardSpread(
    played.map(({ outcome }) => rawReward(outcome.trajectory)),
    played.map(({ ticket }) => ticket.group),
  )?.rewardStd ?? null;

function numbersOf(purpose: Ticket["purpose"], played: readonly PlayedTicket[], thinkEnd: number | null): Values {
  const outcomes = played.map(({ outcome }) => outcome);
  const mean = (of: (outcome: PlayedOutcome) => number) =>
    outcomes.reduce((sum, outcome) => sum + of(outcome), 0) / outcomes.length;
  const turns = outcomes.flatMap((outcome) => outcome.turns);
  const share = (of: (turn: (typeof turns)[number]) => boolean) => turns.filter(of).length / turns.length;
  const common = {
    success: mean(({ success }) => Number(success)),
    reward_mean: mean(({ trajectory }) => rawReward(trajectory)),
    turns: mean((outcome) => outcome.turns.length),
    actions: mean((outcome) => outcome.turns.reduce((sum, { actions }) => sum + actions.length, 0)),
    format_errors: share(({ wellFormed }) => !wellFormed),
  };
  const boards = [...Map.groupBy(played, ({ ticket }) => ticket.group).values()];
  const solved = boards.map((tries) => tries.filter(({ outcome }) => outcome.success).length);
  if (purpose === "validate") return { ...prefixed("validate", common), ...passes(solved, played.length) };
  const stops = STOP_REASONS.map((stop) => [`stop_${stop}`, mean((outcome) => Number(outcome.stop === stop))]);
  return prefixed("train", {
    ...common,
    penalty_mean: mean((outcome) => outcome.turns.reduce((sum, { penalty }) => sum + penalty, 0)),
    reply_tokens: mean(({ trajectory }) => writtenTokens(trajectory)),
    ...(thinkEnd === null ? {} : { think_tokens: mean(({ trajectory }) => thinkTokens(trajectory, thinkEnd)) }),
    effective: share(({ effective }) => effective),
    valid: share(({ valid }) => valid),
    thinking_rate: share(({ reply }) => THOUGHT.test(reply)),
    ...repetitionOf(outcomes),
    cut_replies: share(({ cut }) => cut),
    overflowed_turns: share(({ dropped }) => dropped > 0),
    contexts: mean(({ trajectory }) => trajectory.contexts.length),
    groups: boards.length,
    pass_at_group: solved.filter((count) => count > 0).length / boards.length,
    ...Object.fromEntries(stops),
  });
}

/** pass@k of boards on each of which there were equally many tries; nothing if there was one. */
function passes(solved: readonly number[], played: number): Values {
  const tries = played / solved.length;
  if (tries < 2 || !Number.isInteger(tries)) return {};
  return Object.fromEntries(passCurve(solved, tries).map(({ k, share }) => [partName("validate/pass", "k", k), share]));
}

/** A thought that is closed and not empty. */
const THOUGHT = /<think>\s*(?!<\/think>)\S[\s\S]*?<\/think>/;

/** Tokens of the n-grams whose repetition is a sign of the Echo Trap. */
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
  return shares.length === 0 ? {} : { repetition: shares.reduce((sum, share) => sum + share, 0) / shares.length };
}

const prefixed = (prefix: string, values: Record<string, number>) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [`${prefix}/${name}`, value]));

/** Written tokens before the one that closes the thought, over all turns; a thought that is never closed is all thought. */
function thinkTokens({ tokens, written, turns }: Trajectory, thinkEnd: number): number {
  let count = 0;
  let at = 0;
  for (const { end } of turns) {
    while (at <= end && tokens[at] !== thinkEnd) count += written[at++]!;
    at = end + 1;
  }
  return count;
}

/** How an update's tickets ended, one count per way. */
export function endCounts(finished: readonly Finished[]): Partial<Record<MetricName, number>> {
  const count = (...of: Outcome["status"][]) => finished.filter(({ outcome }) => of.includes(outcome.status)).length;
  return {
    "train/scored_episodes": count("scored"),
    "train/truncated_episodes": count("truncated"),
    "train/env_errors": count("envError"),
    "train/aborted_episodes": count("aborted"),
    "train/failed_episodes": count("envError", "aborted"),
  };
}

/** How many could not be played, and why the first. */
export function unplayed(finished: readonly Finished[]): string {
  const failed = finished.filter(({ outcome }) => !("trajectory" in outcome));
  const [first] = failed;
  const why =
    first !== undefined && "detail" in first.outcome ? `; ${first.ticket.episode}: ${first.outcome.detail}` : "";
  return `${failed.length} of ${finished.length} episodes could not be played${why}`;
}

/** Rows of the trajectory log, nothing trained on yet. */
export const rowsOf = (finished: readonly Finished[]): EpisodeRow[] =>
  finished.map(({ ticket, sampler, outcome }) => ({ ticket, sampler, outcome, update: null, advantage: null }));

/** Rows of those that were trained on get their advantages. @param update  from 1 */
export function tellAdvantages(
  rows: EpisodeRow[],
  finished: readonly Finished[],
  trained: readonly Finished[],
  { advantages, tokenAdvantages }: Pick<UpdateResult, "advantages" | "tokenAdvantages">,
  update: number,
): void {
  for (const [i, one] of trained.entries()) {
    const row = finished.indexOf(one);
    const advantage = advantages[i]!;
    const ofTokens = tokenAdvantages?.[i] ?? undefined;
    rows[row] = { ...rows[row]!, update: advantage === null ? null : update, advantage, tokenAdvantages: ofTokens };
  }
}
