import { Meter } from "../../../actors/metrics/meter.ts";
import { Reporter } from "../../../actors/metrics-sink/reporter.ts";
import type { FinishedTicket } from "../../../actors/play/finished-ticket.ts";
import type { Outcome, PlayedOutcome, Ticket } from "../../../actors/protocol.ts";
import type { TrainingContext } from "../../../actors/training/context.ts";
import type { Progress } from "../../../actors/training/progress.ts";
import { Training } from "../../../actors/training/training.ts";
import type { UpdateSettings } from "../../../model/learn/update/types.ts";
import { aConfig, anOutcome, aTrajectory, aTurn } from "../../fixtures.ts";
import { FakeClock } from "../fake-clock.ts";

export type Sections = Record<string, object>;
export const configOf = (changed: Sections = {}) =>
  aConfig(
    {
      env: { tag: "Bandit", turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1 },
      rollout: { groups: 2, groupSize: 2 },
      learner: { updates: 6, filter: { strategy: "all" } },
      validate: { episodes: 3, everyUpdates: 2 },
      checkpoint: { everyUpdates: 3 },
      warmStart: { enabled: false },
    },
    changed,
  );

/** One turn, two written tokens; a reward of 1 for success. */
export const outcomeOf = ({ version }: Pick<Ticket, "version">, success = true): PlayedOutcome =>
  anOutcome({
    stop: success ? "success" : "over",
    success,
    turns: [aTurn({ reward: Number(success) })],
    trajectory: aTrajectory({
      tokens: Int32Array.of(1, 2, 3),
      written: Uint8Array.of(0, 1, 1),
      logProbs: new Float32Array(3),
      turns: [{ end: 2, reward: Number(success), penalty: 0 }],
      version,
      digest: "ab".repeat(32),
    }),
  });

export class Stage {
  readonly clock = new FakeClock();
  /** In order: "publish 1", "play u0 4 v1", "update 4", "save 3", … */
  readonly calls: string[] = [];
  readonly settings: UpdateSettings[] = [];
  readonly saved: Progress[] = [];
  readonly warnings: string[] = [];
  readonly told: string[] = [];
  readonly lines: string[] = [];
  readonly metrics = new Map<string, number>();
  /** Milliseconds that one batch takes to play. */
  playMs = 1000;
  outcome: (ticket: Ticket) => Outcome = (ticket) => outcomeOf(ticket);
  kl = 0;
  /** Entropy of the policy in an update, in nats per token. */
  entropy = Number.NaN;
  /** Gap between the log-probabilities of samplers and trainer. */
  gap = 1e-6;
  skipped: string | null = null;
  /** Norm of the policy's gradient. If the norm is not finite, the fake trainer takes no step. */
  gradNorm = 0.5;
  /** In-group reward std of each update. Updates after the last of these measure no std. */
  spreads: readonly number[] = [];
  saving: (progress: Progress) => void = () => {};
  warmStart: TrainingContext["warmStart"] = () => Promise.reject(new Error("not part of this test"));
  readonly ticketCounts = { expired: 0, retried: 0, ignored: 0 };
  /** False: the sink's disk is full. */
  storing = true;
  readonly training: Training;

