/** Simulated ports of one process: they replace the disk, the computing threads, shared memory, the store and the policy. */
import type { RunConfig } from "../../actors/config/config.ts";
import type { EnvServerPorts } from "../../actors/env-server/start.ts";
import type { Networks } from "../../actors/learner/networks.ts";
import type { LearnerPorts } from "../../actors/learner/ports.ts";
import type { StartedTrainer } from "../../actors/learner/trainer.ts";
import { isTimeIndependent } from "../../actors/metrics/metrics.ts";
import type { MetricsSinkPorts } from "../../actors/metrics-sink/start.ts";
import { episodeOpener } from "../../actors/play/envs-of-run.ts";
import type { Remote } from "../../actors/process/worker-rpc.ts";
import type { Messages } from "../../actors/protocol.ts";
import type { PolicyMethods } from "../../actors/sampler/policy.ts";
import type { SamplerPorts } from "../../actors/sampler/start.ts";
import type { Reply, ReplyRequest } from "../../model/decode/generate.ts";
import { hash64 } from "../../model/rng.ts";
import { builtinDialogue } from "../../model/text/chat.ts";
import { Tokenizer } from "../../model/text/tokenizer.ts";
import { rawReward, type Trajectory } from "../../model/trajectory.ts";
import { fullDisk } from "./disk.ts";
import { markOf } from "./invariants.ts";
import type { Machine } from "./machine.ts";
import { REPORTER_LIMITS, SINK_WAITING_MAX, type WatchedMeter } from "./meter.ts";
import { WatchedTickets } from "./watched-tickets.ts";
import type { Life } from "./world.ts";

export interface SimulatedProcess {
  readonly machine: Machine;
  readonly life: Life;
  readonly meter: WatchedMeter;
  /** Number of this process among all processes that the run has started, from 1. */
  readonly incarnation: number;
}

const notSimulated = () => Promise.reject(new Error("this is not part of a simulated run"));

export function learnerPorts(process: SimulatedProcess, config: RunConfig): LearnerPorts {
  const { machine, life } = process;
  const { invariants, disk, defect } = machine;
  const published = new Map<number, string>();
  const state: LearnerState = { process, published, version: 0, tickets: null, parameters: null };
  const isSync = config.learner.mode === "sync";
  return {
    disk: disk.of(life),
    startTrainer: (_, __, networks) => startTrainer(state, networks),
    openWeights: () => ({
      publish: (version, values) => publish(state, version, values),
      file: () => undefined,
      close() {},
    }),
    openTickets(options) {
      state.tickets = new WatchedTickets(options, invariants, defect);
      invariants.always(life, () => state.tickets!.check());
      return state.tickets;
    },
    saveReport() {
      machine.finished = digestOf(state.parameters!);
    },
    watchMetrics(step, values) {
      for (const [name, value] of Object.entries(values)) {
        invariants.metric(name, step, value, isSync && isTimeIndependent(name));
      }
    },
    reporterLimits: REPORTER_LIMITS,
  };
}

/** What the ports of one learner share. */
interface LearnerState {
  readonly process: SimulatedProcess;
  /** Digests of the versions that this learner published. */
  readonly published: Map<number, string>;
  /** The version published last; before the first publication, the version of the checkpoint's parameters. */
  version: number;
  tickets: WatchedTickets | null;
  parameters: Float32Array | null;
}

/** A trainer whose update depends on the same input as the real trainer's update: the parameters, and the episodes in their order. */
async function startTrainer(state: LearnerState, { policy, critic }: Networks): Promise<StartedTrainer> {
  const { life, machine } = state.process;
  const { world, invariants } = machine;
  const { parameters } = policy;
  let steps = policy.step;
  // If the process dies during this wait, the wait never ends.
  await life.sleep(world.between(5, 50), "starts its trainer");
  state.parameters = parameters;
  state.version = invariants.resumed(steps === 0 ? null : digestOf(parameters));
  return {
    engine: "simulated, cpu",
    workingMs: () => 0,
    stop() {},
    methods: {
      start: notSimulated,
      keepReference: notSimulated,
      resetOptimizer: notSimulated,
      imitate: notSimulated,
      resumeFrom: notSimulated,
      crossScore: notSimulated,
      analyzeGradients: notSimulated,
      async prepareCheckpoint() {
        invariants.saved(digestOf(parameters), state.version);
        return { policy: steps, critic: critic === null ? null : steps, served: null };
      },
      async update(episodes) {
        const { version } = state;
        const update = `update of version ${version}`;
        const trajectories = episodes.map(({ trajectory }) => trajectory);
        const batch = trajectories.map((trajectory) => ({ ticket: state.tickets!.ticketOf(trajectory), trajectory }));
        invariants.trained(update, batch, version, state.published);
        await life.sleep(world.between(100, 800), update);
        learn(parameters, trajectories);
        steps++;
        const gradNorm = parameters.reduce((sum, value) => sum + value, 0);
        return { skipped: null, advantages: episodes.map(() => 0.5), steps: 1, metrics: { gradNorm } };
      },
    },
  };
}

