/** The learner of a simulated run: the real one but for its computation and for where its weights lie. As actors/learner/start.ts. */

import type { Running } from "../../actors/actor.ts";
import {
  keepCheckpoints,
  latestCheckpoint,
  loadCheckpoint,
  saveCheckpoint,
} from "../../actors/checkpoint/checkpoint.ts";
import type { RunConfig } from "../../actors/config/config.ts";
import { Dispatcher } from "../../actors/learner/dispatcher.ts";
import { isMetricName, metric } from "../../actors/metrics/metrics.ts";
import { Reporter } from "../../actors/metrics-sink/reporter.ts";
import type { FinishedTicket } from "../../actors/play/finished-ticket.ts";
import { policyOf } from "../../actors/policy/policy-of-run.ts";
import type { Ticket } from "../../actors/protocol.ts";
import { connectByRoster } from "../../actors/supervisor/roster.ts";
import type { TrainingContext } from "../../actors/training/context.ts";
import type { Progress } from "../../actors/training/report.ts";
import { Training } from "../../actors/training/training.ts";
import { welcoming } from "../../actors/transport/handshake.ts";
import type { Peer } from "../../actors/transport/transport.ts";
import { Acks } from "../../actors/weights/acks.ts";
import { parameterCount } from "../../model/policy/parameters.ts";
import { type Invariants, WatchedBook } from "./invariants.ts";
import { digestOf, learn } from "./policy.ts";
import type { ProcessContext } from "./process.ts";
import { STALENESS_MAX } from "./simulate.ts";

const CHECKPOINTS = "run/checkpoints";
const WAITING_MAX = 500;
const ROWS_MAX = 64;
const RETRY_MS = 200;
const DRAIN_MS = 4000;
const BACKOFF_MS = { first: 50, max: 1000 };

const notPartOfThis = () => Promise.reject(new Error("not part of a simulated run"));

