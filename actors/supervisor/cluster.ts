/**
 * A run on one machine: the supervisor and its actors. Each actor is a process or a Bun worker of this process, or all share one thread. This
 * file knows which actors to start and their addresses, but not what the actors do. After the run, `startCluster` deletes the weights that a
 * killed learner left.
 *
 * - If the actors are workers or share one thread, no guest can join. A crash of native code or a lack of memory then ends this process and
 *   the run. After the supervisor has replaced a learner or sampler, the memory of the old engine stays allocated.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { realClock } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import { heartbeatMs } from "../config/machine.ts";
import { type OpenGate, openGate } from "../gate/open.ts";
import type { RunActorSettings } from "../process/boot.ts";
import type { ActorView } from "../protocol.ts";
import { RoutedTransport } from "../transport/routed.ts";
import { type Problem, TRANSPORT_LIMITS } from "../transport/transport.ts";
import { sweep, weightsFolder, weightsName } from "../weights/files.ts";
import { type Addresses, actorsOf, rosterOf } from "./roster.ts";
import { processSpawner, type Spawner, workerSpawner } from "./spawner.ts";
import { CHILD_TIMES, type RunEnd, type SupervisorEvent } from "./supervision.ts";
import { Supervisor } from "./supervisor.ts";

export interface ClusterOptions {
  readonly run: string;
  readonly folder: string;
  readonly config: RunConfig;
  readonly event: (event: SupervisorEvent) => void;
  readonly output: (actor: string, line: string) => void;
}

export interface Cluster {
  readonly ended: Promise<RunEnd>;
  children(): readonly ActorView[];
  /** Asks the learner for a checkpoint after its current update. */
  save(): void;
  stop(reason: string): Promise<RunEnd>;
}

const ACTORS_EVERY_MS = 1000;

export async function startCluster({ run, folder, config, event, output }: ClusterOptions): Promise<Cluster> {
  const { supervisor: limits, transport: wire } = config;
  const token = wire.token ?? randomBytes(24).toString("base64url");
  const addresses: Addresses = new Map();
  const report = ({ kind, peer, detail, stack }: Problem) => {
    const line = { level: "warning", actor: "supervisor", kind: `peer.${kind}`, text: `${peer}: ${detail}`, stack };
    output("supervisor", JSON.stringify(line));
  };
  const transport = new RoutedTransport({ clock: realClock, token, ...TRANSPORT_LIMITS, report });
  const supervisor: Supervisor = new Supervisor({
    run,
    token,
    clock: realClock,
    spawner: await spawnerOf(config.actors),
    ...CHILD_TIMES,
    ...limits,
    heartbeatMs: heartbeatMs(limits),
    event(one) {
      event(one);
      if (one.kind !== "ready") return;
      const { role } = supervisor.children.find(({ name }) => name === one.child)!;
      addresses.set(one.child, { role, url: one.url });
      tellRoster();
    },
    output,
    transport,
    limits: { logLevel: limits.logLevel, ...TRANSPORT_LIMITS },
    firstMessages: () => [roster()],
  });
  let gate: OpenGate | null = null;

  function tellRoster(): void {
    for (const listener of ["learner", "sampler"] as const) supervisor.tell(listener, roster());
    gate?.tell(roster());
  }

  const roster = () => rosterOf(addresses, gate?.envServers);

  if (config.actors === "processes" && config.join.listen !== null) {
    gate = await openGate(config.join.listen, {
      run,
      folder,
      config,
      transport,
      actorsToken: token,
      event,
      report,
      // Guests may not connect to the metrics sink: only actors of this machine write to it.
      find(name) {
        const actor = addresses.get(name);
        return actor === undefined || actor.role === "metrics-sink" ? null : actor.url;
      },
      firstMessages: () => [roster()],
      envServersChanged: tellRoster,
    });
    event({ kind: "open", child: "gate", address: gate.address, tokenFile: gate.tokenFile });
  }
  try {
    await supervisor.listen(wire.listen);
  } catch (error) {
    // An open gate would keep this process alive.
    await gate?.close("the supervisor cannot listen");
    throw error;
  }
  for (const { role, name } of actorsOf(config)) {
    supervisor.start({
      name,
      role,
      endsRun: role === "learner",
      entry: join(import.meta.dir, "..", role, "main.ts"),
      settings: (): RunActorSettings => ({ config, folder }),
    });
  }
  const everyone = () => [...supervisor.children, ...(gate?.views ?? [])];
  let cancelTelling = () => {};
  function tellActors(): void {
    supervisor.tell("metrics-sink", { type: "actors", actors: everyone() });
    cancelTelling = realClock.after(ACTORS_EVERY_MS, tellActors);
  }
  tellActors();
  return {
    ended: supervisor.ended.then(async (end) => {
      cancelTelling();
      await gate?.close(end.reason);
      for (const place of new Set([weightsFolder(folder, () => {}), folder])) sweep(place, weightsName(run, folder));
      return end;
    }),
    children: everyone,
    save: () => supervisor.tell("learner", { type: "save" }),
    stop(reason) {
      gate?.tell({ type: "stop", reason });
      return supervisor.stop(reason);
    },
  };
}

async function spawnerOf(actors: RunConfig["actors"]): Promise<Spawner> {
  // Imports the module only when needed, because the module loads the code of every actor into this process.
  if (actors === "one-thread") return (await import("./one-thread.ts")).oneThreadSpawner;
  return actors === "workers" ? workerSpawner : processSpawner;
}
