/**
 * Every message that crosses a process boundary. Read this file first: it is the system.
 *
 *   sampler  --sampler.ready--------> learner        tell; how many episodes it can play at once
 *   sampler  --sampler.leaving------> learner        tell; it goes for good, and nothing is wrong
 *   learner  --tickets, weights-----> sampler        tell; what to play, and with which policy
 *   sampler  --weights.loaded-------> learner        tell; the digest of what it really loaded
 *   sampler  --episode.finished-----> learner        ask; kept and sent again until it is taken
 *   sampler  --env.open, env.step---> env server     ask; exactly one answer
 *   anyone   --metrics, event-------> metrics sink   tell; counted if dropped
 *   learner  --episodes-------------> metrics sink   ask; the trajectory log
 *   anyone   --heartbeat------------> supervisor     tell; every heartbeatMs
 *   supervisor --roster-------------> anyone         tell; where everyone is
 *   supervisor --stop---------------> anyone         tell; drain, checkpoint, exit 0
 *   supervisor --actors-------------> metrics sink   tell; who there is and how they are, every second
 *
 * A connection starts with the ask `hello`; both sides refuse another protocol version.
 */
import { z } from "zod";

export const PROTOCOL_VERSION = 1;

const Id = z.string().min(1).max(64);
const Count = z.number().int().nonnegative();
const Digest = z.string().regex(/^[0-9a-f]{64}$/);
const Role = z.enum(["supervisor", "learner", "sampler", "env-server", "metrics-sink"]);
export type Role = z.infer<typeof Role>;

/** One episode to play. The same ticket always gives the same episode, whoever plays it. */
const Ticket = z.strictObject({
  /** Unique in the run; names the coins too: coins = f(run seed, episode, token index). */
  episode: Id,
  purpose: z.enum(["train", "validate"]),
  /** Index of the group in its batch, and of the member in its group. */
  group: Count,
  member: Count,
  env: Id,
  layoutSeed: z.uint32(),
  dynamicsSeed: z.uint32(),
  temperature: z.number().nonnegative(),
  topP: z.number().positive().max(1),
  /** 0: no limit. */
  topK: Count,
  /** Play with exactly this policy version (sync), or this one or newer (async). */
  version: Count,
  exact: z.boolean(),
  /** How often it was issued before. */
  attempt: Count,
});
export type Ticket = z.infer<typeof Ticket>;

/** Key and tag of a GMAC over the bytes: see actors/weights/seal.ts. */
const Seal = z.strictObject({ key: z.string().regex(/^[0-9a-f]{32}$/), tag: z.string().regex(/^[0-9a-f]{32}$/) });

/** Where the bytes of a policy version are. */
const WeightsLocation = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("shared"), path: z.string().max(4096), byteOffset: Count, seal: Seal }),
  z.strictObject({ kind: z.literal("http"), url: z.url() }),
]);

/** One turn as people read it. */
export const TurnRecord = z.strictObject({
  observation: z.string(),
  reply: z.string(),
  actions: z.array(z.string()),
  reward: z.number(),
  penalty: z.number(),
  wellFormed: z.boolean(),
  effective: z.boolean(),
  valid: z.boolean(),
  /** True if the reply ran into replyTokensMax. */
  cut: z.boolean(),
  /** Earlier turns left out of what the policy saw, because all of them together were too long for the context. */
  dropped: Count,
});
export type TurnRecord = z.infer<typeof TurnRecord>;

/** Why an episode stopped: the env's endings, and the sampler's. */
export const STOP_REASONS = ["success", "over", "actions", "turns", "context"] as const;
export const StopReason = z.enum(STOP_REASONS);
export type StopReason = z.infer<typeof StopReason>;

const Trajectory = z.strictObject({
  tokens: z.instanceof(Int32Array),
  written: z.instanceof(Uint8Array),
  logProbs: z.instanceof(Float32Array),
  contexts: z.array(Count).min(1),
  turns: z.array(z.strictObject({ end: Count, reward: z.number(), penalty: z.number() })),
  version: Count,
  digest: Digest,
});

