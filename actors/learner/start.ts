/** The learner as one actor of a run: trainer thread, tickets, weights, checkpoints, and the training that uses them. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { layParameters } from "../../model/policy/parameters.ts";
import type { ActorContext, ActorKind } from "../actor.ts";
import type { RunConfig } from "../config/config.ts";
import { learnerEngine, thisMachine } from "../engine/choice.ts";
import type { Meter } from "../metrics/meter.ts";
import type { MetricName } from "../metrics/metrics.ts";
import { Reporter } from "../metrics-sink/reporter.ts";
import { lessonsOf } from "../play/envs-of-run.ts";
import { rulesOf } from "../play/play-episode.ts";
import { policyOf } from "../policy/policy-of-run.ts";
import { inThisThread, type Remote, startThread, withMethods } from "../process/worker-rpc.ts";
import { BACKOFF_MS } from "../sampler/start.ts";
import { connectByRoster } from "../supervisor/roster.ts";
import { checkCollapse } from "../training/measure-collapse.ts";
import type { Progress } from "../training/report.ts";
import { Training } from "../training/training.ts";
import { warmStart } from "../training/warm-start.ts";
import { welcoming } from "../transport/handshake.ts";
import { Acks } from "../weights/acks.ts";
import { isAlive, sweep, weightsFolder } from "../weights/files.ts";
import { serveWeights } from "../weights/http.ts";
import { WeightsPublisher } from "../weights/publisher.ts";
import { LearnerCheckpoints, newestCheckpoint } from "./checkpoints.ts";
import { Dispatcher } from "./dispatcher.ts";
import { type Networks, startingNetworks } from "./networks.ts";
import { TicketBook } from "./tickets.ts";
import { type TrainerMethods, trainerMethods } from "./trainer.ts";

/** Metrics and events wait at most so many, and rows of the trajectory log at most so many, while the sink is away. */
const WAITING_MAX = 10_000;
const ROWS_MAX = 4096;
const RETRY_MS = 200;
/** Metrics that also go to the log, for whoever watches the run there. */
const WATCHED: ReadonlySet<string> = new Set<MetricName>([
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
/** Time for the sink to take what it was not told yet, when the learner leaves. */
const DRAIN_MS = 4000;

export const learner: ActorKind = {
  role: "learner",
  async start(config, context) {
    const { actor, run, folder, clock, transport, uniform, log, meter } = context;
    const processStartedAtMs = clock.now();
    const { dialogue, model } = policyOf(config);
    checkCollapse(config, dialogue.thinkEnd);
    const checkpoints = join(folder, "checkpoints");
    const saved = await newestCheckpoint(checkpoints, (path, reason) =>
      log.warning("checkpoint", `${path} is not used: ${reason}`),
    );
    const networks = await startingNetworks(config, model, saved);
    const parameters = layParameters(model, networks.policy.parameters);
    const { thread, engine } = await startTrainer(config, context, networks);
    const trainer = measured(thread.methods, meter);
    const keeper = new LearnerCheckpoints({
      checkpoints,
      reference: join(folder, "reference"),
      keep: config.checkpoint.keep,
      tokenizer: dialogue.digest,
      networks,
      trainer,
      resumed: saved !== null,
    });
    const publisher = publisherOf(config, context);

    const reporter: Reporter = new Reporter({
      actor,
      waitingMax: WAITING_MAX,
      rowsMax: ROWS_MAX,
      askDeadlineMs: config.transport.askDeadlineMs,
      sink: () => sink.peer(),
      clock,
      retryMs: RETRY_MS,
      notice: (level, text) => log[level]("store", text),
      watch(step, values) {
        const told = Object.entries(values).filter(([name]) => WATCHED.has(name));
        if (told.length > 0) log.info("metrics", "", { step, ...Object.fromEntries(told) });
      },
    });
    const sink = connectByRoster({
      transport,
      run,
      clock,
      uniform,
      backoffMs: BACKOFF_MS,
      helloDeadlineMs: 5000,
      handler: reporter,
      me: () => ({ actor, role: "learner", url: null }),
    });
    const notice = (level: "info" | "warning" | "error", kind: string, text: string) => {
      log[level](kind, text);
      reporter.event(level, kind, text);
    };
    const warn = (kind: string, text: string) => notice("warning", kind, text);

    const acks = new Acks();
    const { leaseMs, attemptsMax } = config.rollout;
    const tickets = new TicketBook({ clock, leaseMs, attemptsMax, expired: () => dispatcher.grant() });
    const dispatcher: Dispatcher = new Dispatcher({
      tickets,
      acks,
      leaseMs,
      vocabulary: model.vocabulary,
      clock,
      notice,
    });
    const weights = serveWeights(publisher);
    const serve = { fetch: (request: Request) => weights(request) ?? new Response("nothing here\n", { status: 404 }) };
    const listener = await transport.listen(context.listen, welcoming(run, dispatcher), context.threads ? serve : {});
    meter.divide(["time/update", "time/weights", "time/save", "time/rollout"], null);
    meter.depth("queue/waiting", () => tickets.waiting);
    meter.depth("queue/playing", () => tickets.leasedInAll);
    meter.depth("queue/rows", () => reporter.waiting.rows);
    meter.depth("queue/messages", () => reporter.waiting.messages);
    meter.depth("weights/version", () => dispatcher.weights?.version ?? null);

    const training = new Training({
      run,
      config,
      reporter,
      clock,
      engine,
      trainer,
      processStartedAtMs,
      thinkEnd: config.env.think ? dialogue.thinkEnd : null,
      resumed: saved === null ? null : (saved.state as Progress),
      async publish(version) {
        const began = clock.now();
        const { parameters } = networks.policy;
        dispatcher.announce(await meter.during("time/weights", publisher.publish(version, parameters)));
        return { acknowledged: acks.everyone(version).then(() => clock.now() - began) };
      },
      play: (issued) => meter.during("time/rollout", dispatcher.play(issued)),
      warmStart: (hooks) =>
        warmStart({
          config,
          model,
          parameters,
          trainer,
          engine,
          demonstrations: { lessons: lessonsOf(config), context: rulesOf(config), dialogue },
          notice: (text) => warn("warm-start", text),
          ...hooks,
        }),
      save: (progress) => meter.during("time/save", keeper.save(progress)),
      restore: (update) => keeper.restore(update),
      keepReference: () => keeper.keepReference(),
      tickets,
      say: (kind, text) => log.info(kind, text),
      inform: (kind, text) => notice("info", kind, text),
      warn,
    });
    watchProgress(config, context, dispatcher, warn);

    async function drain(): Promise<void> {
      const left = await reporter.drain(DRAIN_MS);
      if (left.rows + left.messages === 0) return;
      log.warning("store", `${left.rows} episodes and ${left.messages} messages could not be stored, and are lost`);
    }

    const running = training.run().then(async (report) => {
      if (report === null) return;
      await drain();
      writeFileSync(join(folder, "report.json"), `${JSON.stringify(report, null, 2)}\n`, { flush: true });
      context.finish("the run is done");
    });
    running.catch(context.fail);

    return {
      url: listener.address,
      doing: () => training.doing(),
      workingMs: () => thread.workingMs(),
      weights: () => dispatcher.weights,
      told(message) {
        if (message.type === "roster") sink.at(message.metricsSink);
      },
      async stop(reason) {
        training.stop(reason);
        dispatcher.leave();
        await running;
        await drain();
        await listener.close();
        sink.close(reason);
        thread.stop();
        publisher.close();
      },
    };
  },
};

async function startTrainer(
  config: RunConfig,
  { threads, fail, log }: ActorContext,
  { model, policy, critic, frozen }: Networks,
) {
  const thread = threads
    ? startThread<TrainerMethods>(new URL("./trainer-worker.ts", import.meta.url), fail)
    : inThisThread(trainerMethods());
  const chosen = learnerEngine(config, learnerThreads(config), thisMachine);
  if (chosen.reason !== null) log.warning("engine", chosen.reason);
  const engine = await thread.methods.start({
    engine: chosen.engine,
    frozen,
    // With both heads the critic's network is the policy's as well.
    ...(critic?.model.head === "both"
      ? { model: critic.model, policy: critic.memory, critic: null }
      : { model, policy, critic }),
  });
  return { thread, engine };
}

/** Of weights, where what a dead run had left is gone. */
function publisherOf({ sampler }: RunConfig, { run, folder, log }: ActorContext): WeightsPublisher {
  const notice = (text: string) => log.warning("shared-memory", text);
  const shared = weightsFolder(folder, notice);
  for (const name of sweep(shared, isAlive)) log.info("sweep", `removed ${name}, which a dead run had left`);
  const half = sampler.precision === "half";
  return new WeightsPublisher({ folder: shared, spareFolder: folder, run, nameless: true, half, notice });
}

/** As long as this process lives: that something is played while there is something to play. */
function watchProgress(
  config: RunConfig,
  { clock, fail }: Pick<ActorContext, "clock" | "fail">,
  dispatcher: Dispatcher,
  warn: (kind: string, text: string) => void,
): void {
  const { progressDeadlineMs } = config.supervisor;
  clock.after(progressDeadlineMs / 4, () => watchProgress(config, { clock, fail }, dispatcher, warn));
  if (dispatcher.stalledMs < progressDeadlineMs) return;
  const text = `nothing was played for ${Math.round(dispatcher.stalledMs)} ms (limit ${progressDeadlineMs} ms): ${dispatcher.state}`;
  // Who comes back may help; samplers that are there and do not play are as good as hung.
  if (dispatcher.samplerCount === 0) warn("stalled", text);
  else fail(new Error(text));
}

/** The same trainer, with the time of its work measured. */
function measured(trainer: Remote<TrainerMethods>, meter: Meter): Remote<TrainerMethods> {
  return withMethods(trainer, {
    update: (...args) => meter.during("time/update", trainer.update(...args)),
    imitate: (...args) => meter.during("time/update", trainer.imitate(...args)),
  });
}

/** In sync mode samplers and learner take turns, so the learner may use every core; else those the samplers leave free. */
function learnerThreads({ engine, learner: { mode }, sampler }: RunConfig): number {
  if (engine.threads > 0) return engine.threads;
  const cores = navigator.hardwareConcurrency;
  return Math.max(1, mode === "sync" ? cores : cores - sampler.count * sampler.threads);
}
