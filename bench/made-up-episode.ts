/** A ticket and an outcome without a game, for tests, and for benches that measure the transport and storage of episodes. */
import type { PlayedOutcome, Ticket, TurnRecord } from "../actors/protocol.ts";

export const madeUpTurn = (given: Partial<TurnRecord>): TurnRecord => ({
  observation: "",
  reply: "",
  actions: [],
  reward: 1,
  penalty: 0,
  wellFormed: true,
  effective: true,
  valid: true,
  cut: false,
  dropped: 0,
  ...given,
});

export const madeUpTicket = (given: Partial<Ticket> & Pick<Ticket, "episode">): Ticket => ({
  purpose: "train",
  group: 0,
  member: 0,
  env: "Bandit",
  layoutSeed: 1,
  dynamicsSeed: 2,
  temperature: 1,
  topP: 1,
  topK: 0,
  version: 1,
  exact: true,
  attempt: 0,
  ...given,
});

/** @param tokens  number of tokens of the trajectory; the policy wrote the second half. */
export function madeUpOutcome(tokens: number, version: number, turns: readonly Partial<TurnRecord>[]): PlayedOutcome {
  return {
    status: "scored",
    stop: "success",
    success: true,
    trajectory: {
      tokens: new Int32Array(tokens).fill(7),
      written: new Uint8Array(tokens).fill(1, tokens / 2),
      logProbs: new Float32Array(tokens).fill(-0.5, tokens / 2),
      contexts: [0],
      turns: [{ end: tokens - 1, reward: 1, penalty: 0 }],
      version,
      digest: "ab".repeat(32),
    },
    turns: turns.map(madeUpTurn),
    finalObservation: "",
    extra: {},
  };
}
