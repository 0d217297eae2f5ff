/**
 * The processes of the simulated machine. In a real run, processes come from actors/supervisor/spawner.ts. A killed process does nothing
 * more; a frozen process continues later.
 */
import type { ActorContext, Running } from "../../actors/actor.ts";
import type { RunConfig } from "../../actors/config/config.ts";
import { RunError } from "../../actors/errors.ts";
import type { Level } from "../../actors/log.ts";
import { live } from "../../actors/process/life.ts";
import { ActorSettings } from "../../actors/process/settings.ts";
import type { ActorRole } from "../../actors/supervisor/roster.ts";
import type { Exit, Spawner } from "../../actors/supervisor/spawner.ts";
import type { Machine } from "./machine.ts";
import { WatchedMeter } from "./meter.ts";
import { simulatedTransport } from "./network.ts";
import type { SimulatedProcess } from "./ports.ts";
import { Life } from "./world.ts";

/** Starts a real actor on simulated ports. */
export type Start = (config: RunConfig, context: ActorContext, process: SimulatedProcess) => Promise<Running>;

export interface Process {
  readonly life: Life;
  kill(signal: string): void;
}

/** @param starts  starts of actors by role. The supervisor passes the role in the argument `entry`. */
export function simulatedSpawner(
  machine: Machine,
  config: RunConfig,
  starts: Readonly<Record<ActorRole, Start>>,
): Spawner & { readonly processes: Set<Process> } {
  const { world, network, invariants, supervisor } = machine;
  const processes = new Set<Process>();
  let count = 0;
  return {
    processes,
    spawn(entry, settingsLine) {
      const actorSettings = ActorSettings.parse(JSON.parse(settingsLine));
      const role = entry as ActorRole;
      const incarnation = ++count;
      const life = new Life(world, actorSettings.actor);
      const { promise, resolve } = Promise.withResolvers<Exit>();
      let leave = (_reason: string) => {};
      const exit = (how: Exit) => {
        if (!life.alive) return;
        world.note(`${life.name} ends: ${how.signal ?? how.code}`);
        life.die();
        processes.delete(process);
        world.schedule(supervisor, world.between(0.5, 5), `sees ${life.name} end`, () => resolve(how));
      };
      const process: Process = {
        life,
        // SIGTERM to a frozen process waits, as all its events do.
        kill: (signal) =>
          signal === "SIGKILL"
            ? exit({ code: null, signal })
            : void world.schedule(life, 0, signal, () => leave(signal)),
      };
      processes.add(process);
      const begin = () => {
        const meter = new WatchedMeter(life, role, config, invariants);
        const running = live({
          actorSettings,
          role,
          log: simulatedLog(machine, life),
          clock: life.clock,
          uniform: world.uniform,
          meter,
          transport: simulatedTransport(network, life),
          listen: network.nextAddress(life),
          rssBytes: () => 0,
          lastMessage: () => "",
          start: (context) =>
            starts[role](
              config,
              { ...context, folder: "run", host: "one-thread", guest: null },
              { machine, life, meter, incarnation },
            ),
          exit(code, error) {
            watchFailure(machine, life, error);
            exit({ code, signal: null });
          },
        });
        running.started.catch(running.fail);
        leave = (reason) => void running.leave(reason);
      };
      void life.sleep(world.between(20, 300), "starts").then(begin);
      return { pid: incarnation, exited: promise, kill: process.kill };
    },
  };
}

/**
 * After a full disk has room again, an actor may still fail for this long. An actor that cannot write removes its unfinished files or
 * tries again, and then fails. A learner that ends tries again for 6 s, which is `supervisor.heartbeatDeadlineMs` plus 4 s.
 */
const LATE_FAILURE_MS = 6500;

/** Checks the error with which an actor ended, if any. */
function watchFailure(machine: Machine, life: Life, error: unknown): void {
  const { world, disk, invariants } = machine;
  const wasFull = disk.full || world.now - disk.roomAtMs < LATE_FAILURE_MS;
  if (error instanceof RunError && wasFull) machine.failedForDisk = true;
  // The simulation causes errors that a restart repairs. A TypeError is a bug.
  if (error instanceof TypeError) invariants.broken(0, `${life.name}: ${error.stack}`);
}

/** A log whose lines go into the trace. */
function simulatedLog(machine: Machine, life: Life): ActorContext["log"] {
  const at = (level: Level) => (kind: string, text: string) => {
    machine.world.note(`${life.name}: ${level} ${kind}: ${text}`);
    if (kind === "lost") machine.undelivered ??= text;
  };
  return { debug: at("debug"), info: at("info"), warning: at("warning"), error: at("error") };
}
