/**
 * A whole run in one thread, decided by one seed: supervisor, learner, samplers, env servers and metrics sink are the real ones;
 * clock, network, disk, processes and the policy's arithmetic are simulated. While it trains, processes are killed and frozen,
 * connections cut and stalled, the disk fills up, bytes change. After every event the invariants are looked at.
 */
import { Database, SQLiteError } from "bun:sqlite";
import { composeRunConfig, type RunConfig } from "../../actors/config/config.ts";
import { isMetricName, metric } from "../../actors/metrics/metrics.ts";
import { Store } from "../../actors/metrics-sink/store.ts";
import { AddressBook, actorsOf } from "../../actors/supervisor/roster.ts";
import type { RunEnd } from "../../actors/supervisor/supervision.ts";
import { Supervisor } from "../../actors/supervisor/supervisor.ts";
import type { Report } from "../../actors/training/report.ts";
import { startEnvServer, startSampler, startSink } from "./actors.ts";
import { SimulatedDisk } from "./disk.ts";
import { FAULT_KINDS, type FaultKind, Faults } from "./faults.ts";
import { Invariants } from "./invariants.ts";
import { startLearner } from "./learner.ts";
import { Network } from "./network.ts";
import type { SharedMemory, Troubles } from "./policy.ts";
import { simulatedSpawner } from "./process.ts";
import { Life, World } from "./world.ts";

/** Mistakes made on purpose, to see that they are found. */
export const DEFECTS = [
  "trains twice",
  "takes anything",
  "mixes versions",
  "trains on old episodes",
  "loses rows",
] as const;
export type Defect = (typeof DEFECTS)[number];

export interface Simulation {
  readonly seed: number;
  /** False: nothing fails, and one sampler plays. */
  readonly faults: boolean;
  readonly mode: "sync" | "async";
  readonly defect?: Defect;
  /** The samplers and env servers are cut off from everybody but the supervisor, once, for so long. */
  readonly cutMs?: number;
}

export interface Result {
  readonly seed: number;
  /** What was broken first, or null. */
  readonly broken: string | null;
  /** sha256 of all events. */
  readonly trace: string;
  readonly tail: readonly string[];
  readonly events: number;
  readonly simulatedMs: number;
  readonly faults: Readonly<Record<FaultKind, number>>;
  /** Of the policy at the end, and of all metrics that must not depend on time: sync runs are equal in both. */
  readonly parameters: string | null;
  readonly metrics: string;
}

/** What all processes of one run share: the machine. */
export interface Stage {
  readonly world: World;
  readonly invariants: Invariants;
  readonly network: Network;
  readonly disk: SimulatedDisk;
  readonly memory: SharedMemory;
  readonly store: Store;
  readonly supervisor: Life;
  readonly troubles: Troubles & { readonly envErrors: number };
  readonly defect: Defect | null;
  /** An actor gave up for good, and for want of room on the disk. */
  failedForDisk: boolean;
  finished: { readonly report: Report; readonly left: number; readonly parameters: string } | null;
}

/** The run must be over by then, on its own clock: faults end long before. */
const HANG_MS = 600_000;
const EVENTS_MAX = 400_000;

export const fullDisk = (): SQLiteError => {
  const db = new Database(":memory:");
  try {
    db.run("PRAGMA max_page_count = 1");
    db.run("CREATE TABLE t (x)");
    db.run("CREATE TABLE u (x)");
  } catch (error) {
    if (error instanceof SQLiteError) return error;
    throw error;
  } finally {
    db.close();
  }
  throw new Error("a database of one page took two tables");
};

/** Updates that an episode may lag behind in async mode. */
export const STALENESS_MAX = 2;

function configOf({ mode, faults, defect }: Simulation, world: World): RunConfig {
  const count = (most: number) => (faults ? 1 + Math.floor(world.uniform() * most) : 1);
  const stalenessMax = defect === "trains on old episodes" ? STALENESS_MAX + 2 : STALENESS_MAX;
  return composeRunConfig([
    {
      source: "simulation",
      values: {
        env: { tag: "FrozenLake", options: { successRate: 0.8 }, turnsMax: 3, actionsMax: 6, actionsPerTurnMax: 3 },
        rollout: { groups: 2, groupSize: 3, leaseMs: 6000, attemptsMax: 50 },
        sampler: { count: count(3), slots: 4 },
        envServer: { count: count(2), episodesMax: 32, idleMs: 20_000, answerMsMax: 1000 },
        model: { width: 8, layers: 1, heads: 1, kvHeads: 1, hidden: 8 },
        warmStart: { enabled: false },
        learner: { updates: 5, mode, ...(mode === "async" ? { stalenessMax } : {}), filter: { strategy: "all" } },
        validate: { episodes: 3, everyUpdates: 2 },
        checkpoint: { everyUpdates: 1, keep: 2 },
        transport: { askDeadlineMs: 1500 },
        supervisor: { heartbeatMs: 200, heartbeatDeadlineMs: 2000, progressDeadlineMs: 20_000, restartsMax: 10_000 },
      },
    },
  ]);
}

