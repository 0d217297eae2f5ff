/**
 * Watches the heartbeats of actors: finds those that are silent, and those whose computation gives no result. Knows no processes
 * and no connections. `Supervisor` uses it for its children, and `Guests` for the guests.
 */
import type { Clock } from "../clock.ts";
import { type ActorView, type Messages, STARTING, type Tell } from "../protocol.ts";
import { notTaken } from "../transport/refusals.ts";

export interface Watched {
  /** When the actor was started, connected or was last heard, or when this process woke after a suspension. */
  heardAtMs: number;
  /** null until the first heartbeat. */
  heartbeat: Messages["heartbeat"] | null;
}

export interface HeartbeatFault {
  readonly kind: "silent" | "stuck";
  /** silent: how long the actor was silent. stuck: how long its computation has given no result. */
  readonly ms: number;
  /** For people, with the limit and the actor's last heartbeat. */
  readonly reason: string;
}

export interface HeartbeatLimits {
  readonly heartbeatMs: number;
  /** Silence after which an actor is faulty. */
  readonly heartbeatDeadlineMs: number;
  /** An actor without a heartbeat is faulty this long after its start or its latest connection. Left out: `heartbeatDeadlineMs`. */
  readonly startDeadlineMs?: number;
  /** Time without a result of its computation after which an actor is faulty. */
  readonly progressDeadlineMs: number;
}

/**
 * Checks every `heartbeatMs`.
 *
 * @param faulty  called for each actor past a limit, at every check
 * @returns a function that ends the checks
 */
export function watchHeartbeats<A extends Watched>(
  clock: Clock,
  limits: HeartbeatLimits,
  actors: () => Iterable<A>,
  faulty: (actor: A, fault: HeartbeatFault) => void,
): () => void {
  const { heartbeatMs, heartbeatDeadlineMs } = limits;
  let checkedAtMs = clock.now();
  let cancel = clock.after(heartbeatMs, check);
  function check(): void {
    const now = clock.now();
    // A late check means that this process was suspended: heartbeats wait to be read, and no actor was silent.
    const wasSuspended = now - checkedAtMs > heartbeatMs + heartbeatDeadlineMs / 2;
    checkedAtMs = now;
    for (const actor of [...actors()]) {
      if (wasSuspended) actor.heardAtMs = now;
      const fault = faultOf(actor, now, limits);
      if (fault !== null) faulty(actor, fault);
    }
    cancel = clock.after(heartbeatMs, check);
  }
  return () => cancel();
}

function faultOf({ heardAtMs, heartbeat }: Watched, now: number, limits: HeartbeatLimits): HeartbeatFault | null {
  const { heartbeatDeadlineMs, startDeadlineMs = heartbeatDeadlineMs, progressDeadlineMs } = limits;
  const { doing, lastMessage } = stateOf(heartbeat);
  const at = `its last heartbeat said: ${doing}; the last message that it received: ${lastMessage || "none"}`;
  const silentMs = now - heardAtMs;
  const silenceMsMax = heartbeat === null ? startDeadlineMs : heartbeatDeadlineMs;
  if (silentMs > silenceMsMax) {
    const reason = `silent for ${Math.round(silentMs)} ms (limit ${silenceMsMax} ms), ${at}`;
    return { kind: "silent", ms: silentMs, reason };
  }
  const workingMs = heartbeat?.workingMs ?? 0;
  if (workingMs <= progressDeadlineMs) return null;
  const reason = `no result of its computation for ${Math.round(workingMs)} ms (limit ${progressDeadlineMs} ms), ${at}`;
  return { kind: "stuck", ms: workingMs, reason };
}

/** Takes a message from an actor. @throws {ProtocolError} if it is no heartbeat */
export function takeHeartbeat(actor: Watched | undefined, message: Tell, clock: Clock): void {
  if (message.type !== "heartbeat") throw notTaken("to the supervisor from an actor", message.type);
  if (actor === undefined) return;
  actor.heardAtMs = clock.now();
  actor.heartbeat = message;
}

/** What an actor last reported of itself. */
export const stateOf = (
  heartbeat: Messages["heartbeat"] | null,
): Pick<ActorView, "doing" | "lastMessage" | "rssBytes" | "load" | "weights"> => ({
  doing: heartbeat?.doing ?? STARTING,
  lastMessage: heartbeat?.lastMessage ?? "",
  rssBytes: heartbeat?.rssBytes ?? 0,
  load: heartbeat?.load ?? {},
  weights: heartbeat?.weights ?? null,
});