/** How a ticket ended. Only `scored` and `truncated` may enter a loss; an env error is never a reward of 0. */
const Outcome = z.discriminatedUnion("status", [
  z.strictObject({
    status: z.enum(["scored", "truncated"]),
    stop: StopReason,
    success: z.boolean(),
    trajectory: Trajectory,
    turns: z.array(TurnRecord),
    /** The state after the last turn. */
    finalObservation: z.string(),
    extra: z.record(z.string(), z.number()),
  }),
  z.strictObject({ status: z.enum(["envError", "aborted"]), detail: z.string() }),
]);
export type Outcome = z.infer<typeof Outcome>;
export type PlayedOutcome = Extract<Outcome, { trajectory: unknown }>;

/** One row of the trajectory log. */
const EpisodeRow = z.strictObject({
  ticket: Ticket,
  sampler: Id,
  outcome: Outcome,
  /** Update it was trained in; null for validation and for what a filter dropped. */
  update: Count.nullable(),
  /** Mean over written tokens. */
  advantage: z.number().nullable(),
  /** (written tokens) theirs; left out where all of them have the mean. */
  tokenAdvantages: z.instanceof(Float32Array).optional(),
});
export type EpisodeRow = z.infer<typeof EpisodeRow>;

/** A policy version and the digest of its bytes. */
const PolicyVersion = z.strictObject({ version: Count, digest: Digest });
export type PolicyVersion = z.infer<typeof PolicyVersion>;

/** What an actor is doing until it has started and was heard. */
export const STARTING = "starting";

/** One actor, as the supervisor sees it. */
export const ActorView = z.strictObject({
  name: Id,
  role: Role,
  /** Lent by another machine; then it has no process here. */
  guest: z.boolean(),
  /** null for a guest, and while it does not run. */
  pid: Count.nullable(),
  restarts: Count,
  /** Where others reach it; null if nobody does, or not yet. */
  url: z.string().nullable(),
  /** Milliseconds since it was started or last heard. */
  silentMs: z.number(),
  doing: z.string().max(200),
  lastMessage: z.string().max(64),
  rssBytes: Count,
  load: z.record(z.string(), z.number()),
  weights: PolicyVersion.nullable(),
});
export type ActorView = z.infer<typeof ActorView>;

