/**
 * Every message between actors. Of the folder actors/, read this file first.
 *
 *   supervisor    starts and stops the actors of a run, restarts actors that die        actors/supervisor/
 *   learner       hands out tickets and weights, takes episodes, updates the policy     actors/learner/, actors/training/
 *   sampler       plays tickets with a copy of the policy                               actors/sampler/, actors/play/
 *   env server    holds the episodes of envs and answers turn by turn                   actors/env-server/
 *   metrics sink  stores metrics, events and episodes, and serves the page              actors/metrics-sink/, actors/dashboard/
 *   guest         a sampler or env server on another machine that joined the run        actors/process/join.ts, actors/gate/
 *
 * An actor sends a `tell` once and gets no answer. An `ask` gets exactly one answer: the one that `answerTypes` names, or `failed`.
 */
import { z } from "zod";

export const PROTOCOL_VERSION = 5;

/**
 * The messages that an actor takes on each connection. The actor refuses every other message with `notTaken` or `refused` of
 * transport/refusals.ts. A call of these two functions does not compile if the actor has no branch for a message of this table. The
 * handshake handles `hello` on every connection.
 */
export interface Links {
  "to the supervisor from an actor": "heartbeat";
  "to every actor from the supervisor": "stop";
  "to the learner from the supervisor": "roster" | "save";
  "to the learner from a sampler": "sampler.ready" | "sampler.leaving" | "weights.loaded" | "episode.finished";
  "to the learner from the metrics sink": never;
  "to a sampler from the supervisor": "roster";
  "to a sampler from the learner": "weights" | "tickets";
  "to a sampler from an env server": never;
  "to an env server from the supervisor": "roster";
  "to an env server from a sampler": "env.open" | "env.step" | "env.close";
  "to the metrics sink from the supervisor": "roster" | "actors";
  "to the metrics sink from the learner": "metrics" | "event" | "episodes";
}

const Id = z.string().min(1).max(64);
const Count = z.number().int().nonnegative();
/** sha256 in hex. */
const Digest = z.string().regex(/^[0-9a-f]{64}$/);
const Role = z.enum(["supervisor", "learner", "sampler", "env-server", "metrics-sink"]);
export type Role = z.infer<typeof Role>;

/** One episode to play. With the same weights and the same run seed, all samplers of one machine play the same episode from a ticket. */
const Ticket = z.strictObject({
  /** A name, unique in the run. It determines the coins (random numbers that choose tokens): coin = f(run seed, episode, token index). */
  episode: Id,
  purpose: z.enum(["train", "validate"]),
  /** Index of the group in its batch. */
  group: Count,
  /** Index of the episode in its group. */
  member: Count,
  env: Id,
  layoutSeed: z.uint32(),
  dynamicsSeed: z.uint32(),
  temperature: z.number().nonnegative(),
  topP: z.number().positive().max(1),
  /** 0 means no limit. */
  topK: Count,
  /** The policy version to play with. */
  version: Count,
  /** True: exactly `version` (sync mode). False: `version` or a newer version (async mode). */
  exact: z.boolean(),
  /** Number of earlier attempts. */
  attempt: Count,
  /** Maximum number of actions per turn; if left out, the config's limit applies. */
  actionsPerTurnMax: Count.optional(),
});
export type Ticket = z.infer<typeof Ticket>;

const PolicyVersion = z.strictObject({ version: Count, digest: Digest });
export type PolicyVersion = z.infer<typeof PolicyVersion>;

/** Key and tag of a GMAC over the weights: see actors/weights/seal.ts. */
const Seal = z.strictObject({ key: z.string().regex(/^[0-9a-f]{32}$/), tag: z.string().regex(/^[0-9a-f]{32}$/) });

/**
 * Where the weights of a policy version are: in a file of this host (in shared memory, if the host has any), at a URL, or at the server of
 * engine tinker, under a name.
 */
const WeightsLocation = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("shared"), path: z.string().max(4096), byteOffset: Count, seal: Seal }),
  z.strictObject({ kind: z.literal("http"), url: z.url() }),
  z.strictObject({ kind: z.literal("server"), name: z.string().min(1).max(4096) }),
]);

