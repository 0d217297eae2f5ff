/** What training uses: the parts of the learner (`TrainingContext`), the request to stop (`Interruption`), and the time of play (`PlayTime`). */
import type { RoleMarks } from "../../model/text/dialogue.ts";
import { writtenTokens } from "../../model/trajectory.ts";
import type { Clock } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import type { LearnerCheckpoints } from "../learner/checkpoints.ts";
import type { Dispatcher } from "../learner/dispatcher.ts";
import type { TrainerMethods } from "../learner/trainer.ts";
import type { Meter } from "../metrics/meter.ts";
import type { Reporter } from "../metrics-sink/reporter.ts";
import { type FinishedTicket, playedOf } from "../play/finished-ticket.ts";
import type { Remote } from "../process/worker-rpc.ts";
import type { WarmStartHooks, WarmStartResult } from "./warm-start.ts";

export interface TrainingContext {
  readonly run: string;
  readonly config: RunConfig;
  readonly clock: Clock;
  readonly processStartedAtMs: number;
  /** "compiled, cpu, 2 threads" */
  readonly engine: string;
  /** The token that closes a thought; null if the prompt asks for no thought, or if no single token closes a thought. */
  readonly thinkEnd: number | null;
  readonly roleMarks: RoleMarks;
  readonly log: RunLog;
  readonly meter: Meter;
  readonly reporter: Reporter;
  readonly dispatcher: Pick<Dispatcher, "play" | "ticketCounts">;
  readonly trainer: Remote<TrainerMethods>;
  /**
   * Publishes the policy as a new policy version, and announces this version to the samplers. The promise resolves when samplers can load
   * the version. When all samplers have loaded the version, `acknowledged` resolves to the number of milliseconds that this took.
   */
  readonly publishPolicy: (version: number) => Promise<{ readonly acknowledged: Promise<number> }>;
  readonly checkpoints: Pick<LearnerCheckpoints, "resumed" | "save" | "restore" | "keepReference">;
  readonly warmStart: (hooks: WarmStartHooks) => Promise<WarmStartResult>;
}

export interface RunLog {
  /** Writes a line to the log. */
  readonly line: (kind: string, text: string) => void;
  /** Writes a line to the log; the page shows this line too. */
  readonly event: (level: "info" | "warning" | "error", kind: string, text: string) => void;
}

/** A wait throws this error if `Interruption.stop` ends the wait. The message is the reason. */
export class Stopped extends Error {
  override readonly name = "Stopped";
}

/**
 * A request to stop that ends every open wait at once. After a wait, this object holds no reference to the wait's result. `Promise.race` with a
 * promise that stays open for the whole run would hold every result: megabytes in each update.
 */
export class Interruption {
  /** Reject functions of the waits that are open. */
  readonly #waits = new Set<(stopped: Stopped) => void>();
  #reason: string | null = null;

  stop(reason: string): void {
    this.#reason ??= reason;
    for (const end of this.#waits) end(new Stopped(reason));
  }

  /** @throws {Stopped} if `stop` was called */
  check(): void {
    if (this.#reason !== null) throw new Stopped(this.#reason);
  }

  /** Waits for `work`, but never cancels the work itself. @throws {Stopped} as soon as `stop` is called */
  async race<T>(work: Promise<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    work.then(resolve, reject);
    this.#waits.add(reject);
    if (this.#reason !== null) reject(new Stopped(this.#reason));
    try {
      return await promise;
    } finally {
      this.#waits.delete(reject);
    }
  }
}

export interface Rollout {
  readonly finished: readonly FinishedTicket[];
  readonly ms: number;
}

/** How long rollouts take, and how many tokens they write per second. If two rollouts overlap, their common time counts once. */
export class PlayTime {
  readonly #context: Pick<TrainingContext, "clock" | "meter">;
  /** Time of all rollouts so far. */
  #ms = 0;
  #tokens = 0;
  /** When rollouts that have ended were playing, oldest first. No two spans overlap. */
  readonly #spans: { readonly fromMs: number; readonly toMs: number }[] = [];

  constructor(context: Pick<TrainingContext, "clock" | "meter">) {
    this.#context = context;
  }

  /** null before the end of the first rollout. */
  get tokensPerSecond(): number | null {
    return this.#ms > 0 ? this.#tokens / (this.#ms / 1000) : null;
  }

  async measure(playing: Promise<readonly FinishedTicket[]>): Promise<Rollout> {
    const { clock, meter } = this.#context;
    const beganAtMs = clock.now();
    const finished = await meter.during("time/rollout", playing);
    const now = clock.now();
    const ms = now - Math.max(beganAtMs, this.#spans.at(-1)?.toMs ?? beganAtMs);
    this.#addSpan(beganAtMs, now);
    for (const { outcome } of playedOf(finished)) this.#tokens += writtenTokens(outcome.trajectory);
    return { finished, ms };
  }

  /** @param toMs  not before the end of any other span */
  #addSpan(beganAtMs: number, toMs: number): void {
    let fromMs = beganAtMs;
    let countedMs = 0;
    for (let last = this.#spans.at(-1); last !== undefined && last.toMs >= beganAtMs; last = this.#spans.at(-1)) {
      this.#spans.pop();
      fromMs = Math.min(fromMs, last.fromMs);
      countedMs += last.toMs - last.fromMs;
    }
    this.#spans.push({ fromMs, toMs });
    this.#ms += toMs - fromMs - countedMs;
  }
}

/** The learner's parts, and two objects that all parts of training share. */
export interface TrainingParts extends TrainingContext {
  readonly interruption: Interruption;
  readonly playTime: PlayTime;
}
