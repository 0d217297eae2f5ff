/** Schemas of the answers of the page's API, and the type of the messages of /api/stream. The answers' types and /api/openapi.json come from the schemas. */
import { z } from "zod";
import { COMPATS } from "../../envs/tag.ts";
import { ActorView, schemas } from "../protocol.ts";
import { RunStart } from "../record/starts.ts";
import { Rating } from "./ratings.ts";

const Count = z.number().int().nonnegative();
/** A number; null if the run did not measure it. */
const NumberOrNull = z.number().nullable();
const EpisodeRow = schemas.episodes.shape.rows.element;
const Ticket = EpisodeRow.shape.ticket;
const Outcome = EpisodeRow.shape.outcome;
const Played = Outcome.options[0];
const Level = schemas.event.shape.level;

const Phase = z
  .enum(["waiting", "warm", "training", "finished", "silent"])
  .describe("silent: the run was stopped, or wrote nothing for a minute");

export const Overview = z.strictObject({
  run: z.string(),
  env: z.string(),
  engine: z.string().nullable(),
  phase: Phase,
  status: z.string().describe("State of the run, in one sentence"),
  progress: NumberOrNull.describe("Share of the phase that is done; null if unknown"),
  update: Count.nullable(),
  updates: Count.nullable(),
  tokensPerSecond: NumberOrNull,
  aliveMs: z.number().describe("Duration of the run over all its sessions"),
  success: z
    .strictObject({
      random: NumberOrNull,
      taught: NumberOrNull,
      before: NumberOrNull,
      now: NumberOrNull,
      nowUpdate: Count.nullable(),
      best: NumberOrNull,
      expert: NumberOrNull,
    })
    .describe(
      "Validation success. random: of a random player; taught: after the warm start's first stage; before: before the first update; now: at update `nowUpdate`; best: of the optimal player; expert: of the expert, where no optimal player is known",
    ),
  alarm: z
    .strictObject({ level: Level, text: z.string() })
    .nullable()
    .describe("Newest verdict of the Echo Trap detector, if it is a warning or worse"),
});
export type Overview = z.infer<typeof Overview>;

export const RunAnswer = Overview.extend({
  cursor: z.string().describe("End of the record now; pass it to /api/stream?since="),
});
export type RunAnswer = z.infer<typeof RunAnswer>;

export const ActorsAnswer = z.strictObject({
  atMs: NumberOrNull.describe("Time of the supervisor's report (ms since the epoch); null before the first report"),
  actors: z.array(ActorView),
});
export type ActorsAnswer = z.infer<typeof ActorsAnswer>;

export const Series = z.strictObject({
  name: z.string(),
  actor: z.string(),
  steps: z.array(Count).describe("Steps in ascending order, one for each value"),
  values: z.array(z.number()),
});
export type Series = z.infer<typeof Series>;
export const MetricsAnswer = z.strictObject({
  cursor: Count.describe("Pass it as `since` to get later values"),
  series: z.array(Series),
});
export type MetricsAnswer = z.infer<typeof MetricsAnswer>;

export const NamesAnswer = z.strictObject({
  metrics: z.array(z.strictObject({ name: z.string(), unit: z.string(), help: z.string() })),
});
export type NamesAnswer = z.infer<typeof NamesAnswer>;

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
export type EventsAnswer = z.infer<typeof EventsAnswer>;

/** An episode in a list. If the status is envError or aborted, the values that such an episode lacks are null. */
export const EpisodeSummary = z.strictObject({
  id: Count.describe("Number of the episode in the order in which the run stored the episodes"),
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
  version: Count.nullable().describe("Policy version that played the episode"),
  reward: NumberOrNull.describe("Sum of the rewards of all turns, without penalties"),
  penalty: NumberOrNull,
  turnCount: Count,
  writtenTokens: Count.describe("Tokens that the policy wrote"),
  update: Count.nullable().describe("Update that trained on the episode"),
  advantage: NumberOrNull,
  atMs: z.number(),
});
export type EpisodeSummary = z.infer<typeof EpisodeSummary>;
export const EpisodesAnswer = z.strictObject({
  rows: z.array(EpisodeSummary).describe("Newest first"),
  next: Count.nullable().describe("Pass it as `before` to get the next page; null on the last page"),
});
export type EpisodesAnswer = z.infer<typeof EpisodesAnswer>;

