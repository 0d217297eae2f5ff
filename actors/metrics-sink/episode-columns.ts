/**
 * Converts an episode to columns of `run.sqlite` and back, without loss. This file uses the columns' names, but no SQL.
 */
import { penalizedReward, rawReward, type TurnSpan, writtenTokens } from "../../model/trajectory.ts";
import type { EpisodeSummary } from "../dashboard/answers.ts";
import type { EpisodeRow, Outcome, StopReason, Ticket } from "../protocol.ts";

type Cell = string | number | Uint8Array | null;
export type Columns = Record<string, Cell>;

const bytesOf = (array: Int32Array | Float32Array | Uint8Array): Uint8Array =>
  new Uint8Array(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength);
/** Copies the bytes, because a view of 4-byte numbers needs an aligned buffer. */
const aligned = (bytes: Cell): ArrayBuffer => (bytes as Uint8Array).slice().buffer as ArrayBuffer;

/** The columns of a ticket's fields, except `exact` and `actionsPerTurnMax`, which the store converts. */
const TICKET_COLUMNS: Readonly<Record<Exclude<keyof Ticket, "exact" | "actionsPerTurnMax">, string>> = {
  episode: "episode",
  attempt: "attempt",
  purpose: "purpose",
  group: "group_index",
  member: "member",
  env: "env",
  layoutSeed: "layout_seed",
  dynamicsSeed: "dynamics_seed",
  temperature: "temperature",
  topP: "top_p",
  topK: "top_k",
  version: "asked_version",
};
const TICKET_ENTRIES = Object.entries(TICKET_COLUMNS) as [keyof typeof TICKET_COLUMNS, string][];

export function episodeColumns({ ticket, sampler, outcome, update, advantage }: EpisodeRow): Columns {
  const played = "trajectory" in outcome ? outcome : null;
  const trajectory = played?.trajectory ?? null;
  const reward = trajectory && rawReward(trajectory);
  return {
    ...Object.fromEntries(TICKET_ENTRIES.map(([field, column]) => [column, ticket[field]])),
    exact: Number(ticket.exact),
    sampler,
    status: outcome.status,
    stop: played?.stop ?? null,
    success: played && Number(played.success),
    version: trajectory?.version ?? null,
    digest: trajectory?.digest ?? null,
    reward,
    penalty: trajectory && penalizedReward(trajectory) - reward!,
    turn_count: played?.turns.length ?? 0,
    written_tokens: trajectory ? writtenTokens(trajectory) : 0,
    trained_in: update,
    advantage,
    actions_per_turn: ticket.actionsPerTurnMax ?? null,
  };
}

export function bodyColumns({ outcome, tokenAdvantages }: EpisodeRow): Columns {
  const played = "trajectory" in outcome ? outcome : null;
  const trajectory = played?.trajectory ?? null;
  return {
    turns: JSON.stringify(played?.turns ?? []),
    spans: JSON.stringify(trajectory?.turns ?? []),
    contexts: JSON.stringify(trajectory?.contexts ?? []),
    final_observation: played?.finalObservation ?? "",
    extra: JSON.stringify(played?.extra ?? {}),
    detail: "detail" in outcome ? outcome.detail : "",
    tokens: bytesOf(trajectory?.tokens ?? new Int32Array()),
    written: bytesOf(trajectory?.written ?? new Uint8Array()),
    log_probs: bytesOf(trajectory?.logProbs ?? new Float32Array()),
    token_advantages: tokenAdvantages ? bytesOf(tokenAdvantages) : null,
    env_digest: trajectory?.envDigest ?? null,
  };
}

/** Columns with the sampler or version numbers. If a resumed run plays an episode again, these may change although the content does not. */
const CHANGEABLE = ["sampler", "asked_version", "version"];

/** Whether the columns hold this episode. The columns `CHANGEABLE` and the versions of turns may differ. */
export function hasSameContent(stored: Columns, row: EpisodeRow): boolean {
  const columns = Object.entries({ ...episodeColumns(row), ...bodyColumns(row) });
  return columns.every(([name, cell]) => {
    if (name === "spans") return withoutVersions(stored["spans"]!) === withoutVersions(cell);
    return CHANGEABLE.includes(name) || isSame(stored[name]!, cell);
  });
}

const withoutVersions = (spans: Cell): string =>
  JSON.stringify((JSON.parse(spans as string) as TurnSpan[]).map(({ version: _, ...span }) => span));

const isSame = (one: Cell, other: Cell): boolean =>
  one === other || (one instanceof Uint8Array && other instanceof Uint8Array && Buffer.compare(one, other) === 0);

/** The text in which a search for episodes looks: the policy's replies; for a failed episode, the reason. */
export const searchTextOf = (outcome: Outcome): string =>
  "turns" in outcome ? outcome.turns.map(({ reply }) => reply).join(" ") : outcome.detail;

export function fromColumns(columns: Columns): EpisodeRow {
  const ticket = Object.fromEntries(TICKET_ENTRIES.map(([field, column]) => [field, columns[column]]));
  const actionsPerTurnMax = columns["actions_per_turn"] ?? null;
  const tokenAdvantages = columns["token_advantages"] ?? null;
  return {
    ticket: {
      ...(ticket as Omit<Ticket, "exact">),
      exact: columns["exact"] === 1,
      ...(actionsPerTurnMax !== null && { actionsPerTurnMax: actionsPerTurnMax as number }),
    },
    sampler: columns["sampler"] as string,
    outcome: outcomeOf(columns),
    update: columns["trained_in"] as number | null,
    advantage: columns["advantage"] as number | null,
    ...(tokenAdvantages !== null && { tokenAdvantages: new Float32Array(aligned(tokenAdvantages)) }),
  };
}

function outcomeOf(columns: Columns): Outcome {
  const status = columns["status"] as Outcome["status"];
  if (status === "envError" || status === "aborted") return { status, detail: columns["detail"] as string };
  return {
    status,
    stop: columns["stop"] as StopReason,
    success: columns["success"] === 1,
    trajectory: {
      tokens: new Int32Array(aligned(columns["tokens"]!)),
      written: new Uint8Array(aligned(columns["written"]!)),
      logProbs: new Float32Array(aligned(columns["log_probs"]!)),
      contexts: JSON.parse(columns["contexts"] as string),
      turns: JSON.parse(columns["spans"] as string),
      version: columns["version"] as number,
      digest: columns["digest"] as string,
      ...(typeof columns["env_digest"] === "string" && { envDigest: columns["env_digest"] }),
    },
    turns: JSON.parse(columns["turns"] as string),
    finalObservation: columns["final_observation"] as string,
    extra: JSON.parse(columns["extra"] as string),
  };
}

/** A row of `SELECTS.summary` or `SELECTS.episodes`: SQLite has no booleans. */
export type SummaryRow = Omit<EpisodeSummary, "success"> & { readonly success: 0 | 1 | null };

export const summaryOf = (row: SummaryRow): EpisodeSummary => ({
  ...row,
  success: row.success === null ? null : row.success === 1,
});