export const TurnRecord = z.strictObject({
  observation: z.string(),
  reply: z.string(),
  actions: z.array(z.string()),
  reward: z.number(),
  penalty: z.number(),
  wellFormed: z.boolean(),
  effective: z.boolean(),
  valid: z.boolean(),
  /** True if the sampler cut the reply at replyTokensMax. */
  cut: z.boolean(),
  /** Number of earlier turns that the context left out for lack of room. */
  dropped: Count,
});
export type TurnRecord = z.infer<typeof TurnRecord>;

/** Why an episode stopped: four endings of the env, and a full context. */
export const STOP_REASONS = ["success", "over", "actions", "turns", "context"] as const;
export const StopReason = z.enum(STOP_REASONS);
export type StopReason = z.infer<typeof StopReason>;

/** One episode as tokens: model/trajectory.ts explains the columns. */
const Trajectory = z.strictObject({
  tokens: z.instanceof(Int32Array),
  written: z.instanceof(Uint8Array),
  logProbs: z.instanceof(Float32Array),
  contexts: z.array(Count).min(1),
  turns: z.array(z.strictObject({ end: Count, reward: z.number(), penalty: z.number(), version: Count.optional() })),
  version: Count,
  digest: Digest,
  /** sha256 of the module of the env; left out for a built-in env. */
  envDigest: Digest.optional(),
});

/** How a ticket ended. Only `scored` and `truncated` episodes may enter a loss. An env error never counts as a reward of 0. */
const Outcome = z.discriminatedUnion("status", [
  z.strictObject({
    status: z.enum(["scored", "truncated"]),
    stop: StopReason,
    success: z.boolean(),
    trajectory: Trajectory,
    turns: z.array(TurnRecord),
    /** The observation after the last turn. */
    finalObservation: z.string(),
    /** Numbers that the env reports in addition to the reward, each summed over the turns. */
    extra: z.record(z.string(), z.number()),
  }),
  z.strictObject({ status: z.enum(["envError", "aborted"]), detail: z.string() }),
]);
export type Outcome = z.infer<typeof Outcome>;
/** The outcome of an episode that was played to its end. */
export type PlayedOutcome = Extract<Outcome, { trajectory: unknown }>;

/** One episode as the run's record stores it. */
const EpisodeRow = z.strictObject({
  ticket: Ticket,
  sampler: Id,
  outcome: Outcome,
  /** The update that trained on the episode; null if no update did: a validation episode, or one that a filter dropped. */
  update: Count.nullable(),
  /** Mean advantage of the tokens that the policy wrote. */
  advantage: z.number().nullable(),
  /** Advantage of each token that the policy wrote; left out if all advantages are equal. */
  tokenAdvantages: z.instanceof(Float32Array).optional(),
});
export type EpisodeRow = z.infer<typeof EpisodeRow>;

/** What an actor reports about itself. */
const actorState = {
  /** For people: "playing 64 episodes", "update 12"; `STARTING` until the actor has started. */
  doing: z.string().max(200),
  /** Type of the last message that the actor received. */
  lastMessage: z.string().max(64),
  rssBytes: Count,
  /** The actor's own measurements, by metric name (actors/metrics/metrics.ts). */
  load: z.record(z.string(), z.number()),
  /** The policy that the actor holds, or published last; null if it has none. */
  weights: PolicyVersion.nullable(),
};
export const STARTING = "starting";

/** One actor, as the supervisor sees it. */
export const ActorView = z.strictObject({
  name: Id,
  role: Role,
  guest: z.boolean(),
  /** null for a guest, and while the actor does not run. */
  pid: Count.nullable(),
  restarts: Count,
  /** The address at which other actors connect. null for a guest, for an actor that does not listen, and until the supervisor knows the address. */
  url: z.string().nullable(),
  /** Milliseconds since the supervisor started the actor or received the actor's last message, whichever was later. */
  silentMs: z.number(),
  ...actorState,
});
export type ActorView = z.infer<typeof ActorView>;