export async function startLearner(config: RunConfig, context: ProcessContext): Promise<Running> {
  const { life, invariants, stage, transport, run } = context;
  const { clock, world } = life;
  const disk = stage.disk.of(life);
  const { dialogue, model } = policyOf(config);
  const { found } = await latestCheckpoint(CHECKPOINTS, disk);
  const saved = found === null ? null : await loadCheckpoint(found, disk);
  const values = saved?.policy.parameters.slice() ?? new Float32Array(parameterCount(model)).fill(0.5);
  const still = new Float32Array(values.length);
  invariants.resumed(saved === null ? null : digestOf(values));

  const acks = new Acks();
  const { leaseMs, attemptsMax } = config.rollout;
  const tickets: WatchedBook = new WatchedBook(
    {
      clock,
      leaseMs,
      attemptsMax,
      expired() {
        tickets.expire();
        host.grant();
      },
    },
    invariants,
    stage.defect === "takes anything",
  );
  const reporter: Reporter = new Reporter({
    actor: life.name,
    waitingMax: WAITING_MAX,
    rowsMax: ROWS_MAX,
    retryMs: RETRY_MS,
    clock,
    askDeadlineMs: config.transport.askDeadlineMs,
    sink: () => witnessed(sink.peer(), invariants),
    notice: (_, text) => world.note(`learner: ${text}`),
    watch(step, told) {
      const sync = config.learner.mode === "sync";
      for (const [name, value] of Object.entries(told)) {
        const lasting = sync && isMetricName(name) && metric(name).timed !== true;
        invariants.metric(name, step, value, lasting);
      }
    },
  });
  const sink = connectByRoster({
    transport,
    run,
    clock,
    uniform: world.uniform,
    backoffMs: BACKOFF_MS,
    helloDeadlineMs: 5000,
    me: () => ({ actor: life.name, role: "learner", url: null }),
    handler: reporter,
  });
  const notice = (_: string, kind: string, text: string) => world.note(`learner: ${kind}: ${text}`);
  const host: Dispatcher = new Dispatcher({ tickets, acks, leaseMs, vocabulary: model.vocabulary, clock, notice });
  const listener = await transport.listen(context.listen, welcoming(run, host));
  invariants.always(life, () => tickets.check());
  const bounds = { life, invariants };
  const most = config.rollout.groups * config.rollout.groupSize * (config.learner.stalenessMax + 1);
  bound(bounds, "messages to the sink", () => reporter.waiting.messages, WAITING_MAX);
  bound(bounds, "rows to the sink", () => reporter.waiting.rows, ROWS_MAX + most);

  /** The tickets of what was played; the trainer sees trajectories only. */
  const played = new WeakMap<object, Ticket>();
  let version = 0;
  let published = (saved?.state as Progress | undefined)?.version ?? 0;

  const training = new Training({
    run,
    config,
    reporter,
    clock,
    engine: "simulated, cpu",
    thinkEnd: null,
    processStartedAtMs: world.now,
    resumed: saved === null ? null : (saved.state as Progress),
    trainer: {
      start: notPartOfThis,
      keepReference: notPartOfThis,
      resetOptimizer: notPartOfThis,
      imitate: notPartOfThis,
      steps: notPartOfThis,
      goOnFrom: notPartOfThis,
      crossScore: notPartOfThis,
      analyzeGradients: notPartOfThis,
      async update(batch) {
        const named = batch.map(({ trajectory }) => ({ ticket: played.get(trajectory)!, outcome: { trajectory } }));
        const update = `update of version ${version}`;
        invariants.trained(update, named as never, { version, stalenessMax: STALENESS_MAX }, (of) => acks.digestOf(of));
        await life.sleep(world.between(100, 800), update);
        learn(
          values,
          batch.map(({ trajectory }) => trajectory),
        );
        const gradNorm = values.reduce((sum, value) => sum + value, 0);
        return { skipped: null, advantages: batch.map(() => 0.5), steps: 1, metrics: { gradNorm } };
      },
    },
    async publish(next) {
      if (next <= published) invariants.broken(5, `version ${next} is published after ${published}`);
      published = next;
      const path = `/shared/${context.incarnation}/${next}`;
      const place = { owner: life, values: new Float32Array(values.length) };
      stage.memory.set(path, place);
      const seal = { key: "0".repeat(32), tag: "0".repeat(32) };
      await life.sleep(world.between(1, 20), `publishes ${next}`);
      place.values.set(values);
      await life.sleep(world.between(1, 20), `hashes ${next}`);
      const digest = digestOf(values);
      version = next;
      const location = { kind: "shared", path, byteOffset: 0, seal } as const;
      host.announce({ type: "weights", version: next, digest, byteLength: values.byteLength, location });
      const began = clock.now();
      return { acknowledged: acks.everyone(next).then(() => clock.now() - began) };
    },
    async play(issued) {
      const finished = await host.play(issued);
      for (const { ticket, outcome } of finished) if ("trajectory" in outcome) played.set(outcome.trajectory, ticket);
      return stage.defect === "trains twice" ? twice(finished) : finished;
    },
    warmStart: notPartOfThis,
    keepReference: notPartOfThis,
    async save(progress) {
      invariants.saved(digestOf(values));
      const policy = { parameters: values, moment: still, variance: still, step: progress.update };
      const state = { update: progress.update, model, tokenizer: dialogue.digest, state: progress };
      await saveCheckpoint(CHECKPOINTS, { ...state, policy, critic: null }, disk);
      await keepCheckpoints(CHECKPOINTS, config.checkpoint.keep, [], disk);
    },
    restore: notPartOfThis,
    tickets,
    say: (kind, text) => world.note(`learner: ${kind}: ${text}`),
    inform: (kind, text) => world.note(`learner: ${kind}: ${text}`),
    warn: (kind, text) => world.note(`learner: ${kind}: ${text}`),
  } satisfies TrainingContext);

  const { progressDeadlineMs } = config.supervisor;
  function watchProgress(): void {
    clock.after(progressDeadlineMs / 4, watchProgress);
    if (host.stalledMs >= progressDeadlineMs && host.samplerCount > 0) context.fail(new Error(host.state));
  }
  watchProgress();

  const running = training.run().then(async (report) => {
    if (report === null) return;
    const left = await reporter.drain(DRAIN_MS);
    stage.finished = { report, left: left.rows + left.messages, parameters: digestOf(values) };
    context.finish("the run is done");
  });
  running.catch(context.fail);

  return {
    url: listener.address,
    doing: () => `${training.doing()}; ${host.state}`.slice(0, 200),
    weights: () => host.weights,
    told(message) {
      if (message.type === "roster") sink.at(message.metricsSink);
    },
    async stop(reason) {
      training.stop(reason);
      host.leave();
      await running;
      await listener.close();
      sink.close(reason);
    },
  };
}

const bound = (
  { life, invariants }: Pick<ProcessContext, "life" | "invariants">,
  name: string,
  length: () => number,
  max: number,
) => invariants.bounded({ life, name: `${life.name}: ${name}`, length, max });

/** A defect to be found: the first episode is handed over once more. */
const twice = (finished: readonly FinishedTicket[]): readonly FinishedTicket[] => [...finished, finished[0]!];

/** The sink, with a witness of which rows it said it stored. */
function witnessed(peer: Peer | null, invariants: Invariants): Peer | null {
  if (peer === null) return null;
  return {
    name: peer.name,
    get queuedBytes() {
      return peer.queuedBytes;
    },
    get closed() {
      return peer.closed;
    },
    tell: (message) => peer.tell(message),
    close: (reason) => peer.close(reason),
    async ask(message, deadlineMs) {
      const answer = await peer.ask(message, deadlineMs);
      if (message.type === "episodes" && answer.type === "episodes.stored")
        for (const { ticket } of message.rows) invariants.acknowledged.add(`${ticket.episode} ${ticket.attempt}`);
      return answer;
    },
  };
}
