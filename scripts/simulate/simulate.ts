/**
 * `simulate` simulates a whole run in one thread, and one seed decides everything. `simulateSeeds` simulates many runs. The actors are real.
 * The simulation replaces clock, network, disk, processes and the policy's arithmetic. Faults kill and freeze processes, cut and delay
 * connections, fill the disk and change bytes. The simulation checks the invariants after every event.
 */
import { composeRunConfig } from "../../actors/config/compose.ts";
import type { RunConfig } from "../../actors/config/config.ts";
import { envServer } from "../../actors/env-server/start.ts";
import { learner } from "../../actors/learner/start.ts";
import { isTimeIndependent } from "../../actors/metrics/metrics.ts";
import { metricsSink } from "../../actors/metrics-sink/start.ts";
import { Store } from "../../actors/metrics-sink/store.ts";
import { sampler } from "../../actors/sampler/start.ts";
import { type Addresses, actorsOf, rosterOf } from "../../actors/supervisor/roster.ts";
import { CHILD_TIMES, type RunEnd } from "../../actors/supervisor/supervision.ts";
import { Supervisor } from "../../actors/supervisor/supervisor.ts";
import { SimulatedDisk } from "./disk.ts";
import { causeFaults, FAULT_KINDS, noFaults } from "./faults.ts";
import { Invariants, STALENESS_MAX } from "./invariants.ts";
import type { Defect, Machine } from "./machine.ts";
import { LIMITS, Network, simulatedTransport } from "./network.ts";
import { envServerPorts, learnerPorts, samplerPorts, sinkPorts } from "./ports.ts";
import { simulatedSpawner } from "./process.ts";
import { Life, World } from "./world.ts";

export interface Simulation {
  readonly seed: number;
  /** False: no faults, and one sampler. */
  readonly faults: boolean;
  readonly mode: "sync" | "async";
  readonly defect?: Defect;
  /** During one period of this length, samplers and env servers reach no process except the supervisor. */
  readonly cutMs?: number;
  /** envServer.answerMsMax, which sets the deadline of every ask; 1250 if left out. */
  readonly answerMsMax?: number;
}

type Result = Awaited<ReturnType<typeof simulate>>;

/** A run that is not over at this time of its simulated clock counts as hung. Faults end much earlier. */
const HANG_MS = 600_000;
const EVENTS_MAX = 400_000;

function configOf({ mode, faults, defect, answerMsMax = 1250 }: Simulation, world: World): RunConfig {
  const count = (most: number) => (faults ? 1 + Math.floor(world.uniform() * most) : 1);
  const stalenessMax = defect === "trains on old episodes" ? STALENESS_MAX + 2 : STALENESS_MAX;
  return composeRunConfig([
    {
      source: "simulation",
      values: {
        env: { tag: "FrozenLake", options: { successRate: 0.8 }, turnsMax: 3, actionsMax: 6, actionsPerTurnMax: 3 },
        rollout: { groups: 2, groupSize: 3, leaseMs: 6000, attemptsMax: 50 },
        sampler: { count: count(3), slots: 4 },
        envServer: { count: count(2), episodesMax: 32, idleMs: 20_000, answerMsMax },
        model: { width: 8, layers: 1, heads: 1, kvHeads: 1, hidden: 8 },
        warmStart: { enabled: false },
        // If the store takes no rows, a run can end only if the reporter has room for all rows of the run. So this run has only one update.
        learner: {
          updates: defect === "stores nothing" ? 1 : 5,
          mode,
          ...(mode === "async" ? { stalenessMax } : {}),
          filter: { strategy: "all" },
        },
        validate: { episodes: 3, everyUpdates: 2 },
        checkpoint: { everyUpdates: 1, keep: 2 },
        supervisor: { heartbeatDeadlineMs: 2000, progressDeadlineMs: 20_000, restartsMax: 10_000 },
      },
    },
  ]);
}

export async function simulate(simulation: Simulation) {
  const { seed, faults, defect = null, cutMs } = simulation;
  const world = new World(seed);
  const config = configOf(simulation, world);
  const invariants = new Invariants();
  const network = new Network(world, invariants);
  const store = new Store({ path: ":memory:", durability: "normal", wallClock: () => Math.round(world.now) });
  store.startSession({ name: "run", env: "FrozenLake", updates: config.learner.updates, seed });
  const machine: Machine = {
    world,
    invariants,
    network,
    store,
    defect,
    disk: new SimulatedDisk(),
    memory: new Map(),
    finished: null,
    failedForDisk: false,
    undelivered: null,
    supervisor: new Life(world, "supervisor"),
    troubles: faults ? { corrupt: 0.01, poison: 0.002, envErrors: 0.01 } : { corrupt: 0, poison: 0, envErrors: 0 },
  };
  const spawner = simulatedSpawner(machine, config, {
    "metrics-sink": (config, context, process) => metricsSink.start(config, context, sinkPorts(process)),
    "env-server": (config, context, process) => envServer.start(config, context, envServerPorts(process)),
    learner: (config, context, process) => learner.start(config, context, learnerPorts(process, config)),
    sampler: (config, context, process) => sampler.start(config, context, samplerPorts(process)),
  });
  let end: RunEnd | null = null;
  const supervisor = await startSupervisor(machine, config, spawner);
  void supervisor.ended.then((how) => {
    end = how;
  });
  if (cutMs !== undefined) {
    const isolate = () => network.isolate(cutMs, (name) => /^(sampler|env-server)-/.test(name));
    world.schedule(machine.supervisor, world.between(1000, 4000), `a cut of ${cutMs} ms`, isolate);
  }
  const counts = faults ? causeFaults(machine, spawner.processes) : noFaults();
  try {
    while (end === null && invariants.first === null) {
      if (world.now > HANG_MS || world.steps > EVENTS_MAX)
        invariants.broken(0, `the run hangs: ${world.steps} events in ${Math.round(world.now)} ms`);
      else if (!(await world.step())) invariants.broken(0, "no event is left, and the run has not ended");
      invariants.check(world.now);
    }
    if (end !== null) checkEnd(machine, end, spawner.processes.size);
  } finally {
    for (const { life } of spawner.processes) life.die();
    store.close();
  }
  return {
    seed,
    broken: invariants.first,
    /** sha256 of all events. */
    trace: world.digest,
    tail: world.tail,
    events: world.steps,
    simulatedMs: world.now,
    faults: counts,
    // The digest of the last policy, and all metrics that do not depend on time. Both are equal in all sync runs.
    parameters: machine.finished,
    metrics: timeIndependentMetrics(invariants.metrics),
  };
}