/** One schema per message. The types of the messages and the checks come from this table. */
export const schemas = {
  // Connections, and the supervisor.

  /** An actor asks this first on every connection, and again when it knows its own url. The listener welcomes or refuses the actor. */
  hello: z.strictObject({ type: z.literal("hello"), protocol: Count, actor: Id, role: Role, url: z.url().nullable() }),
  /** Answers `hello`. The asking actor closes the connection if the answer names another protocol or another run. */
  welcome: z.strictObject({ type: z.literal("welcome"), run: Id, protocol: Count }),
  /** Each actor tells the supervisor this every heartbeatMs. The supervisor replaces a silent or stuck actor, and only disconnects a guest. */
  heartbeat: z.strictObject({
    type: z.literal("heartbeat"),
    actor: Id,
    ...actorState,
    /** As `Running.workingMs` of actors/actor.ts, but at most the time since the process last woke from a suspension. */
    workingMs: z.number().nonnegative(),
  }),
  /**
   * Says where other actors are. The supervisor sends the roster on each new connection. After every change of the roster, the supervisor
   * also sends it to the learner, the samplers and the guests.
   */
  roster: z.strictObject({
    type: z.literal("roster"),
    learner: z.url().nullable(),
    metricsSink: z.url().nullable(),
    envServers: z.array(z.strictObject({ actor: Id, url: z.url() })),
  }),
  /** The supervisor tells the metrics sink the state of all actors every second. The sink shows the actors on the page. */
  actors: z.strictObject({ type: z.literal("actors"), actors: z.array(ActorView) }),
  /** The supervisor tells the learner to write a checkpoint after its current update. */
  save: z.strictObject({ type: z.literal("save") }),
  /** The supervisor tells each actor to stop when the run ends, and tells a stuck guest at once. The actor ends its work and exits with code 0. */
  stop: z.strictObject({ type: z.literal("stop"), reason: z.string() }),

  // Episodes at an env server.

  /** A sampler asks this when it begins a ticket. The env server opens the episode. If the episode is already open, it starts again. */
  "env.open": z.strictObject({
    type: z.literal("env.open"),
    episode: Id,
    env: Id,
    layoutSeed: z.uint32(),
    dynamicsSeed: z.uint32(),
    actionsPerTurnMax: Count.optional(),
  }),
  /** Answers `env.open` with what the policy sees first. */
  "env.opened": z.strictObject({
    type: z.literal("env.opened"),
    episode: Id,
    observation: z.string(),
    actionsLeft: Count,
  }),
  /** A sampler asks this for each turn. The env server parses the policy's whole reply, and plays the actions in the reply. */
  "env.step": z.strictObject({ type: z.literal("env.step"), episode: Id, turn: Count, reply: z.string() }),
  /** Answers `env.step` with the turn's result. A sampler that repeats an ask gets the same answer. */
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
    /** null means that the episode continues. */
    ending: z.enum(["success", "over", "actions", "turns"]).nullable(),
    extra: z.record(z.string(), z.number()),
  }),
  /** A sampler tells this when it gives up an episode that the env has not ended. The env server closes the episode. */
  "env.close": z.strictObject({ type: z.literal("env.close"), episode: Id }),

  // Tickets and weights, between the learner and its samplers.

  /** A sampler tells this when it has connected. It gets tickets only after it has told `weights.loaded`. */
  "sampler.ready": z.strictObject({
    type: z.literal("sampler.ready"),
    actor: Id,
    /** Number of episodes that the sampler plays at once. */
    slots: z.number().int().positive(),
  }),
  /** A sampler tells this when it stops on request. The learner issues the sampler's unfinished tickets again. */
  "sampler.leaving": z.strictObject({ type: z.literal("sampler.leaving"), actor: Id, reason: z.string().max(1000) }),
  /** The learner tells a sampler with free slots which tickets to play. After leaseMs the learner issues unfinished tickets again. */
  tickets: z.strictObject({ type: z.literal("tickets"), tickets: z.array(Ticket), leaseMs: z.number().positive() }),
  /**
   * A sampler asks this when a ticket has ended, and repeats the ask until an answer comes or the connection ends. The learner counts the
   * outcome once.
   */
  "episode.finished": z.strictObject({
    type: z.literal("episode.finished"),
    actor: Id,
    episode: Id,
    attempt: Count,
    outcome: Outcome,
  }),
  /** Answers `episode.finished`. `fresh` is false for an outcome that the learner does not use: duplicate, expired or unknown. */
  "episode.taken": z.strictObject({ type: z.literal("episode.taken"), episode: Id, fresh: z.boolean() }),
  /** The learner tells every sampler about a new policy version. A sampler loads the newest version when it no longer uses the old version. */
  weights: z.strictObject({
    type: z.literal("weights"),
    version: Count,
    digest: Digest,
    byteLength: Count,
    location: WeightsLocation,
  }),
  /** A sampler tells this when it has loaded weights. If the learner did not publish the digest, the sampler gets no tickets until it reconnects. */
  "weights.loaded": z.strictObject({
    type: z.literal("weights.loaded"),
    actor: Id,
    version: Count,
    /** Digest of the bytes that the sampler holds: computed by the sampler, or proved by the seal. With engine tinker: digest of the version's name. */
    digest: Digest,
  }),

  // Records.

  /** The learner tells the metrics sink what it has measured. The sink stores the values and shows them on the page. */
  metrics: z.strictObject({
    type: z.literal("metrics"),
    actor: Id,
    /** The update in which the values were measured. In the warm start: the step of imitation. */
    step: Count,
    /** Values by metric name (actors/metrics/metrics.ts). */
    values: z.record(z.string(), z.number()),
  }),
  /** The learner tells the metrics sink an event that people should know. The sink stores the event and shows it on the page. */
  event: z.strictObject({
    type: z.literal("event"),
    actor: Id,
    level: z.enum(["info", "warning", "error"]),
    kind: Id,
    text: z.string().max(4096),
  }),
  /** The learner asks the metrics sink to store the episodes of each update and validation. The sink writes them to the run's record. */
  episodes: z.strictObject({ type: z.literal("episodes"), rows: z.array(EpisodeRow) }),
  /** Answers `episodes` when the rows are committed. */
  "episodes.stored": z.strictObject({ type: z.literal("episodes.stored"), count: Count }),

  /** Answers any ask that failed. `code` is for programs, `detail` for people. */
  failed: z.strictObject({
    type: z.literal("failed"),
    code: z.enum(["env", "policy", "protocol", "capacity", "deadline", "closed"]),
    detail: z.string(),
  }),
} as const;

