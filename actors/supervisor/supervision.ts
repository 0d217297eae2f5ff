/** The supervisor's options, the events that it reports, and time limits that are the same in every run. */
import type { Clock } from "../clock.ts";
import type { ActorSettings } from "../process/settings.ts";
import type { ActorView, Role, Tell } from "../protocol.ts";
import type { Transport } from "../transport/transport.ts";
import type { HeartbeatLimits } from "./heartbeats.ts";
import type { Exit, Spawner } from "./spawner.ts";

export interface ChildSpec {
  /** Unique in the run: "sampler-1". */
  readonly name: string;
  readonly role: Role;
  readonly entry: string;
  /** Returns a value that JSON can hold. The supervisor calls it for each start, so that a replacement gets current settings. */
  readonly settings: () => unknown;
  /** True: the run ends with success when this child exits with code 0. */
  readonly endsRun?: boolean;
}

type LastReport = Pick<ActorView, "doing" | "lastMessage">;

export type SupervisorEvent =
  | { readonly kind: "started"; readonly child: string; readonly pid: number }
  | { readonly kind: "ready"; readonly child: string; readonly url: string }
  | ({ readonly kind: "exited"; readonly child: string; readonly pid: number; readonly asked: boolean } & Exit)
  | { readonly kind: "restarted"; readonly child: string; readonly pid: number; readonly restarts: number }
  /** The child has sent no heartbeat for `silentMs`. */
  | ({ readonly kind: "silent"; readonly child: string; readonly silentMs: number } & LastReport)
  /** The child sends heartbeats, but one computation of it has taken `workingMs`. */
  | ({ readonly kind: "stuck"; readonly child: string; readonly workingMs: number } & LastReport)
  | { readonly kind: "startFailed"; readonly child: string; readonly reason: string }
  | { readonly kind: "gaveUp"; readonly child: string; readonly reason: string }
  | { readonly kind: "open"; readonly child: "gate"; readonly address: string; readonly tokenFile: string | null }
  | GuestEvent;

export type GuestEvent =
  | { readonly kind: "joined"; readonly child: string; readonly role: Role }
  | { readonly kind: "left"; readonly child: string; readonly role: Role; readonly reason: string };

export const CHILD_TIMES = { startDeadlineMs: 60_000, restartWindowMs: 60_000, killGraceMs: 2000 } as const;

export interface SupervisorOptions extends HeartbeatLimits {
  readonly run: string;
  readonly token: string;
  readonly transport: Transport;
  readonly spawner: Spawner;
  readonly clock: Clock;
  readonly restartsMax: number;
  readonly restartWindowMs: number;
  /** Time from the message `stop` to SIGTERM. */
  readonly stopGraceMs: number;
  /** Time from SIGTERM to SIGKILL. */
  readonly killGraceMs: number;
  readonly limits: Pick<ActorSettings, "logLevel" | "frameBytesMax" | "queuedBytesMax">;
  readonly event: (event: SupervisorEvent) => void;
  readonly output: (child: string, line: string) => void;
  /** The messages that each child gets when it connects, such as the roster. */
  readonly firstMessages?: () => readonly Tell[];
}

export interface RunEnd {
  readonly ok: boolean;
  readonly reason: string;
}
