/**
 * The rollouts of coming updates: when they are played (`RolloutQueue`), how long they take (`PlayTime`), and on which boards
 * (`playUpdate`). In sync mode the rollout of an update is played when the update begins; in async mode up to `stalenessMax` updates ahead,
 * so that samplers play while the trainer computes.
 */
import { isConstantSum } from "../../model/statistics.ts";
import { rawReward, writtenTokens } from "../../model/trajectory.ts";
import { type FinishedTicket, playedOf } from "../play/finished-ticket.ts";
import type { TrainingContext } from "./context.ts";
import { groupEnvs } from "./curriculum.ts";
import type { Control } from "./interventions.ts";
import type { Progress } from "./progress.ts";
import { trainingTickets, type WantedGroup, wantedGroups } from "./tickets-to-play.ts";

export class RolloutQueue {
  readonly #context: TrainingContext;
  readonly #playTime: PlayTime;
  readonly #playing: Promise<Rollout>[] = [];
  /** The first update whose rollout has not begun. */
  #next = 0;
  /** Older versions are of the warm start, or of a policy that a roll-back gave up. */
  #oldest = 0;

  constructor(context: TrainingContext, playTime: PlayTime) {
    this.#context = context;
    this.#playTime = playTime;
  }

  /** The rollout of the next update. Rollouts that may be played ahead begin too. */
  next({ update, version, curriculum, health }: Progress): Promise<Rollout> {
    const { config } = this.#context;
    const { mode, stalenessMax, updates } = config.learner;
    const ahead = mode === "sync" ? 0 : stalenessMax;
    // The run begins, or was rolled back.
    if (this.#playing.length === 0) {
      this.#next = update;
      this.#oldest = version;
    }
    for (; this.#next <= Math.min(update + ahead, updates - 1); this.#next++) {
      // When the trainer reaches update `#next`, `#next - update` more versions will have been published.
      const oldest = mode === "sync" ? version : Math.max(this.#oldest, version + (this.#next - update) - stalenessMax);
      const envs = groupEnvs(config, curriculum);
      const played = playUpdate(this.#context, this.#next, oldest, health.control, envs);
      this.#playing.push(this.#playTime.measure(played));
    }
    return this.#playing.shift()!;
  }

  /** Waits for rollouts that have begun, and drops them. */
  async drop(): Promise<void> {
    await Promise.all(this.#playing.splice(0));
  }
}

export interface Rollout {
  readonly finished: readonly FinishedTicket[];
  readonly ms: number;
}

/** How long rollouts take, and how many tokens they write per second. Time in which rollouts overlap counts once. */
export class PlayTime {
  readonly #context: Pick<TrainingContext, "clock" | "meter">;
  /** Time of all rollouts so far. */
  #ms = 0;
  #tokens = 0;
  /** When the last rollout ended. */
  #endedAtMs = 0;

  constructor(context: Pick<TrainingContext, "clock" | "meter">) {
    this.#context = context;
  }

  /** Null before the first rollout. */
  get tokensPerSecond(): number | null {
    return this.#ms > 0 ? this.#tokens / (this.#ms / 1000) : null;
  }

  async measure(playing: Promise<readonly FinishedTicket[]>): Promise<Rollout> {
    const { clock, meter } = this.#context;
    const beganAtMs = clock.now();
    const finished = await meter.during("time/rollout", playing);
    const now = clock.now();
    const ms = now - Math.max(beganAtMs, this.#endedAtMs);
    this.#endedAtMs = now;
    this.#ms += ms;
    for (const { outcome } of playedOf(finished)) this.#tokens += writtenTokens(outcome.trajectory);
    return { finished, ms };
  }
}

/**
 * Plays all episodes of an update. Dynamic sampling replaces groups whose episodes all earned the same reward by groups on new boards, for
 * a few rounds. The episodes' outcomes alone decide which groups are replaced, so equal seeds give equal runs. The replaced groups are
 * returned too: they count in the metrics of play, and enter no loss (`UpdateSettings.dropConstant`).
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

/** Envs of the groups whose episodes all earned the same raw reward, or could not be played. */
function constantGroups(finished: readonly FinishedTicket[]): string[] {
  const groups = [...Map.groupBy(finished, ({ ticket }) => ticket.group).values()];
  const rewards = (group: readonly FinishedTicket[]) =>
    playedOf(group).map(({ outcome }) => rawReward(outcome.trajectory));
  return groups.filter((group) => isConstantSum(rewards(group))).map(([first]) => first!.ticket.env);
}

/** How many groups replaced others. @param groups  number of groups of an update, without replacements */
export const replacementCount = (finished: readonly FinishedTicket[], groups: number): number =>
  new Set(finished.map(({ ticket }) => ticket.group).filter((group) => group >= groups)).size;
