/** Starts the learner of a run: the trainer, the dispatcher, the publisher of weights, the checkpoints, and the training that uses them. */
import { join } from "node:path";
import { layParameters } from "../../model/policy/parameters.ts";
import type { ActorContext, ActorKind, Running } from "../actor.ts";
import type { Clock } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import { askDeadlineMs } from "../config/rollout.ts";
import { RunError } from "../errors.ts";
import type { Log } from "../log.ts";
import { EVENT_KINDS, type MetricName } from "../metrics/metrics.ts";
import { Reporter } from "../metrics-sink/reporter.ts";
import { percent, plural } from "../number-text.ts";
import { envsWithRules } from "../play/envs-of-run.ts";
import { rulesOf } from "../play/play-episode.ts";
import { policyOf } from "../policy/pretrained.ts";
import { connectByRoster } from "../supervisor/roster.ts";
import type { RunLog } from "../training/context.ts";
import { checkCollapse } from "../training/measure-collapse.ts";
import { earlierReportName, type Report } from "../training/report.ts";
import { Training } from "../training/training.ts";
import { lossOnOf } from "../training/update-settings.ts";
import { sizedForGpu, warmStart } from "../training/warm-start.ts";
import { welcoming } from "../transport/handshake.ts";
import { notTaken } from "../transport/refusals.ts";
import { TRANSPORT_LIMITS } from "../transport/transport.ts";
import { Acks } from "../weights/acks.ts";
import { serveWeights } from "../weights/http.ts";
import { LearnerCheckpoints, newestCheckpoint } from "./checkpoints.ts";
import { Dispatcher } from "./dispatcher.ts";
import { startingNetworks } from "./networks.ts";
import { type LearnerPorts, realPorts } from "./ports.ts";

/** How long the learner waits before it sends a message to the metrics sink again. */
const RETRY_MS = 200;
/** Metrics that the learner also writes to its log. */
const LOGGED: ReadonlySet<string> = new Set<MetricName>([
  "baseline/random",
  "baseline/best",
  "validate/success",
  "train/success",
  "train/reward_mean",
  "train/in_group_std",
  "train/entropy",
  "speed/tokens_per_second",
  "speed/updates_per_minute",
  "total/updates",
  "health/verdict",
]);
/**
 * Before the learner ends, it waits until the metrics sink has stored all episodes. The learner gives up if the sink stores no episode for this
 * time. At the end of a whole run it waits `supervisor.heartbeatDeadlineMs` longer, because the supervisor may have to replace the sink first.
 */
const DRAIN_MS = 4000;

export const learner = { role: "learner", start: startLearner } satisfies ActorKind;

