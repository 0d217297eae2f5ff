/** What the API answers, as schemas: the types of its code, and the description that /api/openapi.json gives to programs. */
import { z } from "zod";
import { ActorView, schemas } from "../protocol.ts";

const Count = z.number().int().nonnegative();
const Share = z.number().nullable();
const EpisodeRow = schemas.episodes.shape.rows.element;
const Ticket = EpisodeRow.shape.ticket;
const Outcome = EpisodeRow.shape.outcome;
const Played = Outcome.options[0];
const Level = schemas.event.shape.level;

export const Overview = z.strictObject({
  run: z.string(),
  env: z.string(),
  engine: z.string().nullable(),
  phase: z
    .enum(["waiting", "warm", "training", "finished", "silent"])
    .describe("silent: recorded, and not heard of for a minute"),
  status: z.string().describe("One sentence for people"),
  progress: Share.describe("Share of the phase that is done, if it can be known"),
  update: Count.nullable(),
  updates: Count.nullable(),
  tokensPerSecond: z.number().nullable(),
  aliveMs: z.number().describe("How long the run has run, over all its sessions"),
  success: z
    .strictObject({ random: Share, taught: Share, before: Share, now: Share, nowUpdate: Count.nullable(), best: Share })
    .describe("Validation success; `now` is the latest one, measured at update `nowUpdate`"),
  alarm: z
    .strictObject({ level: Level, text: z.string() })
    .nullable()
    .describe("The detector's newest verdict, if it is a bad one"),
});
export type Overview = z.infer<typeof Overview>;

export const RunAnswer = Overview.extend({
  cursor: z.string().describe("Where the record ends now; goes into /api/stream?since="),
});

export const ActorsAnswer = z.strictObject({
  atMs: z
    .number()
    .nullable()
    .describe("When the supervisor told it, in milliseconds since the epoch; null if it has not"),
  actors: z.array(ActorView),
});

export const Series = z.strictObject({
  name: z.string(),
  actor: z.string(),
  steps: z.array(Count).describe("Ascending, with a value each"),
  values: z.array(z.number()),
});
export type Series = z.infer<typeof Series>;
export const MetricsAnswer = z.strictObject({
  cursor: Count.describe("Goes into `since` of the next question"),
  series: z.array(Series),
});

export const StoredEvent = z.strictObject({
  id: Count,
  atMs: z.number(),
  actor: z.string(),
  level: Level,
  kind: z.string(),
  text: z.string(),
});
export type StoredEvent = z.infer<typeof StoredEvent>;
export const EventsAnswer = z.strictObject({ events: z.array(StoredEvent).describe("Newest first") });

/** What lists show of an episode. What an env error or an aborted episode does not have is null. */
export const EpisodeSummary = z.strictObject({
  id: Count.describe("Grows with every stored episode"),
  episode: z.string(),
  attempt: Count,
  purpose: Ticket.shape.purpose,
  env: z.string(),
  layoutSeed: Count,
  group: Count,
  member: Count,
  sampler: z.string(),
  status: z.enum([...Played.shape.status.options, ...Outcome.options[1].shape.status.options]),
  stop: Played.shape.stop.nullable(),
  success: z.boolean().nullable(),
  version: Count.nullable().describe("Policy version that played it"),
  reward: z.number().nullable().describe("Sum over turns, without penalties"),
  penalty: z.number().nullable(),
  turnCount: Count,
  writtenTokens: Count.describe("Tokens that the policy wrote"),
  update: Count.nullable().describe("Update it was trained in"),
  advantage: z.number().nullable(),
  atMs: z.number(),
});
export type EpisodeSummary = z.infer<typeof EpisodeSummary>;
export const EpisodesAnswer = z.strictObject({
  rows: z.array(EpisodeSummary).describe("Newest first"),
  next: Count.nullable().describe("Goes into `before` of the next page; null on the last one"),
});

export const WrittenToken = z.strictObject({
  text: z.string(),
  logProb: z.number(),
  advantage: z.number().nullable().describe("Null if it was not trained on"),
});
export type WrittenToken = z.infer<typeof WrittenToken>;
export const EpisodeAnswer = z.strictObject({
  summary: EpisodeSummary,
  row: EpisodeRow,
  told: z
    .array(z.string())
    .nullable()
    .describe("What was put before each reply, in the policy's own layout; null where its tokenizer is not known"),
  written: z
    .array(z.array(WrittenToken))
    .nullable()
    .describe("What the policy wrote in each turn, token by token; null where its tokenizer is not known"),
});

/** What it takes to play an episode of this run again, by hand or in the browser. */
export const PlayAnswer = z.strictObject({
  compat: z.boolean(),
  envs: z.array(
    z.strictObject({
      name: z.string().describe("As tickets have it; a tag, unless the run gives it another name"),
      tag: z.string(),
      options: z.record(z.string(), z.unknown()),
      rules: z.strictObject({
        turnsMax: Count,
        actionsMax: Count,
        actionsPerTurnMax: Count,
        formatPenalty: z.number(),
        think: z.boolean(),
      }),
    }),
  ),
});
export type PlayAnswer = z.infer<typeof PlayAnswer>;

export const OtherRun = z.strictObject({
  name: z.string().describe("Its folder"),
  run: z.string(),
  env: z.string(),
  startedMs: z.number(),
  update: Count.nullable(),
  success: Share.describe("Of the latest validation"),
});
export type OtherRun = z.infer<typeof OtherRun>;
export const RunsAnswer = z.strictObject({
  runs: z.array(OtherRun).describe("Runs in folders beside this one, newest first"),
  unreadable: z.array(z.strictObject({ name: z.string(), reason: z.string() })),
});
export const OtherMetricsAnswer = z.strictObject({ series: z.array(Series) });

export const ErrorAnswer = z.strictObject({ error: z.string() });
