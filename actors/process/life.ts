/**
 * The life of an actor's process or worker: starts the actor, sends heartbeats, and leaves when the supervisor sends `stop`. This
 * file does not know where the settings come from: boot.ts gets them from the parent, join.ts from a run on another machine. The simulator
 * also calls `live`.
 *
 * - `process.exit` in a worker ends the worker only.
 * - An uncaught error writes one line to the log, and the exit code is 1. After a `RunError` the exit code is `RUN_ERROR_CODE`, because
 *   a restart would fail in the same way.
 */
import type { ActorContext, Order, Running } from "../actor.ts";
import { realClock } from "../clock.ts";
import { describeError, RUN_ERROR_CODE, RunError, stackOf } from "../errors.ts";
import { makeLog } from "../log.ts";
import { cpuSeconds, energyReader, Meter } from "../metrics/meter.ts";
import { type Role, STARTING } from "../protocol.ts";
import { freeAddressLike } from "../transport/address.ts";
import { helloOf } from "../transport/handshake.ts";
import { connectForever, HELLO_DEADLINE_MS } from "../transport/reconnect.ts";
import { refused } from "../transport/refusals.ts";
import { RoutedTransport } from "../transport/routed.ts";
import type { SocketOptions } from "../transport/socket-wire.ts";
import type { ActorSettings } from "./settings.ts";

/** The part of an actor's context that does not depend on how its process started. */
export type LifeContext = Omit<ActorContext, "folder" | "host" | "guest">;

/** What `live` gets from the real or simulated machine. */
interface ProcessPorts extends Pick<ActorContext, "clock" | "uniform" | "meter" | "transport" | "listen"> {
  readonly rssBytes: () => number;
  /** The type of the last message that arrived. */
  readonly lastMessage: () => string;
  /** Ends the process. `error`: the cause, if the actor failed. */
  exit(code: number, error?: unknown): void;
  /** True if the actor's thread continues after `exit`. Such an actor stops before `exit`, even if it failed or was still starting. */
  readonly sharesThread?: boolean;
}

/** The ports that an actor with its own process or worker and an actor that shares its thread get from different places. */
type Place = Pick<ProcessPorts, "clock" | "exit" | "sharesThread">;

interface LiveOptions extends ProcessPorts, Pick<ActorContext, "log"> {
  readonly actorSettings: Omit<ActorSettings, "settings">;
  readonly role: Role;
  readonly start: (context: LifeContext) => Running | Promise<Running>;
  readonly connected?: () => void;
  /** Called when an attempt to reach the supervisor fails; `runActorLife` logs a warning by default. The arguments: see `ReconnectOptions.failed`. */
  readonly unreachable?: (detail: string, attempt: number, error: unknown) => void;
}

interface LifeOptions extends Omit<LiveOptions, keyof ProcessPorts | "log"> {
  readonly write: (line: string) => void;
  /** Texts that the log hides, in addition to the run's token. */
  readonly secrets?: readonly string[];
  /** Certificates for wss://. */
  readonly tls?: SocketOptions["tls"];
}

export interface ActorLife {
  readonly started: Promise<void>;
  /** Stops the actor, which may save its work, and exits with code 0. */
  leave(reason: string): Promise<void>;
  /** Logs the error and exits with the exit code for it. */
  fail(error: unknown): void;
  readonly isSupervised: boolean;
}

/** Maximum number of messages of the supervisor that this file keeps while the actor starts. */
const EARLY_MAX = 256;

const tooManyEarly = `the actor has not started, and ${EARLY_MAX} messages of the supervisor wait, the most allowed; the actor's log says what the start waits for`;

/** @param place  left out: the actor has its own process or worker, which ends with the actor */
export function runActorLife(options: LifeOptions, place?: Place): ActorLife {
  const { write, secrets = [] } = options;
  const { actor, logLevel: level, token, frameBytesMax, queuedBytesMax, supervisor } = options.actorSettings;
  const log = makeLog({ actor, level, secrets: [token, ...secrets], write, date: () => new Date() });
  const { clock, ...end } = place ?? { clock: realClock, exit: (code: number) => process.exit(code) };
  const meter = new Meter(clock);
  meter.depth("process/cpu_seconds", cpuSeconds);
  if (options.role === "learner") meter.depth("machine/energy_joules", energyReader());
  let lastMessage = "";
  const transport = new RoutedTransport({
    clock,
    token,
    frameBytesMax,
    queuedBytesMax,
    ...(options.tls === undefined ? {} : { tls: options.tls }),
    report: ({ kind, detail, ...where }) => log.warning(`peer.${kind}`, detail, where),
    received(type) {
      // Every connection gets a `welcome`, so this message says nothing about the actor's work.
      if (type !== "welcome") lastMessage = type;
    },
    passed: (direction, bytes) => meter.count(`speed/${direction}_bytes_per_second`, bytes),
  });
  const life = live({
    unreachable: (detail, attempt) => log.warning("supervisor.unreachable", detail, { attempt }),
    ...options,
    ...end,
    log,
    clock,
    uniform: Math.random,
    meter,
    transport,
    listen: freeAddressLike(supervisor),
    rssBytes: () => process.memoryUsage.rss(),
    lastMessage: () => lastMessage,
  });
  if (place !== undefined) return life;
  // In a process that joins a run, scripts/run.ts also listens to these events. `fail` runs first, so that its exit code is used.
  for (const kind of ["uncaughtException", "unhandledRejection"]) process.prependListener(kind, life.fail);
  return life;
}