/** One row per message. Types, decoding and docs all come from here. */
export const schemas = {
  hello: z.strictObject({ type: z.literal("hello"), protocol: Count, actor: Id, role: Role, url: z.url().nullable() }),
  welcome: z.strictObject({ type: z.literal("welcome"), run: Id, protocol: Count }),
  /** Alive, and doing what. `doing` is for people: "playing 64 episodes", "update 12". */
  heartbeat: z.strictObject({
    type: z.literal("heartbeat"),
    actor: Id,
    doing: z.string().max(200),
    lastMessage: z.string().max(64),
    rssBytes: Count,
    /** How long its computation has gone without a result; 0 if it computes nothing. */
    workingMs: z.number().nonnegative(),
    /** What it measures of itself, by names of actors/metrics/metrics.ts. */
    load: z.record(z.string(), z.number()),
    /** The policy it holds, or published last; null if it has none. */
    weights: PolicyVersion.nullable(),
  }),
  /** Everyone in the run, as the supervisor sees them. */
  actors: z.strictObject({ type: z.literal("actors"), actors: z.array(ActorView) }),
  /** Drain, save, leave with exit code 0. */
  stop: z.strictObject({ type: z.literal("stop"), reason: z.string() }),
  /** Where everyone is now. Sent whenever it changes; the newest counts. */
  roster: z.strictObject({
    type: z.literal("roster"),
    learner: z.url().nullable(),
    metricsSink: z.url().nullable(),
    envServers: z.array(z.strictObject({ actor: Id, url: z.url() })),
  }),

  "env.open": z.strictObject({
    type: z.literal("env.open"),
    episode: Id,
    env: Id,
    layoutSeed: z.uint32(),
    dynamicsSeed: z.uint32(),
  }),
  "env.opened": z.strictObject({
    type: z.literal("env.opened"),
    episode: Id,
    observation: z.string(),
    actionsLeft: Count,
  }),
  /** Play one turn. `reply` is the model's whole reply; the env server parses it. */
  "env.step": z.strictObject({ type: z.literal("env.step"), episode: Id, turn: Count, reply: z.string() }),
  "env.stepped": z.strictObject({
    type: z.literal("env.stepped"),
    episode: Id,
    turn: Count,
    observation: z.string(),
    reward: z.number(),
    penalty: z.number(),
    actions: z.array(z.string()),
    actionsLeft: Count,
    wellFormed: z.boolean(),
    effective: z.boolean(),
    valid: z.boolean(),
    success: z.boolean(),
    ending: z.enum(["success", "over", "actions", "turns"]).nullable(),
    extra: z.record(z.string(), z.number()),
  }),
  /** The sampler gave up an episode; the env server forgets it. */
  "env.close": z.strictObject({ type: z.literal("env.close"), episode: Id }),

  "sampler.ready": z.strictObject({
    type: z.literal("sampler.ready"),
    actor: Id,
    /** Episodes it can play at once. */
    slots: z.number().int().positive(),
  }),
  /** It goes for good, as it was asked to: no failure. What it has not finished is for others. */
  "sampler.leaving": z.strictObject({ type: z.literal("sampler.leaving"), actor: Id, reason: z.string().max(1000) }),
  tickets: z.strictObject({ type: z.literal("tickets"), tickets: z.array(Ticket), leaseMs: z.number().positive() }),
  "episode.finished": z.strictObject({
    type: z.literal("episode.finished"),
    actor: Id,
    episode: Id,
    attempt: Count,
    outcome: Outcome,
  }),
  /** `fresh` is false if it was known, expired or not asked for: then it was not used. */
  "episode.taken": z.strictObject({ type: z.literal("episode.taken"), episode: Id, fresh: z.boolean() }),
  /** A policy version exists. Versions only grow; the newest wins. */
  weights: z.strictObject({
    type: z.literal("weights"),
    version: Count,
    digest: Digest,
    byteLength: Count,
    location: WeightsLocation,
  }),
  /** `digest` is of the bytes the sampler holds, computed by the sampler, or proved by the seal. */
  "weights.loaded": z.strictObject({ type: z.literal("weights.loaded"), actor: Id, version: Count, digest: Digest }),

  /** Values of one update or moment. `step` is the update they belong to; names are in actors/metrics/metrics.ts. */
  metrics: z.strictObject({
    type: z.literal("metrics"),
    actor: Id,
    step: Count,
    values: z.record(z.string(), z.number()),
  }),
  /** Something a person should know of. */
  event: z.strictObject({
    type: z.literal("event"),
    actor: Id,
    level: z.enum(["info", "warning", "error"]),
    kind: Id,
    text: z.string().max(4096),
  }),
  episodes: z.strictObject({ type: z.literal("episodes"), rows: z.array(EpisodeRow) }),
  "episodes.stored": z.strictObject({ type: z.literal("episodes.stored"), count: Count }),

  /** The one failure answer. `code` is for programs, `detail` is for people. */
  failed: z.strictObject({
    type: z.literal("failed"),
    code: z.enum(["env", "policy", "protocol", "capacity", "deadline", "closed"]),
    detail: z.string(),
  }),
} as const;

export type Messages = { [T in keyof typeof schemas]: z.infer<(typeof schemas)[T]> };
export type Message = Messages[keyof Messages];

/** Which answer each ask gets (or `failed`). */
export interface Answers {
  hello: "welcome";
  "env.open": "env.opened";
  "env.step": "env.stepped";
  "episode.finished": "episode.taken";
  episodes: "episodes.stored";
}
export type Ask = Messages[keyof Answers];
export type AnswerTo<A extends Ask> = A extends Ask ? Messages[Answers[A["type"]]] | Messages["failed"] : never;
export type Answer = AnswerTo<Ask>;
export type Tell = Exclude<Message, Ask | Answer>;
/** The asks that an env server takes. */
export type EnvAsk = Messages["env.open" | "env.step"];

/**
 * Check one decoded message.
 *
 * @throws {ProtocolError} if the type is unknown or a field is missing, extra or ill-typed.
 */
export function parseMessage(raw: unknown): Message {
  const type = (raw as { type?: unknown } | null)?.type;
  if (typeof type !== "string" || !Object.hasOwn(schemas, type)) {
    // What a stranger sent may be anything: long, or a value that JSON does not know.
    const found = typeof type === "string" ? JSON.stringify(type.slice(0, 64)) : `of kind ${typeof type}`;
    throw new ProtocolError(`unknown message type ${found}; expected one of ${Object.keys(schemas).join(", ")}`);
  }
  const parsed = schemas[type as keyof Messages].safeParse(raw);
  if (!parsed.success) throw new ProtocolError(`bad ${type}: ${z.prettifyError(parsed.error)}`);
  return parsed.data;
}

export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
}
