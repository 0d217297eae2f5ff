/**
 * The rollouts of the next updates: when a rollout begins (`RolloutQueue`), and which boards it plays (`playUpdate`). In sync mode a rollout
 * begins when its update begins. In async mode a rollout begins up to `stalenessMax` updates earlier, so that samplers play while the trainer
 * computes.
 */
import { isConstantSum } from "../../model/statistics.ts";
import { rawReward } from "../../model/trajectory.ts";
import { type FinishedTicket, playedOf } from "../play/finished-ticket.ts";
import type { Rollout, TrainingContext, TrainingParts } from "./context.ts";
import { groupEnvs } from "./curriculum.ts";
import type { Control } from "./interventions.ts";
import type { Progress } from "./progress.ts";
import { trainingTickets, type WantedGroup, wantedGroups } from "./tickets-to-play.ts";

export class RolloutQueue {
  readonly #parts: TrainingParts;
  readonly #playing: Promise<Rollout>[] = [];
  /** The first update whose rollout has not begun. */
  #next = 0;
  /** The oldest policy version that may play. All older versions are from the warm start, or from before a roll-back. */
  #oldest = 0;

  constructor(parts: TrainingParts) {
    this.#parts = parts;
  }

  /** The rollout of the next update. In async mode this call also begins the rollouts of later updates. */
  next({ update, version, curriculum, health }: Progress): Promise<Rollout> {
    const { config, playTime } = this.#parts;
    const { mode, stalenessMax, updates } = config.learner;
    const ahead = mode === "sync" ? 0 : stalenessMax;
    // The queue is empty in sync mode, at the start of the run, and after a roll-back.
    if (this.#playing.length === 0) {
      this.#next = update;
      this.#oldest = version;
    }
    for (; this.#next <= Math.min(update + ahead, updates - 1); this.#next++) {
      // Before the trainer reaches update `#next`, the learner publishes `#next - update` more versions.
      const oldest = mode === "sync" ? version : Math.max(this.#oldest, version + (this.#next - update) - stalenessMax);
      const envs = groupEnvs(config, curriculum);
      const played = playUpdate(this.#parts, this.#next, oldest, health.control, envs);
      this.#playing.push(playTime.measure(played));
    }
    return this.#playing.shift()!;
  }

  /** Waits for the rollouts that have begun, then discards them. */
  async drop(): Promise<void> {
    await Promise.all(this.#playing.splice(0));
  }
}

/**
 * Plays all episodes of an update. Dynamic sampling replaces a group if all its episodes earned the same reward, or if none of its episodes
 * could be played. The new group plays a new board. Groups are replaced in at most `resampleRoundsMax` rounds. Only the outcomes decide which
 * groups are replaced, so equal seeds give equal runs. The result also contains the replaced groups: they count in the metrics of play, but
 * enter no loss (`UpdateSettings.dropConstant`).
 *
 * Source: DAPO, https://arxiv.org/abs/2503.14476, section 3.2.
 *
 * @param oldest  oldest policy version that may play the episodes
 * @param envs    env of each group
 */
export async function playUpdate(
  { config, dispatcher }: Pick<TrainingContext, "config" | "dispatcher">,
  update: number,
  oldest: number,
  { round, actions }: Pick<Control, "round" | "actions">,
  envs: readonly string[],
): Promise<readonly FinishedTicket[]> {
  const play = (groups: readonly WantedGroup[]) =>
    dispatcher.play(trainingTickets(config, update, oldest, round, groups, actions));
  const finished = [...(await play(wantedGroups(envs)))];
  let last: readonly FinishedTicket[] = finished;
  let next = envs.length;
  for (let resampled = 0; resampled < config.learner.resampleRoundsMax; resampled++) {
    const wanted = constantGroups(last).map((env, i) => ({ env, group: next + i }));
    if (wanted.length === 0) break;
    next += wanted.length;
    last = await play(wanted);
    finished.push(...last);
  }
  return finished;
}

/** The env of each group in which all episodes earned the same raw reward, or in which no episode could be played. */
function constantGroups(finished: readonly FinishedTicket[]): string[] {
  const groups = [...Map.groupBy(finished, ({ ticket }) => ticket.group).values()];
  const rewards = (group: readonly FinishedTicket[]) =>
    playedOf(group).map(({ outcome }) => rawReward(outcome.trajectory));
  return groups.filter((group) => isConstantSum(rewards(group))).map(([first]) => first!.ticket.env);
}

/** How many groups replaced another group. @param groups  number of groups of an update, without replacements */
export const replacementCount = (finished: readonly FinishedTicket[], groups: number): number =>
  new Set(finished.map(({ ticket }) => ticket.group).filter((group) => group >= groups)).size;
