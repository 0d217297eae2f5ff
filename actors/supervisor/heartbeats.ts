/**
 * Watches the heartbeats of actors: finds actors that are silent, and actors whose computation gives no result (stuck). This file knows no
 * processes and no connections. `Supervisor` uses this file to watch children, and `Guests` uses it to watch guests.
 */
import type { Clock } from "../clock.ts";
import { type ActorView, type Messages, STARTING, type Tell } from "../protocol.ts";
import { notTaken } from "../transport/refusals.ts";

export interface Watched {
  /** The latest of four times: the actor's start, its connection, its last heartbeat, and the end of a suspension of this process. */
  heardAtMs: number;
  /** The last heartbeat; null before the first heartbeat. */
  heartbeat: Messages["heartbeat"] | null;
}

export interface HeartbeatFault {
  readonly kind: "silent" | "stuck";
  /** "silent": how long the actor has been silent. "stuck": how long its computation has given no result. */
  readonly ms: number;
  /** Text for people. It names the limit and the content of the actor's last heartbeat. */
  readonly reason: string;
}

export interface HeartbeatLimits {
  readonly heartbeatMs: number;
  readonly heartbeatDeadlineMs: number;
  /** Replaces `heartbeatDeadlineMs` until the first heartbeat. The time counts from the actor's start or its latest connection. */
  readonly startDeadlineMs?: number;
  readonly progressDeadlineMs: number;
}

/** Checks all actors every `heartbeatMs`, and calls `faulty` at each check for each actor past a limit. @returns a function that ends the checks */
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
    // A late check means that this process was suspended. Heartbeats then wait unread, so no actor counts as silent.
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

/** Records an actor's heartbeat. @throws {ProtocolError} if the message is no heartbeat */
export function takeHeartbeat(actor: Watched | undefined, message: Tell, clock: Clock): void {
  if (message.type !== "heartbeat") throw notTaken("to the supervisor from an actor", message.type);
  if (actor === undefined) return;
  actor.heardAtMs = clock.now();
  actor.heartbeat = message;
}

/** The actor's last report about itself; default values before its first heartbeat. */
export const stateOf = (
  heartbeat: Messages["heartbeat"] | null,
): Pick<ActorView, "doing" | "lastMessage" | "rssBytes" | "load" | "weights"> => ({
  doing: heartbeat?.doing ?? STARTING,
  lastMessage: heartbeat?.lastMessage ?? "",
  rssBytes: heartbeat?.rssBytes ?? 0,
  load: heartbeat?.load ?? {},
  weights: heartbeat?.weights ?? null,
});