/** Publishes weights in memory that is lost when the process dies. */
async function publish(state: LearnerState, version: number, values: Float32Array) {
  const { process, published } = state;
  const { life, machine, incarnation } = process;
  const { world, invariants, memory } = machine;
  if (version <= state.version) invariants.broken(5, `version ${version} is published after ${state.version}`);
  const path = `/shared/${incarnation}/${version}`;
  const place = { owner: life, values: new Float32Array(values.length) };
  memory.set(path, place);
  await life.sleep(world.between(1, 20), `publishes ${version}`);
  place.values.set(values);
  await life.sleep(world.between(1, 20), `hashes ${version}`);
  const digest = digestOf(values);
  published.set(version, digest);
  state.version = version;
  const seal = { key: "0".repeat(32), tag: "0".repeat(32) };
  const location = { kind: "shared", path, byteOffset: 0, seal } as const;
  return { type: "weights", version, digest, byteLength: values.byteLength, location } as const;
}

export function samplerPorts({ machine, life, meter }: SimulatedProcess): SamplerPorts {
  const { invariants } = machine;
  return {
    async startPolicy() {
      const { methods, open } = simulatedPolicy(life, machine);
      invariants.always(life, () => {
        const { playing } = meter;
        if (open.size > playing)
          invariants.broken(8, `${life.name} plays ${playing} episodes and holds ${open.size} sequences`);
      });
      return { methods, workingMs: () => 0, stop() {} };
    },
  };
}

/** With a small probability, an env does not open. */
export const envServerPorts = ({ machine, life }: SimulatedProcess): EnvServerPorts => ({
  episodeOpener(config, env) {
    const open = episodeOpener(config, env);
    return (seeds) => {
      if (life.world.uniform() < machine.troubles.envErrors) throw new Error("this env cannot be opened now");
      return open(seeds);
    };
  },
});

/** The store of the machine: it outlives every process, and refuses rows while the disk is full. */
export const sinkPorts = ({ machine }: SimulatedProcess): MetricsSinkPorts => ({
  waitingMax: SINK_WAITING_MAX,
  async openStore() {
    return {
      url: "",
      updates: 0,
      store: {
        write(batch) {
          if (machine.disk.full || machine.defect === "stores nothing") throw fullDisk();
          const episodes = machine.defect === "loses rows" ? batch.episodes.slice(1) : batch.episodes;
          machine.store.write({ ...batch, episodes });
        },
      },
      async close() {},
    };
  },
});

const tokenizer = new Tokenizer();
const MOVES = ["Left", "Down", "Right", "Up"].map((move) =>
  builtinDialogue(tokenizer).replyTokens(`<think>${move}</think><answer>${move}</answer>`, "<think>"),
);

const digestOf = (values: Float32Array): string =>
  new Bun.CryptoHasher("sha256").update(new Uint8Array(values.slice().buffer)).digest("hex");

/**
 * The model of a simulated run: a few numbers that every episode changes, and a player whose moves follow from these numbers and the episode's
 * coins. This model is trivial, but depends on the same inputs as the real model.
 */
function simulatedPolicy(life: Life, { world, memory, invariants, troubles, defect }: Machine) {
  const open = new Set<string>();
  /** Digest of the weights in use; empty before the first load. */
  let used = "";
  /** Version of the weights in use, and the process that published it. */
  let held: { readonly owner: Life; readonly version: number } | null = null;

  async function load({ version, digest, location }: Messages["weights"]): Promise<string> {
    if (location.kind !== "shared") throw new Error(`the simulation has no ${location.kind} weights`);
    const { path } = location;
    await life.sleep(world.between(5, 100), `loads ${path}`);
    const found = memory.get(path);
    if (found === undefined || !found.owner.alive) throw new Error(`no weights at ${path}`);
    const values = found.values.slice();
    if (world.uniform() < troubles.corrupt) values[0]! += 1;
    const loaded = digestOf(values);
    if (loaded !== digest) return loaded;
    if (open.size > 0) invariants.broken(5, `${life.name} loaded weights in the middle of episodes`);
    if (held?.owner === found.owner && held.version > version)
      invariants.broken(5, `${life.name} went from version ${held.version} back to ${version}`);
    held = { owner: found.owner, version };
    used = loaded;
    return loaded;
  }

  async function reply({ coins, coinsFrom }: ReplyRequest): Promise<Reply> {
    const digest = used;
    await life.sleep(world.between(20, 400), "replies");
    // This defect changes the weights in the middle of episodes.
    if (defect === "mixes versions") used = hash64(digest).join("").padStart(64, "a").slice(-64);
    const [coin] = hash64(`${digest} ${coins.seed} ${coins.episode} ${coinsFrom}`);
    const tokens = [...MOVES[coin % MOVES.length]!];
    const poisoned = world.uniform() < troubles.poison;
    return { tokens, logProbs: tokens.map(() => (poisoned ? Number.NaN : markOf(digest))), cut: false };
  }

  const methods: Remote<PolicyMethods> = {
    start: async () => "simulated",
    load,
    open: async (sequence) => {
      if (open.has(sequence)) invariants.broken(8, `${life.name} opened ${sequence} twice`);
      open.add(sequence);
    },
    close: async (sequence) => void open.delete(sequence),
    reply: (_, request) => reply(request),
    written: notSimulated,
  };
  return { methods, open };
}

/** One update of the numbers: a function of the numbers and of the trajectories, in order. */
function learn(values: Float32Array, played: readonly Trajectory[]): void {
  for (const [i, trajectory] of played.entries()) {
    const [word] = hash64(`${i} ${trajectory.tokens} ${trajectory.digest}`);
    const at = word % values.length;
    values[at] = Math.fround(values[at]! + rawReward(trajectory) + 0.25);
  }
}
