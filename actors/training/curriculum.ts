/**
 * A curriculum decides how many groups each env of a mix gets. An env of the mix is a tag, or one difficulty of a tag, such as its number of
 * boxes. All functions are pure; the checkpoint holds the scores.
 *
 * - By success or reward: an env gets more groups if success (or reward) differs more within its groups. A group of equal rewards teaches
 *   nothing, because all of its advantages are 0. The numbers of groups of envs with equal scores differ by at most 1. If an env has no score yet, the proportions of the mix
 *   decide.
 * - By difficulty: the config lists the envs from easy to hard. Let E be the first env whose success is below `advanceAt`. Each env before E
 *   gets `groupsMin` groups, E gets all other groups, and each env after E gets none. If the policy forgets an env before E, that env becomes
 *   E again. If no env is below `advanceAt`, E is the last env.
 */
import { rewardSpread } from "../../model/health/diagnostics.ts";
import { mean } from "../../model/statistics.ts";
import { rawReward } from "../../model/trajectory.ts";
import type { RunConfig } from "../config/config.ts";
import { type MetricValues, partName } from "../metrics/metrics.ts";
import { groupsPerUpdate, playedEnvs, sharedGroups } from "../play/envs-of-run.ts";
import type { PlayedTicket } from "../play/finished-ticket.ts";

/** The moving mean of one number for each env: by difficulty, success; otherwise the in-group standard deviation of reward or success. */
export type Scores = Readonly<Record<string, number>>;

/** The env of each group of an update (length: groups), in the order of the mix. @throws {RangeError} if the groups cannot be split evenly */
export function groupEnvs(config: Pick<RunConfig, "env" | "rollout">, scores: Scores = {}): string[] {
  const envs = playedEnvs(config);
  const counts = allotted(config, scores) ?? sharedGroups(envs, groupsPerUpdate(config));
  return envs.flatMap(({ name }, i) => Array<string>(counts[i]!).fill(name));
}

/** Number of groups of each env, in the order of the mix; null if the proportions of the mix decide. */
function allotted(config: Pick<RunConfig, "env" | "rollout">, scores: Scores): number[] | null {
  const { by, groupsMin } = config.rollout.curriculum;
  const envs = playedEnvs(config);
  if (by === "difficulty") {
    const level = levelOf(config, scores);
    const rest = groupsPerUpdate(config) - groupsMin * level;
    return envs.map((_, i) => (i < level ? groupsMin : i === level ? rest : 0));
  }
  const known = envs.map(({ name }) => scoreOf(scores, name)).filter((score) => score !== undefined);
  if (by === "none" || known.length < envs.length) return null;
  const free = groupsPerUpdate(config) - groupsMin * envs.length;
  const sum = known.reduce((total, score) => total + score, 0);
  const wanted = known.map((score) => (sum > 0 ? (free * score) / sum : free / envs.length));
  const counts = wanted.map(Math.floor);
  // The envs with the largest remainders get one more group. Of two envs with equal remainders, the env that comes first in the mix gets the group.
  const order = [...wanted.keys()].sort((a, b) => wanted[b]! - counts[b]! - (wanted[a]! - counts[a]!) || a - b);
  const left = free - counts.reduce((total, count) => total + count, 0);
  for (const env of order.slice(0, left)) counts[env]!++;
  return counts.map((count) => count + groupsMin);
}

/** Index of the first env whose success is below `advanceAt`; the index of the last env if no env is below. */
function levelOf(config: Pick<RunConfig, "env" | "rollout">, scores: Scores): number {
  const envs = playedEnvs(config);
  const level = envs.findIndex(({ name }) => !((scoreOf(scores, name) ?? 0) >= config.rollout.curriculum.advanceAt));
  return level === -1 ? envs.length - 1 : level;
}

/** undefined if the env has no score yet. An env may have the name "constructor". */
const scoreOf = (scores: Scores, name: string): number | undefined =>
  Object.hasOwn(scores, name) ? scores[name] : undefined;

/** The scores after an update. An env keeps its score if it has no episode or, by success or reward, no group of two episodes. */
export function scoresAfter(
  { by, smoothing }: RunConfig["rollout"]["curriculum"],
  before: Scores,
  played: readonly PlayedTicket[],
): Scores {
  if (by === "none") return before;
  const after = new Map(Object.entries(before));
  for (const [name, own] of Map.groupBy(played, ({ ticket }) => ticket.env)) {
    const past = after.get(name);
    const mixed = (now: number) => (past === undefined ? now : smoothing * past + (1 - smoothing) * now);
    if (by === "difficulty") {
      after.set(name, mixed(mean(own.map(({ outcome }) => Number(outcome.success)))));
      continue;
    }
    const values = own.map(({ outcome }) =>
      by === "success" ? Number(outcome.success) : rawReward(outcome.trajectory),
    );
    const spread = rewardSpread(
      values,
      own.map(({ ticket }) => ticket.group),
    );
    if (spread === null) continue;
    after.set(name, mixed(spread.rewardStd));
  }
  return Object.fromEntries(after);
}

export const curriculumMetrics = (config: Pick<RunConfig, "env" | "rollout">, scores: Scores): MetricValues => ({
  ...Object.fromEntries(
    Object.entries(scores).map(([env, score]) => [partName("curriculum/score", "env", env), score]),
  ),
  ...(config.rollout.curriculum.by === "difficulty" ? { "curriculum/level": levelOf(config, scores) + 1 } : {}),
});
