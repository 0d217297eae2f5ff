/**
 * A process of the simulated machine: what actors/process/life.ts and actors/supervisor/spawner.ts are for real ones.
 * A killed process does nothing more; a frozen one continues later.
 */
import type { ActorContext, Running } from "../../actors/actor.ts";
import type { RunConfig } from "../../actors/config/config.ts";
import { describeError, RUN_ERROR_CODE, RunError } from "../../actors/errors.ts";
import type { Level } from "../../actors/log.ts";
import { ActorSettings } from "../../actors/process/settings.ts";
import { type Role, STARTING, type Tell } from "../../actors/protocol.ts";
import type { ActorRole } from "../../actors/supervisor/roster.ts";
import type { Exit, Spawner } from "../../actors/supervisor/spawner.ts";
import { helloOf } from "../../actors/transport/handshake.ts";
import { connectForever } from "../../actors/transport/reconnect.ts";
import type { Machine } from "./machine.ts";
import { WatchedMeter } from "./meter.ts";
import type { SimulatedProcess } from "./ports.ts";
import { Life } from "./world.ts";

/** Starts a real actor on simulated ports. */
export type Start = (config: RunConfig, context: ActorContext, process: SimulatedProcess) => Promise<Running>;

export interface Process {
  readonly life: Life;
  readonly role: Role;
  kill(signal: string): void;
}

/** @param starts  by role, which is also the entry that the supervisor names */
export function simulatedSpawner(
  machine: Machine,
  config: RunConfig,
  starts: Readonly<Record<ActorRole, Start>>,
): Spawner & { readonly processes: Set<Process> } {
  const processes = new Set<Process>();
  let count = 0;
  return {
    processes,
    spawn(entry, settingsLine) {
      const actorSettings = ActorSettings.parse(JSON.parse(settingsLine));
      const role = entry as ActorRole;
      const start = starts[role];
      const incarnation = ++count;
      const life = new Life(machine.world, actorSettings.actor);
      const { promise, resolve } = Promise.withResolvers<Exit>();
      let leave = (_reason: string) => {};
      const exit = (how: Exit) => {
        if (!life.alive) return;
        machine.world.note(`${life.name} ends: ${how.signal ?? how.code}`);
        life.die();
        processes.delete(process);
        machine.world.schedule(machine.supervisor, machine.world.between(0.5, 5), `sees ${life.name} end`, () =>
          resolve(how),
        );
      };
      const process: Process = {
        life,
        role,
        // Of a frozen process SIGTERM waits, as everything does.
        kill: (signal) =>
          signal === "SIGKILL"
            ? exit({ code: null, signal })
            : void machine.world.schedule(life, 0, signal, () => leave(signal)),
      };
      processes.add(process);
      const begun = life.sleep(machine.world.between(20, 300), "starts");
      void begun.then(() => {
        leave = live(machine, config, { life, role, start, actorSettings, incarnation, exit });
      });
      return { pid: incarnation, exited: promise, kill: process.kill };
    },
  };
}

interface NewProcess {
  readonly life: Life;
  readonly role: Role;
  readonly start: Start;
  readonly actorSettings: ActorSettings;
  readonly incarnation: number;
  readonly exit: (how: Exit) => void;
}

/** @returns how it leaves. */
function live(
  machine: Machine,
  config: RunConfig,
  { life, role, start, actorSettings, incarnation, exit }: NewProcess,
) {
  const { world, network, invariants } = machine;
  const { actor, run, supervisor: address, heartbeatMs } = actorSettings;
  const transport = network.transport(life);
  let running: Running | null = null;
  let leaving = false;
  const early: Tell[] = [];

  async function leave(reason: string): Promise<void> {
    if (leaving) return;
    leaving = true;
    await running?.stop(reason);
    supervisor.close(reason);
    exit({ code: 0, signal: null });
  }
  function fail(error: unknown): void {
    world.note(`${life.name} fails: ${describeError(error)}`);
    if (error instanceof RunError && machine.disk.full) machine.failedForDisk = true;
    // Errors that a restart cures are expected here; a bug is not.
    if (error instanceof TypeError) invariants.broken(0, `${life.name}: ${error.stack}`);
    exit({ code: error instanceof RunError ? RUN_ERROR_CODE : 1, signal: null });
  }

  const me = () => ({ actor, role, url: running?.url ?? null });
  const supervisor = connectForever({
    transport,
    address: () => address,
    me,
    run,
    clock: life.clock,
    uniform: world.uniform,
    backoffMs: { first: 50, max: 2000 },
    helloDeadlineMs: 2000,
    handler: {
      opened: sayUrl,
      told(_, message) {
        if (message.type === "stop") void leave(message.reason).catch(fail);
        else if (running !== null) running.told?.(message);
        else early.push(message);
      },
      asked: (_, { type }) => ({ type: "failed", code: "protocol", detail: `a child is not asked ${type}` }),
    },
  });
  function sayUrl(): void {
    const peer = supervisor.peer();
    if (peer !== null && running !== null && running.url !== null) void peer.ask(helloOf(me()), 2000);
  }
  function beat(): void {
    supervisor.peer()?.tell({
      type: "heartbeat",
      actor,
      doing: running?.doing() ?? STARTING,
      lastMessage: "",
      rssBytes: 0,
      workingMs: 0,
      load: {},
      weights: running?.weights?.() ?? null,
    });
    life.clock.after(heartbeatMs, beat);
  }
  beat();

  const meter = new WatchedMeter(life, role, config, invariants);
  const finish = (reason: string) => void leave(reason).catch(fail);
  const context: ActorContext = {
    actor,
    run,
    folder: "run",
    token: "",
    clock: life.clock,
    log: simulatedLog(machine, life),
    meter,
    transport,
    listen: network.nextAddress(life),
    threads: false,
    guest: null,
    uniform: world.uniform,
    finish,
    fail,
  };
  start(config, context, { machine, life, meter, incarnation }).then((started) => {
    running = started;
    for (const message of early.splice(0)) running.told?.(message);
    sayUrl();
  }, fail);
  return finish;
}

/** Lines go into the trace. */
function simulatedLog(machine: Machine, life: Life): ActorContext["log"] {
  const at = (level: Level) => (kind: string, text: string) => {
    machine.world.note(`${life.name}: ${level} ${kind}: ${text}`);
    if (kind === "lost") machine.undelivered ??= text;
  };
  return { debug: at("debug"), info: at("info"), warning: at("warning"), error: at("error") };
}
