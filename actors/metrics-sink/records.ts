/**
 * What the store of a run holds and is asked for. Types only: no sqlite, no HTTP.
 */
import type { ActorView, EpisodeRow, Messages, Outcome, StopReason, Ticket } from "../protocol.ts";

export interface Point {
  readonly name: string;
  readonly actor: string;
  readonly step: number;
  readonly value: number;
}
/** A point as it was written. */
export interface StoredPoint extends Point {
  readonly id: number;
  readonly atMs: number;
}
export type EventLevel = Messages["event"]["level"];
export interface EventFilter {
  readonly kind?: string | undefined;
  /** This level and worse ones. */
  readonly level?: EventLevel | undefined;
}
export interface Happening {
  readonly actor: string;
  readonly level: EventLevel;
  readonly kind: string;
  readonly text: string;
}
export interface Batch {
  readonly points: readonly Point[];
  readonly events: readonly Happening[];
  readonly episodes: readonly EpisodeRow[];
  /** Everyone there is now; null or left out: as before. */
  readonly actors?: readonly ActorView[] | null;
}
/** Everyone in the run, when the supervisor last told of them. */
export interface StoredActors {
  readonly atMs: number;
  readonly actors: readonly ActorView[];
}
/** What a run is. `updates` is null if it ends by time. */
export interface RunFacts {
  readonly name: string;
  readonly env: string;
  readonly updates: number | null;
  readonly seed: number;
}
/** Its newest session began at `startedMs` and was last heard of at `seenMs` (milliseconds since the epoch). */
export interface StoredRun extends RunFacts {
  readonly startedMs: number;
  readonly seenMs: number;
  /** How long ago that was; 0 for the session that is being written. */
  readonly silentMs: number;
  /** Length of all sessions before, in milliseconds. */
  readonly earlierMs: number;
}
/** The largest ids that a reader has seen. */
export interface Cursor {
  readonly points: number;
  readonly events: number;
  readonly episodes: number;
}
export interface EpisodeFilter {
  readonly env?: string | undefined;
  readonly purpose?: Ticket["purpose"] | undefined;
  readonly status?: Outcome["status"] | undefined;
  readonly stop?: StopReason | undefined;
  readonly success?: boolean | undefined;
  /** It could not be played: an env error, or aborted. */
  readonly failed?: boolean | undefined;
  readonly layoutSeed?: number | undefined;
  readonly version?: number | undefined;
  /** Words of a reply or of a failure, all in this order; the last may be the beginning of a word. */
  readonly text?: string | undefined;
  readonly update?: number | undefined;
  readonly rewardMin?: number | undefined;
  readonly rewardMax?: number | undefined;
}
/** Newest first: at most `limit` rows with ids below `before` and above `since`. */
export interface Page {
  readonly before?: number | undefined;
  readonly since?: number | undefined;
  readonly limit: number;
}
