/**
 * The overview of a run: the numbers and the status sentence at the top of the page. A number that the run did not measure is null, never 0.
 * This file reads only the store.
 */
import { EVENT_KINDS, type MetricName } from "../metrics/metrics.ts";
import type { StoredRun } from "../metrics-sink/records.ts";
import type { Store } from "../metrics-sink/store.ts";
import { plural, timeLeft } from "../number-text.ts";
import { STARTING } from "../protocol.ts";
import { latestOf } from "../record/newest-update.ts";
import type { Overview, StoredEvent } from "./answers.ts";

/** A live run writes every second. A run that has written nothing for this time counts as stopped. */
const SILENT_MS = 60_000;

/** The supervisor reports the actors every second. A run whose newest report is older than this time is not ready. */
const NO_REPORT_MS = 10_000;

/**
 * Why the run is not ready; null if it is ready. In a ready run the store can be written, the learner and at least one sampler have started,
 * and the supervisor's newest report is at most `NO_REPORT_MS` old.
 */
export function notReadyReason(store: Store): string | null {
  if (store.writeFault !== null)
    return `cannot write run.sqlite: ${store.writeFault}; the run waits until the folder of the run can be written`;
  const run = store.run();
  if (run === null) return "no run yet";
  const report = store.actors();
  if (report === null || report.atMs < run.startedMs) return "no actors yet";
  const ageMs = run.seenMs + run.silentMs - report.atMs;
  if (ageMs > NO_REPORT_MS) return `no report from the actors for ${Math.round(ageMs / 1000)} s`;
  for (const wanted of ["learner", "sampler"] as const) {
    const has = report.actors.some(
      ({ role, guest, pid, doing }) => role === wanted && (guest || pid !== null) && doing !== STARTING,
    );
    if (!has) return `no ${wanted} yet`;
  }
  return null;
}

export function overviewOf(store: Store): Overview | null {
  const run = store.run();
  if (run === null) return null;
  const points = new Map(latestOf(store).map((point) => [point.name, point]));
  const value = (name: MetricName) => points.get(name)?.value ?? null;
  // Leave out events of earlier sessions, because they do not describe this session.
  const event = (kind: string) => {
    const last = store.lastEvent(kind);
    return last !== null && last.atMs >= run.startedMs ? last : null;
  };
  // The number of updates so far; null before the first update. If the run has no value of total/updates, take the step of train/success.
  const update = (value("total/updates") ?? points.get("train/success")?.step) || null;
  return {
    run: run.name,
    env: run.env,
    engine: event(EVENT_KINDS.engine)?.text ?? null,
    ...stateOf(run, update, value, event),
    update,
    updates: run.updates,
    tokensPerSecond: value("speed/tokens_per_second"),
    aliveMs: run.earlierMs + (event(EVENT_KINDS.finished)?.atMs ?? run.seenMs) - run.startedMs,
    success: {
      random: value("baseline/random"),
      taught: value("baseline/taught"),
      before: value("baseline/before"),
      now: value("validate/success"),
      nowUpdate: points.get("validate/success")?.step ?? null,
      best: value("baseline/best"),
      expert: value("baseline/expert"),
    },
    alarm: alarmOf(event(EVENT_KINDS.health)),
  };
}

/** The alarm of a verdict; null for a verdict of level info. */
const alarmOf = (verdict: StoredEvent | null): Overview["alarm"] =>
  verdict === null || verdict.level === "info" ? null : { level: verdict.level, text: verdict.text };

function stateOf(
  { silentMs, updates }: StoredRun,
  update: number | null,
  value: (name: MetricName) => number | null,
  event: (kind: string) => StoredEvent | null,
): Pick<Overview, "phase" | "status" | "progress"> {
  const finished = event(EVENT_KINDS.finished);
  if (finished !== null) return { phase: "finished", status: finished.text, progress: 1 };
  const progress = update && updates && Math.min(1, update / updates);
  if (silentMs > SILENT_MS || event(EVENT_KINDS.closed) !== null) {
    const reached = update === null ? "before its first update" : `at update ${update}`;
    const status = `The run stopped ${reached}; continue it: bun run cluster --resume FOLDER`;
    return { phase: "silent", status, progress };
  }
  const secondsLeft = value(update === null ? "warm/left_s" : "speed/left_s");
  const left = secondsLeft === null ? "" : `, ${timeLeft(secondsLeft / 60)}`;
  if (update !== null) {
    const toGo =
      updates === null ? `update ${update}` : `${plural(Math.max(0, updates - update), "update")} to go${left}`;
    return { phase: "training", status: `Training: ${toGo}`, progress };
  }
  const waiting = "Waiting for the first update";
  const phase = event(EVENT_KINDS.phase);
  const stage = value("warm/stage");
  const done = value("warm/progress");
  if (stage !== null && done !== null && (done < 1 || phase === null)) {
    const status = `${waiting}: warm start, stage ${stage}, ${Math.floor(done * 100)} %${left}`;
    return { phase: "warm", status, progress: done };
  }
  return { phase: "waiting", status: `${waiting}: ${phase?.text ?? "the actors are starting"}`, progress: null };
}
