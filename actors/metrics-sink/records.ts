/** Types of the data in the store, and of the queries for this data. */
import type { z } from "zod";
import type { EpisodeSummary } from "../dashboard/answers.ts";
import type { EpisodesQuery, EventsQuery } from "../dashboard/queries.ts";
import type { ActorView, EpisodeRow, Messages } from "../protocol.ts";

export interface Point {
  readonly name: string;
  readonly actor: string;
  readonly step: number;
  readonly value: number;
}
export interface StoredPoint extends Point {
  readonly id: number;
  readonly atMs: number;
}
export type EventFilter = Pick<z.output<typeof EventsQuery>, "kind" | "level">;
export type RunEvent = Omit<Messages["event"], "type">;
export interface WriteBatch {
  readonly points: readonly Point[];
  readonly events: readonly RunEvent[];
  readonly episodes: readonly EpisodeRow[];
  /** The supervisor's report of all actors. If null or left out, the store keeps the earlier report. */
  readonly actors?: readonly ActorView[] | null;
}
export interface RecordedEpisode {
  readonly summary: EpisodeSummary;
  readonly row: EpisodeRow;
}
export interface StoredActors {
  readonly atMs: number;
  readonly actors: readonly ActorView[];
}
/** Facts from a run's config. `updates` is the maximum number of updates; null if the record does not have this number. */
export interface RunFacts {
  readonly name: string;
  readonly env: string;
  readonly updates: number | null;
  readonly seed: number;
}
/** The newest session started at `startedMs` and last wrote at `seenMs`, both in milliseconds since the epoch. */
export interface StoredRun extends RunFacts {
  readonly startedMs: number;
  readonly seenMs: number;
  /** Time since `seenMs`; 0 if this process writes the session. */
  readonly silentMs: number;
  /** Total length of all earlier sessions, in milliseconds. */
  readonly earlierMs: number;
}
/** Where a reader is: the largest ids that it has read. */
export interface Cursor {
  readonly points: number;
  readonly events: number;
  readonly episodes: number;
}
export type EpisodeFilter = Omit<z.output<typeof EpisodesQuery>, "before" | "limit">;
/** Newest first: at most `limit` rows with ids below `before` and above `since`. */
export interface Page {
  readonly before?: number | undefined;
  readonly since?: number | undefined;
  readonly limit: number;
}