export async function simulate(simulation: Simulation): Promise<Result> {
  const { seed, faults, defect = null, cutMs } = simulation;
  const world = new World(seed);
  const config = configOf(simulation, world);
  const invariants = new Invariants();
  const network = new Network(world, invariants);
  const store = new Store({ path: ":memory:", durability: "normal", wallClock: () => Math.round(world.now) });
  store.startSession({ name: "run", env: "FrozenLake", updates: config.learner.updates, seed });
  const stage: Stage = {
    world,
    invariants,
    network,
    store,
    defect,
    disk: new SimulatedDisk(),
    memory: new Map(),
    finished: null,
    failedForDisk: false,
    supervisor: new Life(world, "supervisor"),
    troubles: {
      corrupt: faults ? 0.01 : 0,
      poison: faults ? 0.002 : 0,
      envErrors: faults ? 0.01 : 0,
      mixesVersions: defect === "mixes versions",
    },
  };
  const spawner = simulatedSpawner(stage, config, {
    "metrics-sink": { role: "metrics-sink", start: startSink },
    "env-server": { role: "env-server", start: startEnvServer },
    learner: { role: "learner", start: startLearner },
    sampler: { role: "sampler", start: startSampler },
  });
  let end: RunEnd | null = null;
  const supervisor = await startSupervisor(stage, config, spawner);
  void supervisor.ended.then((how) => {
    end = how;
  });
  if (cutMs !== undefined) {
    const pull = () => network.pull(cutMs, (name) => /^(sampler|env-server)-/.test(name));
    world.schedule(stage.supervisor, world.between(1000, 4000), `a cut of ${cutMs} ms`, pull);
  }
  const chaos = faults ? new Faults(stage, spawner.processes) : null;
  try {
    while (end === null && invariants.first === null) {
      if (world.now > HANG_MS || world.steps > EVENTS_MAX)
        invariants.broken(0, `the run hangs: ${world.steps} events in ${Math.round(world.now)} ms`);
      else if (!(await world.step())) invariants.broken(0, "nothing happens any more, and the run has not ended");
      invariants.check(world.now);
    }
    if (end !== null) checkEnd(stage, end, spawner.processes.size);
  } finally {
    for (const { life } of spawner.processes) life.die();
    store.close();
  }
  return {
    seed,
    broken: invariants.first,
    trace: world.digest,
    tail: world.tail,
    events: world.steps,
    simulatedMs: world.now,
    faults: chaos?.counts ?? noFaults(),
    parameters: stage.finished?.parameters ?? null,
    metrics: lastingMetrics(invariants.told),
  };
}

const noFaults = () => Object.fromEntries(FAULT_KINDS.map((kind) => [kind, 0])) as Record<FaultKind, number>;

/** What the run promises once it is over. */
function checkEnd({ invariants, finished, store, failedForDisk }: Stage, end: RunEnd, processesLeft: number): void {
  // A run whose last checkpoint cannot be written fails, and says so.
  if (!end.ok && failedForDisk) return;
  if (!end.ok || finished === null) {
    invariants.broken(0, `the run failed: ${end.reason}`);
    return;
  }
  if (processesLeft > 0) invariants.broken(0, `${processesLeft} processes are left`);
  if (finished.left > 0) invariants.broken(3, `${finished.left} rows or messages were not delivered`);
  const { rows } = store.episodes({}, { limit: 100_000 });
  const stored = rows.map(({ episode, attempt }) => `${episode} ${attempt}`);
  const known = new Set(stored);
  if (known.size < stored.length) invariants.broken(3, "an episode is stored twice");
  const inLog = new Set(rows.map(({ episode }) => episode));
  for (const [episode, update] of invariants.lineage)
    if (!inLog.has(episode)) invariants.broken(3, `${episode} was trained on in ${update}, and is not in the log`);
  for (const row of invariants.acknowledged)
    if (!known.has(row)) invariants.broken(3, `${row} was said to be stored, and is not`);
}

/** As text, in order; without those that measure time. */
function lastingMetrics(told: ReadonlyMap<string, number>): string {
  const lasting = [...told].filter(([key]) => {
    const name = key.slice(0, key.lastIndexOf(" "));
    return isMetricName(name) && metric(name).timed !== true;
  });
  return lasting
    .map(([key, value]) => `${key} ${value}`)
    .sort()
    .join("\n");
}

/** As actors/supervisor/cluster.ts. */
async function startSupervisor(
  { world, network, supervisor: life }: Stage,
  config: RunConfig,
  spawner: ReturnType<typeof simulatedSpawner>,
): Promise<Supervisor> {
  const known = new AddressBook();
  const supervisor: Supervisor = new Supervisor({
    run: "run",
    token: "",
    clock: life.clock,
    spawner,
    ...config.supervisor,
    transport: network.transport(life),
    limits: { logLevel: "info", frameBytesMax: 1 << 20, queuedBytesMax: 4 << 20 },
    event: (event) => world.note(`supervisor: ${event.kind} ${event.child}`),
    output: () => {},
    onReady(child, url) {
      known.add(child, supervisor.children.find(({ name }) => name === child)!.role, url);
      for (const listener of ["learner", "sampler"] as const) supervisor.tell(listener, known.roster());
    },
    firstMessages: () => [known.roster()],
  });
  await supervisor.listen("simulated://supervisor:1");
  for (const { role, name } of actorsOf(config)) {
    supervisor.start({
      name,
      role,
      entry: role,
      restart: true,
      critical: true,
      endsRun: role === "learner",
      settings: () => null,
    });
  }
  return supervisor;
}
