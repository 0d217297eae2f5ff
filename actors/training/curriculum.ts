/**
 * A curriculum over a mix of envs: groups move to where episodes of one board still come out differently, which is where there is
 * something to learn from. Envs may be tags, or one tag in several difficulties. Pure; what it remembers is in the checkpoint.
 *
 * Equal scores give the even split; an env without a score yet leaves the split as the mix has it.
 */
import { rewardSpread } from "../../model/health/diagnostics.ts";
import { positionsBy } from "../../model/statistics.ts";
import { rawReward } from "../../model/trajectory.ts";
import type { RunConfig } from "../config/config.ts";
import { groupsPerUpdate, playedEnvs, sharedGroups } from "../play/envs-of-run.ts";
import type { PlayedTicket } from "../play/finished-ticket.ts";

/** Moving mean of the in-group standard deviation, by env. */
export type Scores = Readonly<Record<string, number>>;

/** (groups) the env of each group of an update, env after env. @throws {RangeError} if they do not come out even */
export function groupEnvs(config: Pick<RunConfig, "env" | "rollout">, scores: Scores = {}): string[] {
  const envs = playedEnvs(config);
  const counts = allotted(config, scores) ?? sharedGroups(envs, groupsPerUpdate(config));
  return envs.flatMap(({ name }, i) => Array<string>(counts[i]!).fill(name));
}

/** Groups of each env by its score; null where the mix alone decides. */
function allotted(config: Pick<RunConfig, "env" | "rollout">, scores: Scores): number[] | null {
  const { by, groupsMin } = config.rollout.curriculum;
  const envs = playedEnvs(config);
  if (by === "none" || envs.some(({ name }) => scores[name] === undefined)) return null;
  const free = groupsPerUpdate(config) - groupsMin * envs.length;
  const sum = envs.reduce((total, { name }) => total + scores[name]!, 0);
  const wanted = envs.map(({ name }) => (sum > 0 ? (free * scores[name]!) / sum : free / envs.length));
  const counts = wanted.map(Math.floor);
  // Largest remainders first; of equal ones, the env that is named first.
  const order = [...wanted.keys()].sort((a, b) => wanted[b]! - counts[b]! - (wanted[a]! - counts[a]!) || a - b);
  const left = free - counts.reduce((total, count) => total + count, 0);
  for (const env of order.slice(0, left)) counts[env]!++;
  return counts.map((count) => count + groupsMin);
}

/** What is remembered after an update: an env that played no group of two keeps its score. */
export function scored(
  { by, smoothing }: RunConfig["rollout"]["curriculum"],
  before: Scores,
  played: readonly PlayedTicket[],
): Scores {
  if (by === "none") return before;
  const after: Record<string, number> = { ...before };
  for (const [name, rows] of positionsBy(played.map(({ ticket }) => ticket.env))) {
    const own = rows.map((row) => played[row]!);
    const values = own.map(({ outcome }) =>
      by === "success" ? Number(outcome.success) : rawReward(outcome.trajectory),
    );
    const spread = rewardSpread(
      values,
      own.map(({ ticket }) => ticket.group),
    );
    if (spread === null) continue;
    const past = before[name];
    after[name] = past === undefined ? spread.rewardStd : smoothing * past + (1 - smoothing) * spread.rewardStd;
  }
  return after;
}