export const answerTypes = {
  hello: "welcome",
  "env.open": "env.opened",
  "env.step": "env.stepped",
  "episode.finished": "episode.taken",
  episodes: "episodes.stored",
} as const satisfies { readonly [T in keyof Messages]?: keyof Messages };

export type Messages = { [T in keyof typeof schemas]: z.infer<(typeof schemas)[T]> };
export type Message = Messages[keyof Messages];
export type Ask = Messages[keyof typeof answerTypes];
export type AnswerTo<A extends Ask> = A extends Ask
  ? Messages[(typeof answerTypes)[A["type"]]] | Messages["failed"]
  : never;
export type Answer = AnswerTo<Ask>;
export type Tell = Exclude<Message, Ask | Answer>;
/** The asks that an env server takes. */
export type EnvAsk = Messages["env.open" | "env.step"];

/**
 * With this option a check ends at the first bad item of a list. A frame may hold two million bad items, and their faults would fill gigabytes.
 * The type is `object`, because zod's types lack this option of `safeParse`.
 */
const FIRST_FAULT: object = { abortEarly: true };

/** Checks one decoded message. @throws {ProtocolError} if its type is unknown, or a field is missing, unknown or of another type */
export function parseMessage(raw: unknown): Message {
  const type = (raw as { type?: unknown } | null)?.type;
  if (typeof type !== "string" || !Object.hasOwn(schemas, type)) {
    // Any program may have sent the message. So the field `type` may be long, or may hold a value that JSON cannot write.
    const found = typeof type === "string" ? JSON.stringify(type.slice(0, 64)) : `of kind ${typeof type}`;
    throw new ProtocolError(`unknown message type ${found}; expected one of ${Object.keys(schemas).join(", ")}`);
  }
  const parsed = schemas[type as keyof Messages].safeParse(raw, FIRST_FAULT);
  if (!parsed.success) throw new ProtocolError(`bad ${type}: ${z.prettifyError(parsed.error)}`);
  return parsed.data;
}

export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
}