/** Checks what a run promises at its end. */
function checkEnd(
  { invariants, finished, store, failedForDisk, undelivered }: Machine,
  end: RunEnd,
  processesLeft: number,
): void {
  // A run whose last checkpoint cannot be written must fail.
  if (!end.ok && failedForDisk) return;
  if (!end.ok || finished === null) {
    invariants.broken(0, `the run failed: ${end.reason}`);
    return;
  }
  if (processesLeft > 0) invariants.broken(0, `${processesLeft} processes are left`);
  if (undelivered !== null) invariants.broken(3, undelivered);
  const { rows } = store.episodes({}, { limit: 100_000 });
  const inLog = new Set(rows.map(({ episode }) => episode));
  if (inLog.size < rows.length) invariants.broken(3, "an episode is stored twice");
  for (const [episode, update] of invariants.lineage)
    if (!inLog.has(episode)) invariants.broken(3, `${episode} was trained on in ${update}, and is not in the log`);
  for (const episode of invariants.acknowledged)
    if (!inLog.has(episode)) invariants.broken(3, `${episode} was acknowledged as stored, and is not`);
}

/** The metrics that do not depend on time, as sorted lines. */
const timeIndependentMetrics = (reported: ReadonlyMap<string, number>): string =>
  [...reported]
    .filter(([key]) => isTimeIndependent(key.slice(0, key.lastIndexOf(" "))))
    .map(([key, value]) => `${key} ${value}`)
    .sort()
    .join("\n");

/** Starts a supervisor and its actors, as actors/supervisor/cluster.ts does. */
async function startSupervisor(
  { world, network, supervisor: life }: Machine,
  config: RunConfig,
  spawner: ReturnType<typeof simulatedSpawner>,
): Promise<Supervisor> {
  const known: Addresses = new Map();
  const supervisor: Supervisor = new Supervisor({
    run: "run",
    token: "",
    clock: life.clock,
    spawner,
    ...CHILD_TIMES,
    ...config.supervisor,
    heartbeatMs: 200,
    transport: simulatedTransport(network, life),
    limits: { logLevel: "info", ...LIMITS },
    event(event) {
      const { kind, child } = event;
      world.note(`supervisor: ${kind} ${child}`);
      if (kind !== "ready") return;
      known.set(child, { role: supervisor.children.find(({ name }) => name === child)!.role, url: event.url });
      for (const listener of ["learner", "sampler"] as const) supervisor.tell(listener, rosterOf(known));
    },
    output: () => {},
    firstMessages: () => [rosterOf(known)],
  });
  await supervisor.listen("simulated://supervisor:1");
  for (const { role, name } of actorsOf(config)) {
    supervisor.start({ name, role, entry: role, endsRun: role === "learner", settings: () => null });
  }
  return supervisor;
}

/** Simulates one seed. In sync mode the result must equal that of a run without faults (invariant 7). */
export async function simulateSeed(seed: number): Promise<Result> {
  const mode = seed % 2 === 0 ? "sync" : "async";
  const result = await simulate({ seed, faults: true, mode });
  // A run has no parameters if it broke an invariant before its end, or if it failed because the disk was full at its end.
  if (mode === "async" || result.broken !== null || result.parameters === null) return result;
  const expected = await undisturbed();
  if (result.parameters !== expected.parameters)
    return { ...result, broken: "invariant 7: the policy differs from that of a run without faults" };
  const own = new Set(result.metrics.split("\n"));
  const other = expected.metrics.split("\n").find((line) => !own.delete(line)) ?? [...own][0];
  return other === undefined
    ? result
    : { ...result, broken: `invariant 7: a metric differs from that of a run without faults: ${other}` };
}

let reference: Promise<Result> | null = null;
export function undisturbed(): Promise<Result> {
  reference ??= simulate({ seed: 0, faults: false, mode: "sync" });
  return reference;
}

/** Simulates one run for each seed: in sync mode for even seeds, and in async mode for odd seeds. @param tell  called after each seed */
export async function simulateSeeds(
  first: number,
  count: number,
  tell: (result: Pick<Result, "seed" | "broken">) => void,
) {
  /** Seeds whose run broke an invariant, with the last events. */
  const failed: { seed: number; broken: string; tail: readonly string[] }[] = [];
  const sum = { events: 0, simulatedMs: 0, faults: noFaults() };
  for (let seed = first; seed < first + count; seed++) {
    const { broken, tail, events, simulatedMs, faults } = await simulateSeed(seed);
    sum.events += events;
    sum.simulatedMs += simulatedMs;
    for (const kind of FAULT_KINDS) sum.faults[kind] += faults[kind];
    if (broken !== null) failed.push({ seed, broken, tail });
    tell({ seed, broken });
  }
  return { failed, ...sum };
}
