/**
 * Plays the runs of a sweep, each as `bun run cluster` in its own process, several at once.
 *
 * - A run that fails does not stop the other runs.
 * - `--resume` continues a run that has begun: from its newest checkpoint, or from its start if it has none.
 */
import { existsSync, readdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { readRunConfig } from "../../actors/policy/saved-policy.ts";
import { linesOf } from "../../actors/process/lines.ts";
import { hasRecord, RecordedRun } from "../../actors/record/recorded-run.ts";
import { UsageError } from "../cli/options.ts";
import { RunStatus } from "../cli/run-status.ts";
import type { StopSignal } from "../cli/stop-signals.ts";
import type { PlannedRun } from "./plan.ts";
import { isFinished } from "./table.ts";

const ENTRY = join(import.meta.dir, "../run.ts");

/**
 * Removes an empty folder, which a run leaves if it ends before it writes its config.
 *
 * @throws {UsageError} if a folder holds a run with other settings, because the figures of this run would belong to another experiment.
 */
export function checkFolder({ folder, config }: PlannedRun): void {
  if (!existsSync(folder)) return;
  if (readdirSync(folder).length === 0) {
    rmdirSync(folder);
    return;
  }
  const kept = readRunConfig(folder) as unknown as Record<string, unknown>;
  const other = Object.entries(config).find(([section, values]) => !isDeepStrictEqual(kept[section], values));
  if (other === undefined) return;
  throw new UsageError(
    `${folder} holds a run with other settings of ${other[0]}; choose another --out, or remove that folder`,
  );
}

export interface SweepListener {
  /** @param line  a line of the run's standard error */
  readonly said: (run: PlannedRun, line: string) => void;
  /** `SweepPlay` calls this for each run that ended, but not for a run that `stop` stopped. @param failure  null if the run wrote its report */
  readonly ended: (run: PlannedRun, failure: string | null) => void;
}

export class SweepPlay {
  readonly #listener: SweepListener;
  readonly #children = new Map<PlannedRun, Bun.Subprocess>();
  stopped = false;

  constructor(listener: SweepListener) {
    this.#listener = listener;
  }

  /** Resolves when every run has ended. After a call of `stop`, resolves when the runs in progress have ended. */
  async play(runs: readonly PlannedRun[], atOnce: number): Promise<void> {
    // The slots share this iterator, so each run starts once.
    const waiting = runs.values();
    const slot = async () => {
      for (const run of waiting) if (!this.stopped) await this.#playOne(run);
    };
    await Promise.all(Array.from({ length: Math.min(atOnce, runs.length) }, slot));
  }

  /** Makes each run in progress save a checkpoint and end. No other run starts. */
  stop(signal: StopSignal): void {
    this.stopped = true;
    for (const child of this.#children.values()) child.kill(signal);
  }

  /** The runs in progress. */
  get going(): PlannedRun[] {
    return [...this.#children.keys()];
  }

  async #playOne(run: PlannedRun): Promise<void> {
    const { folder, flags } = run;
    const args = existsSync(folder) ? ["--resume", folder, "--port", "0"] : ["--run-dir", folder, ...flags];
    const child = Bun.spawn([process.execPath, ENTRY, "cluster", ...args, "--quiet"], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.#children.set(run, child);
    let last = "";
    for await (const line of linesOf(child.stderr)) {
      last = line;
      this.#listener.said(run, line);
    }
    const code = await child.exited;
    this.#children.delete(run);
    if (isFinished(run)) this.#listener.ended(run, null);
    else if (!this.stopped) this.#listener.ended(run, `exit code ${code}: ${last === "" ? "no output" : last}`);
  }
}

/** The finished share of a run: of its updates or minutes, whichever is larger; 0 before the first update. */
export function shareDone(run: PlannedRun): number {
  const { folder, config } = run;
  if (isFinished(run)) return 1;
  if (!hasRecord(folder)) return 0;
  let record: RecordedRun;
  try {
    record = new RecordedRun(folder);
  } catch {
    // The run has not finished making its store.
    return 0;
  }
  try {
    const latest = Object.fromEntries(record.latest());
    const status = new RunStatus(config.learner);
    status.add({ step: latest["total/updates"] ?? 0, ...latest });
    return status.share;
  } finally {
    record.store.close();
  }
}