export function live(options: LiveOptions): ActorLife {
  const { actorSettings, role, log, clock, uniform, meter, transport, listen } = options;
  const { actor, run, token, heartbeatMs } = actorSettings;
  const begun = Promise.withResolvers<void>();
  let running: Running | null = null;
  let leaving = false;
  let stopped = false;

  async function leave(reason: string): Promise<void> {
    if (leaving) return;
    leaving = true;
    log.info("stop", reason);
    try {
      if (options.sharesThread) await begun.promise;
      stopped = true;
      await running?.stop(reason);
      supervisor.close(reason);
      options.exit(0);
    } catch (error) {
      fail(error);
    }
  }

  function fail(error: unknown): void {
    log.error("crash", describeError(error), { stack: stackOf(error) });
    const exit = () => options.exit(error instanceof RunError ? RUN_ERROR_CODE : 1, error);
    if (options.sharesThread) void stopFailed().then(exit);
    else exit();
  }

  async function stopFailed(): Promise<void> {
    await begun.promise;
    if (stopped) return;
    stopped = true;
    await running?.stop("the actor has failed").catch(() => {});
  }

  const early: Order[] = [];
  const me = () => ({ actor, role, url: running?.url ?? null });
  const supervisor = connectForever({
    transport,
    address: () => actorSettings.supervisor,
    me,
    run,
    clock,
    uniform,
    failed: (detail, attempt, error) => options.unreachable?.(detail, attempt, error),
    handler: {
      opened() {
        options.connected?.();
        reportUrl();
      },
      told(_, message) {
        if (message.type === "stop") void leave(message.reason);
        else if (running !== null) running.told(message);
        else if (early.push(message) > EARLY_MAX) throw new Error(tooManyEarly);
      },
      asked: (_, message) => refused("to every actor from the supervisor", message.type),
    },
  });

  /** Repeats the hello, because the actor may have sent the first hello before it had a url. */
  function reportUrl(): void {
    const peer = supervisor.peer();
    if (peer === null || running === null || running.url === null) return;
    void peer.ask(helloOf(me()), HELLO_DEADLINE_MS).then((answer) => {
      // After a lost connection the next hello reports the url.
      if (answer.type === "failed" && answer.code !== "closed") log.warning("supervisor.hello", answer.detail);
    });
  }

  let beatAtMs = clock.now();
  let wokeAtMs = Number.NEGATIVE_INFINITY;
  function beat(): void {
    const now = clock.now();
    // A very late beat means that this process was suspended. So `workingMs` counts only the time since the process woke.
    if (now - beatAtMs > 10 * heartbeatMs) wokeAtMs = now;
    beatAtMs = now;
    const doing = (running?.doing() ?? STARTING).slice(0, 200);
    supervisor.peer()?.tell({
      type: "heartbeat",
      actor,
      doing,
      lastMessage: options.lastMessage(),
      rssBytes: options.rssBytes(),
      workingMs: Math.min(running?.workingMs?.() ?? 0, now - wokeAtMs),
      load: meter.read(),
      weights: running?.weights?.() ?? null,
    });
    clock.after(heartbeatMs, beat);
  }
  beat();

  async function start(): Promise<void> {
    running = await options.start({
      actor,
      run,
      token,
      clock,
      log,
      meter,
      uniform,
      fail,
      transport,
      listen,
      finish: (reason) => void leave(reason),
    });
    for (const message of early.splice(0)) running.told(message);
    reportUrl();
  }

  return {
    // `catch` is needed: in a worker, an error that rejects a top-level `await` reaches no handler of uncaught errors.
    started: start().catch(fail).finally(begun.resolve),
    leave,
    fail,
    get isSupervised() {
      return supervisor.peer() !== null;
    },
  };
}