  constructor(changed: Sections = {}, resumed: Progress | null = null) {
    // The fake policy solves every board, which would stop a run early.
    const config = configOf({ ...changed, health: { stopEarly: [], ...changed["health"] } });
    const unused = () => Promise.reject(new Error("not part of this test"));
    const note = (call: string) => void this.calls.push(call);
    const sink = {
      name: "sink",
      closed: false,
      queuedBytes: 0,
      close: () => {},
      tell: (message: { type: string; step: number; values: Record<string, number> }) => {
        if (message.type !== "metrics") return;
        for (const [name, value] of Object.entries(message.values)) this.metrics.set(`${name} ${message.step}`, value);
      },
      ask: async ({ rows }: { rows: unknown[] }) =>
        this.storing
          ? { type: "episodes.stored", count: rows.length }
          : { type: "failed", code: "capacity", detail: "the disk is full" },
    };
    this.training = new Training({
      run: "run",
      config,
      clock: this.clock,
      engine: "compiled, cpu, 2 threads",
      trainer: {
        start: unused,
        keepReference: unused,
        resetOptimizer: unused,
        imitate: unused,
        prepareCheckpoint: unused,
        resumeFrom: unused,
        crossScore: unused,
        analyzeGradients: async (played) => {
          note(`gradients of ${played.length}`);
          return { "gradient.task.all": 0.25 };
        },
        update: async (played, settings) => {
          note(`update ${played.length}`);
          this.settings.push(settings);
          const inGroupStd = this.spreads[this.settings.length - 1];
          const measured = inGroupStd === undefined ? {} : { inGroupStd };
          const { kl, entropy, gap: logProbGap, gradNorm } = this;
          const metrics = { kl, entropy, logProbGap, gradNorm, keptGroups: 1, ...measured };
          const steps = Number(Number.isFinite(this.gradNorm));
          return { skipped: this.skipped, advantages: played.map(() => 0.5), steps, metrics };
        },
      },
      reporter: new Reporter({
        actor: "learner",
        sink: () => sink as never,
        clock: this.clock,
        notice: () => {},
        frameBytesMax: 1 << 26,
        waitingMax: 100,
        rowsMax: 1000,
        askDeadlineMs: 1000,
        retryMs: 100,
      }),
      thinkEnd: null,
      roleMarks: { messageStart: -1, system: [], beforeReplies: false },
      meter: new Meter(this.clock),
      publishPolicy: async (version) => {
        note(`publish ${version}`);
        return { acknowledged: Promise.resolve(7) };
      },
      dispatcher: {
        ticketCounts: this.ticketCounts,
        play: async (tickets): Promise<readonly FinishedTicket[]> => {
          const [first] = tickets;
          note(`play ${first!.episode.split(".")[0]} ${tickets.length} v${first!.version}${first!.exact ? "" : "+"}`);
          await Promise.resolve();
          this.clock.advance(this.playMs);
          return tickets.map((ticket) => ({ ticket, sampler: "s", outcome: this.outcome(ticket) }));
        },
      },
      warmStart: (hooks) => this.warmStart(hooks),
      checkpoints: {
        resumed,
        keepReference: async () => note("reference"),
        save: async (progress) => {
          this.saving(progress);
          note(`save ${progress.update}`);
          this.saved.push(progress);
        },
        restore: async (update) => {
          note(`restore ${update}`);
          return this.saved.findLast((one) => one.update === update)!;
        },
      },
      log: {
        line: (kind, text) => this.lines.push(`${kind}: ${text}`),
        event: (level, kind, text) => {
          if (level === "info") this.told.push(`${kind}: ${text}`);
          else this.warnings.push(`${kind}: ${text}`);
        },
      },
      processStartedAtMs: 0,
    });
  }

  /** Runs the training while its clock advances. */
  async runWithClock(): Promise<void> {
    let hasEnded = false;
    void this.training.run().then(() => {
      hasEnded = true;
    });
    while (!hasEnded) {
      await new Promise(setImmediate);
      this.clock.advance(100);
    }
  }
}

/** A run without success that rolls back from update 4 to 3. */
export function rollingBack(changed: Sections = {}): Stage {
  const stage = new Stage({
    validate: { episodes: 3, everyUpdates: 100 },
    checkpoint: { everyUpdates: 1 },
    health: {
      ladder: ["roll-back"],
      interveneAt: "warning",
      trap: { startUpdates: 1, patience: 1, spreadShare: 0.95 },
    },
    ...changed,
  });
  stage.outcome = (ticket) => outcomeOf(ticket, false);
  stage.spreads = [2, 2, 2, 1];
  return stage;
}
