/** How long rollouts take, and how many tokens they write per second. Time in which rollouts overlap counts once. */
import { writtenTokens } from "../../model/trajectory.ts";
import { type FinishedTicket, playedOf } from "../play/finished-ticket.ts";
import type { TrainingContext } from "./context.ts";

export interface Rollout {
  readonly finished: readonly FinishedTicket[];
  readonly ms: number;
}

export class PlayTime {
  readonly #context: Pick<TrainingContext, "clock" | "meter">;
  /** Of all rollouts so far. */
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
