/**
 * What every actor process does between its start and its end: say that it lives, listen to the supervisor, leave when told to.
 * Knows not where its settings came from (boot.ts: a parent; join.ts: a run on another machine).
 *
 * - An error nobody caught is one line in the log and exit code 1. After a `RunError` it is another code, which says that starting
 *   again would end the same way.
 */
import type { ActorContext, Running } from "../actor.ts";
import { realClock } from "../clock.ts";
import { describeError, RUN_ERROR_CODE, RunError, stackOf } from "../errors.ts";
import type { Log } from "../log.ts";
import { Meter } from "../metrics/meter.ts";
import { type Message, type Role, STARTING, type Tell } from "../protocol.ts";
import { anyBeside } from "../transport/address.ts";
import { createTransport } from "../transport/create.ts";
import { helloOf } from "../transport/handshake.ts";
import { connectForever } from "../transport/reconnect.ts";
import type { SocketOptions } from "../transport/socket-wire.ts";
import type { Transport } from "../transport/transport.ts";
import type { ActorSettings } from "./settings.ts";

/** What an actor gets from its process. */
export type LifeContext = Omit<ActorContext, "folder" | "threads" | "guest">;

export interface LifeOptions {
  readonly actorSettings: Omit<ActorSettings, "settings">;
  readonly role: Role;
  readonly log: Log;
  readonly start: (context: LifeContext) => Running | Promise<Running>;
  /** Whom to trust, and who we are, at the other end of wss://. */
  readonly tls?: SocketOptions["tls"];
  /** The transport that the actor gets; the plain one if left out. */
  readonly wrap?: (transport: Transport) => Transport;
  /** What the supervisor tells, as the actor should understand it. */
  readonly heard?: (message: Tell) => Tell;
  readonly connected?: () => void;
  /** The supervisor cannot be reached. `attempt` counts from 1. */
  readonly unreachable: (detail: string, attempt: number) => void;
}

export interface Life {
  readonly started: Promise<void>;
  /** Drain, save, exit code 0. */
  leave(reason: string): Promise<void>;
  /** Whether the supervisor is there, to say when to leave. */
  readonly watched: boolean;
}

const BACKOFF_MS = { first: 50, max: 2000 };
const HELLO_DEADLINE_MS = 5000;

/** Messages from the supervisor kept while the actor starts. */
const EARLY_MAX = 256;

export function live(options: LifeOptions): Life {
  const { actorSettings, role, log } = options;
  const { actor, run, token, frameBytesMax, queuedBytesMax } = actorSettings;
  let running: Running | null = null;
  let leaving = false;
  let lastMessage = "";

  async function leave(reason: string): Promise<void> {
    if (leaving) return;
    leaving = true;
    log.info("stop", reason);
    await running?.stop(reason);
    supervisor.close(reason);
    process.exit(0);
  }

  function fail(error: unknown): void {
    log.error("crash", describeError(error), { stack: stackOf(error) });
    process.exit(error instanceof RunError ? RUN_ERROR_CODE : 1);
  }
  // Before those of the command that lends us, if one does.
  for (const kind of ["uncaughtException", "unhandledRejection"]) process.prependListener(kind, fail);

  const meter = new Meter(realClock);
  const transport = createTransport("routed", {
    clock: realClock,
    token,
    frameBytesMax,
    queuedBytesMax,
    ...(options.tls === undefined ? {} : { tls: options.tls }),
    report: ({ kind, detail, ...where }) => log.warning(`peer.${kind}`, detail, where),
    received: (type: Message["type"]) => {
      // The welcome to the connection that carries the heartbeats is no news.
      if (type !== "welcome") lastMessage = type;
    },
    passed: (direction, bytes) => meter.count(`speed/${direction}_bytes_per_second`, bytes),
  });

  const early: Tell[] = [];
  const me = () => ({ actor, role, url: running?.url ?? null });
  const supervisor = connectForever({
    transport,
    address: () => actorSettings.supervisor,
    me,
    run,
    clock: realClock,
    uniform: Math.random,
    backoffMs: BACKOFF_MS,
    helloDeadlineMs: HELLO_DEADLINE_MS,
    failed: (detail, attempt) => options.unreachable(detail, attempt),
    handler: {
      opened() {
        options.connected?.();
        sayUrl();
      },
      told(_, told) {
        const message = options.heard?.(told) ?? told;
        if (message.type === "stop") void leave(message.reason);
        else if (running !== null) running.told?.(message);
        else if (early.push(message) > EARLY_MAX) throw new Error(`more than ${EARLY_MAX} messages before the start`);
      },
      asked: (_, { type }) => ({ type: "failed", code: "protocol", detail: `a child is not asked ${type}` }),
    },
  });

  /** The first hello may have gone before there was a url to say. */
  function sayUrl(): void {
    const peer = supervisor.peer();
    if (peer === null || running === null || running.url === null) return;
    void peer.ask(helloOf(me()), HELLO_DEADLINE_MS).then((answer) => {
      // A lost connection is made again, and says hello again.
      if (answer.type === "failed" && answer.code !== "closed") log.warning("supervisor.hello", answer.detail);
    });
  }

  function beat(): void {
    const doing = (running?.doing() ?? STARTING).slice(0, 200);
    supervisor.peer()?.tell({
      type: "heartbeat",
      actor,
      doing,
      lastMessage,
      rssBytes: process.memoryUsage.rss(),
      workingMs: running?.workingMs?.() ?? 0,
      load: meter.read(),
      weights: running?.weights?.() ?? null,
    });
    realClock.after(actorSettings.heartbeatMs, beat);
  }
  beat();

  async function start(): Promise<void> {
    running = await options.start({
      actor,
      run,
      token,
      clock: realClock,
      log,
      meter,
      uniform: Math.random,
      fail,
      transport: options.wrap?.(transport) ?? transport,
      listen: anyBeside(actorSettings.supervisor),
      finish: (reason) => void leave(reason),
    });
    for (const message of early.splice(0)) running.told?.(message);
    sayUrl();
  }

  return {
    started: start(),
    leave,
    get watched() {
      return supervisor.peer() !== null;
    },
  };
}
