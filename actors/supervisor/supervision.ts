/** What the supervisor is given, and what it tells of its children. Types, and words for people. */

import type { Clock } from "../clock.ts";
import type { ActorSettings } from "../process/settings.ts";
import { type Messages, type Role, STARTING, type Tell } from "../protocol.ts";
import type { Transport } from "../transport/transport.ts";
import type { GuestEvent } from "./guests.ts";
import type { Exit, Spawner } from "./spawner.ts";

export interface ChildSpec {
  /** Unique in the run: "sampler-1". */
  readonly name: string;
  readonly role: Role;
  /** Path of the module to run. */
  readonly entry: string;
  /** Made anew for each start, so that a replacement learns of new addresses. JSON. */
  readonly settings: () => unknown;
  /** Start it again when it fails. */
  readonly restart: boolean;
  /** The run cannot go on without it. */
  readonly critical: boolean;
  /** Its exit with code 0 is the good end of the run. */
  readonly endsRun?: boolean;
}

export type SupervisorEvent =
  | { readonly kind: "started"; readonly child: string; readonly pid: number }
  | { readonly kind: "ready"; readonly child: string; readonly url: string }
  | ({ readonly kind: "exited"; readonly child: string; readonly pid: number; readonly asked: boolean } & Exit)
  | { readonly kind: "restarted"; readonly child: string; readonly pid: number; readonly restarts: number }
  | {
      readonly kind: "wedged";
      readonly child: string;
      readonly silentMs: number;
      readonly doing: string;
      readonly lastMessage: string;
    }
  | {
      readonly kind: "stuck";
      readonly child: string;
      readonly workingMs: number;
      readonly doing: string;
      readonly lastMessage: string;
    }
  | { readonly kind: "gaveUp"; readonly child: string; readonly reason: string }
  | { readonly kind: "open"; readonly child: "gate"; readonly address: string; readonly tokenFile: string | null }
  | GuestEvent;

export interface SupervisorOptions {
  readonly run: string;
  readonly token: string;
  readonly transport: Transport;
  readonly spawner: Spawner;
  readonly clock: Clock;
  readonly heartbeatMs: number;
  /** Silence after which a child is replaced. */
  readonly heartbeatDeadlineMs: number;
  /** Time without a result of its computation after which a child is replaced. */
  readonly progressDeadlineMs: number;
  /** Time from the start to the first sign of life. */
  readonly startDeadlineMs: number;
  readonly restartsMax: number;
  readonly restartWindowMs: number;
  /** From the message `stop` to SIGTERM, and from there to SIGKILL. */
  readonly stopGraceMs: number;
  readonly killGraceMs: number;
  /** Passed on to the children. */
  readonly limits: Pick<ActorSettings, "logLevel" | "frameBytesMax" | "queuedBytesMax">;
  readonly event: (event: SupervisorEvent) => void;
  /** A line that a child wrote. */
  readonly output: (child: string, line: string) => void;
  /** A child listens at a new url. */
  readonly onReady?: (child: string, url: string) => void;
  /** What a child is told whenever it connects, such as the roster. */
  readonly greet?: (child: string) => readonly Tell[];
}

/** How a run ended. */
export interface RunEnd {
  readonly ok: boolean;
  readonly reason: string;
}

/** Why a child or a guest is given up: for how long it said or computed nothing, and where it was when it was last heard. */
export function givenUpFor(
  fault: "silent" | "stuck",
  ms: number,
  limitMs: number,
  heartbeat: Pick<Messages["heartbeat"], "doing" | "lastMessage"> | null,
): string {
  const what = fault === "silent" ? "silent" : "no result of its computation";
  const { doing, lastMessage } = heartbeat ?? { doing: STARTING, lastMessage: "" };
  const at = `last heard ${doing}; its last message was ${lastMessage || "none"}`;
  return `${what} for ${Math.round(ms)} ms (limit ${limitMs} ms), ${at}`;
}