async function startLearner(
  config: RunConfig,
  context: ActorContext,
  ports: LearnerPorts = realPorts,
): Promise<Running> {
  const { run, folder, clock, transport, log, meter } = context;
  const processStartedAtMs = clock.now();
  const { dialogue, model } = policyOf(config);
  checkCollapse(config, dialogue.thinkEnd);
  lossOnOf(config.learner, dialogue.roleMarks);
  const folders = { checkpoints: join(folder, "checkpoints"), reference: join(folder, "reference") };
  const saved = await newestCheckpoint(folders.checkpoints, ports.disk, (path, reason) =>
    log.warning("checkpoint", `${path} is not used: ${reason}`),
  );
  const prolonged = saved !== null && (await ports.disk.list(folder)).includes(earlierReportName(saved.update));
  const networks = await startingNetworks(config, model, saved);
  const trainer = await ports.startTrainer(config, context, networks);
  const trainingConfig = trainer.onGpu ? sizedForGpu(config) : config;
  const checkpoints = new LearnerCheckpoints({
    ...folders,
    disk: ports.disk,
    keep: config.checkpoint.keep,
    tokenizer: dialogue.digest,
    networks,
    trainer: trainer.methods,
    saved,
    prolonged,
    notice: (text) => log.warning("checkpoint", text),
  });

  const { reporter, sink } = connectReporter(config, context, ports);
  const runLog: RunLog = {
    line: (kind, text) => log.info(kind, text),
    event(level, kind, text) {
      log[level](kind, text);
      reporter.event(level, kind, text);
    },
  };

  const acks = new Acks();
  const { leaseMs, attemptsMax } = config.rollout;
  const tickets = ports.openTickets({ clock, leaseMs, attemptsMax, expired: () => dispatcher.grant() });
  const dispatcher: Dispatcher = new Dispatcher({
    tickets,
    acks,
    leaseMs,
    vocabulary: model.vocabulary,
    clock,
    notice: runLog.event,
  });
  const weights = ports.openWeights(config, context);
  const answer = serveWeights(weights);
  const fetch = (request: Request) => answer(request) ?? new Response("not found\n", { status: 404 });
  const listener = await transport.listen(
    context.listen,
    welcoming(run, dispatcher),
    context.host === "process" ? { fetch } : {},
  );

  meter.declareActivities(["time/update", "time/weights", "time/save", "time/rollout"], null);
  meter.depth("queue/waiting", () => tickets.waiting);
  meter.depth("queue/playing", () => tickets.leasedInAll);
  meter.depth("queue/rows", () => reporter.waiting.rows);
  meter.depth("queue/messages", () => reporter.waiting.messages);
  meter.depth("weights/version", () => dispatcher.weights?.version ?? null);

  const { parameters } = networks.policy;
  const { engine, methods, publish = (version: number) => weights.publish(version, parameters) } = trainer;
  const training = new Training({
    run,
    config: trainingConfig,
    clock,
    processStartedAtMs,
    engine,
    thinkEnd: config.env.think ? dialogue.thinkEnd : null,
    roleMarks: dialogue.roleMarks,
    log: runLog,
    meter,
    reporter,
    dispatcher,
    trainer: methods,
    async publishPolicy(version) {
      const began = clock.now();
      dispatcher.announce(await meter.during("time/weights", publish(version)));
      return { acknowledged: acks.everyone(version).then(() => clock.now() - began) };
    },
    checkpoints,
    warmStart(hooks) {
      const demonstrations = { envs: envsWithRules(config), context: rulesOf(config), dialogue };
      const notice = (text: string) => runLog.event("warning", "warm-start", text);
      const parametersByName = config.engine.name === "tinker" ? null : layParameters(model, parameters);
      return warmStart({
        ...hooks,
        config: trainingConfig,
        model,
        parameters: parametersByName,
        trainer: methods,
        engine,
        meter,
        demonstrations,
        notice,
      });
    },
  });
  watchProgress(config, context, dispatcher, runLog);
  showPlay(clock, dispatcher, runLog);

  const running = training.run().then(async (report) => {
    if (report === null) return;
    const drainMs = config.supervisor.heartbeatDeadlineMs + DRAIN_MS;
    await finishRun(report, reporter, log, drainMs, () => ports.saveReport(folder, report));
    context.finish("the run is done");
  });
  running.catch(context.fail);

  return {
    url: listener.address,
    doing: () => training.doing(),
    workingMs: () => trainer.workingMs(),
    weights: () => dispatcher.weights,
    told(message) {
      if (message.type === "roster") sink.at(message.metricsSink);
      else if (message.type === "save") training.save();
      else throw notTaken("to the learner from the supervisor", message.type);
    },
    async stop(reason) {
      training.stop(reason);
      dispatcher.leave();
      await running;
      const complete = drainLog(reporter, log, DRAIN_MS);
      await complete.catch(() => {});
      await listener.close();
      sink.close(reason);
      await trainer.stop();
      weights.close();
      await complete;
    },
  };
}

/** Waits until the sink has stored all episodes, saves the report, then sends the event `finished`. @throws {RunError} if episodes are lost */
export async function finishRun(
  { updates, success }: Pick<Report, "updates" | "success">,
  reporter: Pick<Reporter, "drain" | "lost" | "waiting" | "event">,
  log: Pick<Log, "warning">,
  drainMs: number,
  save: () => void,
): Promise<void> {
  await drainLog(reporter, log, drainMs);
  save();
  reporter.event("info", EVENT_KINDS.finished, `${plural(updates, "update")}, success ${percent(success.after)}`);
}

/**
 * Waits until the metrics sink has stored all messages and episodes, or stores no episode for `drainMs`.
 *
 * @throws {RunError} if episodes are lost: the run must not end as a success
 */
