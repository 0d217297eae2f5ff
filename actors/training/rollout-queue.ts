/**
 * The rollouts of coming updates. In sync mode each is played when its update begins; in async mode up to `stalenessMax` updates
 * ahead, so that samplers play while the trainer computes.
 */
import type { TrainingContext } from "./context.ts";
import { groupEnvs } from "./curriculum.ts";
import type { PlayTime, Rollout } from "./play-time.ts";
import type { Progress } from "./progress.ts";
import { playUpdate } from "./resampling.ts";

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