export const WrittenToken = z.strictObject({
  text: z.string(),
  logProb: z.number(),
  advantage: NumberOrNull.describe("Null if the learner did not train on the token"),
});
export type WrittenToken = z.infer<typeof WrittenToken>;
export const EpisodeAnswer = z.strictObject({
  summary: EpisodeSummary,
  row: EpisodeRow,
  prompts: z.array(z.string()).nullable().describe("New text before each reply, in the policy's chat template"),
  written: z
    .array(z.array(WrittenToken))
    .nullable()
    .describe(
      "Tokens of each reply; `prompts` and `written` are null if the tokenizer is unknown, or if the episode was not played",
    ),
});
export type EpisodeAnswer = z.infer<typeof EpisodeAnswer>;

/** The kinds of cells that the page can draw. A symbol of an env's grid stands for one kind. */
export const CellKind = z.enum(["wall", "floor", "player", "box", "target", "done"]);
export type CellKind = z.infer<typeof CellKind>;

/** Settings for replaying an episode of this run in the browser. */
export const PlayAnswer = z.strictObject({
  compat: z.enum(COMPATS),
  envs: z.array(
    z.strictObject({
      name: z.string().describe("Name in tickets: the tag, unless the run names the env"),
      tag: z.string(),
      options: z.record(z.string(), z.unknown()),
      symbols: z
        .record(z.string(), CellKind)
        .describe("Kind of cell of each symbol, by the env's own legend; symbols of no known kind are left out"),
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

export const SetupAnswer = z.strictObject({
  starts: z.array(RunStart).describe("Oldest first: the first start, then each resume"),
  settings: z
    .array(z.strictObject({ path: z.string(), value: z.unknown(), default: z.unknown() }))
    .describe('Every config key; a secret is null or "(hidden)"'),
});
export type SetupAnswer = z.infer<typeof SetupAnswer>;

const Settings = z.string().nullable();

export const OtherRun = z.strictObject({
  name: z.string().describe("Name of the run's folder"),
  run: z.string(),
  env: z.string(),
  seed: Count,
  settings: Settings.describe("Digest of the config without seed, addresses and supervision; null if unknown"),
  phase: Phase,
  startedMs: z.number(),
  update: Count.nullable(),
  success: NumberOrNull.describe("Success of the latest validation"),
});
export type OtherRun = z.infer<typeof OtherRun>;
export const RunsAnswer = z.strictObject({
  settings: Settings.describe("Digest of this run's config, to compare with the field `settings` of each of `runs`"),
  runs: z.array(OtherRun).describe("Runs in the same parent folder, newest first"),
  unreadable: z.array(z.strictObject({ name: z.string(), reason: z.string() })),
});
export type RunsAnswer = z.infer<typeof RunsAnswer>;
export const OtherMetricsAnswer = z.strictObject({ series: z.array(Series) });
export type OtherMetricsAnswer = z.infer<typeof OtherMetricsAnswer>;

export const RatingsAnswer = z.strictObject({ ratings: z.array(Rating).describe("Oldest first") });
export type RatingsAnswer = z.infer<typeof RatingsAnswer>;

const Amounts = z.strictObject({
  tokens: NumberOrNull.describe("Tokens that the policy wrote, validation included"),
  actions: NumberOrNull.describe("Actions that envs executed, validation included"),
  cpuSeconds: NumberOrNull.describe("CPU time of the processes of all actors"),
  joules: NumberOrNull.describe("Energy of the machine's processor packages; null if the machine does not report it"),
});
export const CostsAnswer = z.strictObject({
  total: Amounts.describe("Costs since the start of the run"),
  reinforcement: Amounts.describe("Costs since the first update"),
  points: NumberOrNull.describe("Percentage points of success since the first update; null before two validations"),
  perPoint: Amounts.describe("The values of `reinforcement` divided by `points`; null without a gain"),
  seconds: z
    .strictObject({
      rollout: NumberOrNull.describe("Time from the first ticket of an update to its last outcome"),
      update: NumberOrNull.describe("Time from the last outcome of an update to its new weights"),
      validation: NumberOrNull,
      checkpoints: NumberOrNull,
    })
    .describe("Seconds of reinforcement by activity; null for an activity that was not measured"),
});
export type CostsAnswer = z.infer<typeof CostsAnswer>;

export const ErrorAnswer = z.strictObject({ error: z.string() });
export type ErrorAnswer = z.infer<typeof ErrorAnswer>;

/** One message of /api/stream: the data that the run has stored since the previous message. stream.ts limits the size of a message. */
export interface News {
  readonly run: Overview;
  readonly points: readonly (readonly [name: string, actor: string, step: number, value: number])[];
  /** Newest first. */
  readonly events: readonly StoredEvent[];
  readonly episodes: readonly EpisodeSummary[];
  /** The message lacks this field if the supervisor has not reported since the previous message. */
  readonly actors?: ActorsAnswer;
}