export async function drainLog(
  reporter: Pick<Reporter, "drain" | "lost" | "waiting">,
  log: Pick<Log, "warning">,
  drainMs: number,
): Promise<void> {
  let { rows, messages } = reporter.waiting;
  let before: number;
  do {
    before = rows;
    ({ rows, messages } = await reporter.drain(drainMs));
  } while (rows > 0 && rows < before);
  if (messages > 0) log.warning("lost", `${messages} metrics and events could not be stored`);
  const { lost } = reporter;
  if (rows + lost === 0) return;
  if (rows === 0)
    throw new RunError(`${lost} episodes are lost: the metrics sink can never store them; the log says why`);
  const late = `the metrics sink did not store them in ${drainMs / 1000} s`;
  const never = lost === 0 ? "" : ` (${lost} can never be stored; the log says why)`;
  const advice = "Free space on the disk of the run folder before the next run.";
  throw new RunError(`${rows + lost} episodes are lost: ${late}${never}. ${advice}`);
}

/** Makes the reporter, and the reporter's connection to the metrics sink. */
function connectReporter(config: RunConfig, context: ActorContext, ports: LearnerPorts) {
  const { actor, run, clock, transport, uniform, log } = context;
  const reporter: Reporter = new Reporter({
    actor,
    ...ports.reporterLimits,
    frameBytesMax: TRANSPORT_LIMITS.frameBytesMax,
    askDeadlineMs: askDeadlineMs(config),
    sink: () => sink.peer(),
    clock,
    retryMs: RETRY_MS,
    notice: (level, text) => log[level]("store", text),
    watch(step, values) {
      ports.watchMetrics(step, values);
      const logged = Object.entries(values).filter(([name]) => LOGGED.has(name));
      if (logged.length > 0) log.info("metrics", "", { step, ...Object.fromEntries(logged) });
    },
  });
  const sink = connectByRoster({
    transport,
    run,
    clock,
    uniform,
    handler: reporter,
    me: () => ({ actor, role: "learner", url: null }),
  });
  return { reporter, sink };
}

/** Time between two lines of `showPlay`. */
const SHOW_PLAY_MS = 20_000;

/** Logs how many episodes of a rollout or a validation have ended, if the rollout or validation takes longer than `SHOW_PLAY_MS`. */
export function showPlay(clock: Clock, dispatcher: Pick<Dispatcher, "playing">, log: Pick<RunLog, "line">): void {
  let before: number | null = null;
  function show(): void {
    const { playing } = dispatcher;
    if (playing !== null && playing.batch === before) {
      log.line("play", `${playing.ended} of ${plural(playing.tickets, "episode")} played`);
    }
    before = playing?.batch ?? null;
    clock.after(SHOW_PLAY_MS, show);
  }
  clock.after(SHOW_PLAY_MS, show);
}

/** Checks regularly that samplers play the open tickets. The checks end only with this process. */
export function watchProgress(
  config: Pick<RunConfig, "supervisor">,
  { clock, fail }: Pick<ActorContext, "clock" | "fail">,
  dispatcher: Pick<Dispatcher, "stalledMs" | "samplerCount" | "state">,
  log: Pick<RunLog, "event">,
): void {
  const { progressDeadlineMs } = config.supervisor;
  let checkedAtMs = clock.now();
  let wokeAtMs = Number.NEGATIVE_INFINITY;
  function check(): void {
    const now = clock.now();
    // A very late check means that this process was suspended, and probably the samplers too. So only the time since this check counts.
    if (now - checkedAtMs > progressDeadlineMs / 2) wokeAtMs = now;
    checkedAtMs = now;
    clock.after(progressDeadlineMs / 4, check);
    const stalledMs = Math.min(dispatcher.stalledMs, now - wokeAtMs);
    if (stalledMs < progressDeadlineMs) return;
    const text = `nothing was played for ${Math.round(stalledMs)} ms (limit ${progressDeadlineMs} ms): ${dispatcher.state}`;
    // Without connected samplers, wait: one may still connect. Connected samplers that do not play are stuck.
    if (dispatcher.samplerCount === 0) log.event("warning", "stalled", text);
    else fail(new Error(text));
  }
  check();
}
