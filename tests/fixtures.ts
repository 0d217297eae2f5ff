/** Valid configs, tickets, trajectories and outcomes; a test names only the fields that it is about. */
import { composeRunConfig } from "../actors/config/compose.ts";
import type { RunConfig } from "../actors/config/config.ts";
import type { Tree } from "../actors/config/layers.ts";
import type { PlayRules } from "../actors/play/play-episode.ts";
import type { PlayedOutcome, Ticket, TurnRecord } from "../actors/protocol.ts";
import { madeUpTicket, madeUpTurn } from "../bench/made-up-episode.ts";

/** @param layers  settings, lowest first */
export const aConfig = (...layers: readonly Tree[]): RunConfig =>
  composeRunConfig(layers.map((values) => ({ source: "test", values })));

/** A digest that no weights have: one letter, 64 times. */
export const aDigest = (letter = "a"): string => letter.repeat(64);

export const aTicket = (overrides: Partial<Ticket> = {}): Ticket =>
  madeUpTicket({ episode: "e0", layoutSeed: 7, dynamicsSeed: 8, ...overrides });

/** "e0", "e1", … */
export const someTickets = (count: number, overrides: Partial<Ticket> = {}): Ticket[] =>
  Array.from({ length: count }, (_, i) => aTicket({ episode: `e${i}`, ...overrides }));

/** One turn: a prompt of one token and a reply of one. */
export const aTrajectory = (overrides: Partial<PlayedOutcome["trajectory"]> = {}): PlayedOutcome["trajectory"] => ({
  tokens: Int32Array.of(1, 2),
  written: Uint8Array.of(0, 1),
  logProbs: Float32Array.of(0, -0.5),
  contexts: [0],
  turns: [{ end: 1, reward: 1, penalty: 0 }],
  version: 1,
  digest: aDigest(),
  ...overrides,
});

export const aTurn = (overrides: Partial<TurnRecord> = {}): TurnRecord =>
  madeUpTurn({ actions: ["Phoenix"], reward: 0, ...overrides });

/** An episode that ended without success. */
export const anOutcome = (overrides: Partial<PlayedOutcome> = {}): PlayedOutcome => ({
  status: "scored",
  stop: "over",
  success: false,
  trajectory: aTrajectory(),
  turns: [aTurn()],
  finalObservation: "",
  extra: {},
  ...overrides,
});

/** Rules of play for short episodes in the compact layout. */
export const somePlayRules = (actionsPerTurnMax: PlayRules["actionsPerTurnMax"]): PlayRules => ({
  seed: 5,
  layout: "compact",
  compat: false,
  think: true,
  replyTokensMax: 40,
  contextTokensMax: 400,
  context: "full",
  contextTurnsMax: null,
  overflow: "stop",
  reasoningWeight: 0,
  actionsPerTurnMax,
});
