/** Metrics of played tickets, worked by hand. */
import { describe, expect, test } from "bun:test";
import { metricValues } from "../../../actors/metrics/metrics.ts";
import { type FinishedTicket, playedOf, unplayedText } from "../../../actors/play/finished-ticket.ts";
import type { PlayedOutcome, TurnRecord } from "../../../actors/protocol.ts";
import { endCounts, rolloutMetrics } from "../../../actors/training/rollout-metrics.ts";
import { writtenTokens } from "../../../model/trajectory.ts";
import { anOutcome, aTicket, aTrajectory, aTurn } from "../../fixtures.ts";

const turn = (changed: Partial<TurnRecord>): TurnRecord => aTurn({ actions: ["Up"], reward: -0.1, ...changed });

/** `written` of ten tokens are written. */
function finished(turns: TurnRecord[], written: number, changed: Partial<PlayedOutcome> = {}): FinishedTicket {
  const trajectory = aTrajectory({
    tokens: new Int32Array(10),
    written: Uint8Array.from({ length: 10 }, (_, i) => Number(i < written)),
    // -.5, -1, -1.5, … where written.
    logProbs: Float32Array.from({ length: 10 }, (_, i) => (i < written ? -(i + 1) / 2 : 0)),
    turns: turns.map(({ reward, penalty }, i) => ({ end: i, reward, penalty })),
  });
  return { ticket: aTicket(), sampler: "s", outcome: anOutcome({ turns, trajectory, ...changed }) };
}
const failed = (status: "envError" | "aborted", detail: string): FinishedTicket => ({
  ticket: aTicket({ episode: detail }),
  sampler: "s",
  outcome: { status, detail },
});

describe("what was played", () => {
  const played = playedOf([
    finished([turn({ reward: 10.9, actions: ["Up", "Down"] })], 6, { success: true, stop: "success" }),
    failed("envError", "the board is on fire"),
    finished(
      [
        turn({ wellFormed: false, penalty: -0.1, actions: [], effective: false, cut: true, reward: 0 }),
        turn({ reward: -0.1, effective: false, dropped: 2 }),
        turn({ reward: -0.3, actions: ["Up", "Up", "Up"] }),
      ],
      2,
      { status: "truncated", stop: "actions" },
    ),
  ]);

  test("is what has a trajectory", () => {
    expect(played.map(({ outcome }) => outcome.stop)).toEqual(["success", "actions"]);
    expect(played.map(({ outcome }) => writtenTokens(outcome.trajectory))).toEqual([6, 2]);
  });

  test("has metrics whose names are in the table", () => {
    const train = rolloutMetrics("train", played);
    const expected = {
      "train/success": 0.5,
      "train/reward_mean": (10.9 - 0.4) / 2,
      "train/penalty_mean": -0.05,
      "train/turns": 2,
      "train/actions": 3,
      "train/format_errors": 0.25,
      "train/effective": 0.5,
      "train/cut_replies": 0.25,
      "train/overflowed_turns": 0.25,
      "train/contexts": 1,
      "train/reply_tokens": 4,
      // Of the six tokens of the solved episode.
      "train/solved_log_prob": -1.75,
      "train/stop_success": 0.5,
      "train/stop_over": 0,
      "train/stop_actions": 0.5,
      "train/stop_turns": 0,
      "train/stop_context": 0,
    };
    for (const [name, value] of Object.entries(expected))
      expect(train[name as keyof typeof train]).toBeCloseTo(value, 12);
    expect(metricValues(train)).toEqual(train as Record<string, number>);
    const validate = rolloutMetrics("validate", played);
    expect(Object.keys(metricValues(validate)).every((name) => name.startsWith("validate/"))).toBe(true);
  });

  test("has the mean share of repeated grams, over the episodes that are long enough for one", () => {
    const writing = (...tokens: number[]) => {
      const { length } = tokens;
      const trajectory = aTrajectory({
        tokens: Int32Array.from(tokens),
        written: new Uint8Array(length).fill(1),
        logProbs: new Float32Array(length),
        turns: [{ end: length - 1, reward: 0, penalty: 0 }],
      });
      return { ticket: aTicket(), sampler: "s", outcome: anOutcome({ turns: [turn({})], trajectory }) };
    };
    // Of the three grams of four sevens, two repeat the first.
    const tries = playedOf([writing(7, 7, 7, 7, 7, 7), writing(1, 2, 3, 4, 5, 6), writing(7, 7, 7)]);
    expect(rolloutMetrics("train", tries)["train/repetition"]).toBeCloseTo(1 / 3, 12);
  });

  test("has metrics of each env of a mix, and none by env with a single env", () => {
    const tries = [
      ...[0, 1, 2, 3].map((member) => ({ env: "Bandit", group: 0, member, success: member < 2 })),
      ...[0, 1, 2, 3].map((member) => ({ env: "Ice", group: 1, member, success: member === 0 })),
    ].map(({ success, ...ticket }) => ({
      ...finished([turn({ reward: Number(success) })], 2, { success }),
      ticket: aTicket(ticket),
    }));
    const train = metricValues(rolloutMetrics("train", playedOf(tries)));
    expect(train).toMatchObject({
      "train/success": 3 / 8,
      "train/success{env=Bandit}": 0.5,
      "train/success{env=Ice}": 0.25,
      "train/groups": 2,
      "train/groups{env=Ice}": 1,
      "train/pass_at_group": 1,
      "train/in_group_std{env=Ice}": 0.5,
    });
    expect(Object.keys(train)).not.toContain("train/stop_over{env=Ice}");
    const validate = metricValues(rolloutMetrics("validate", playedOf(tries)));
    // Of 4 tries 2 and 1 were solved: without one, C(2,2)/C(4,2) = 1/6 and C(3,2)/C(4,2) = 1/2 of the pairs.
    expect(validate["validate/pass{k=2}"]).toBeCloseTo((5 / 6 + 1 / 2) / 2, 12);
    expect([validate["validate/pass{k=1}"], validate["validate/pass{k=4}"]]).toEqual([3 / 8, 1]);
    const alone = metricValues(rolloutMetrics("train", playedOf(tries.slice(0, 4))));
    expect(Object.keys(alone).filter((name) => name.includes("{"))).toEqual([]);
  });

  test("and what was not is counted, with the first reason", () => {
    const all = [finished([turn({})], 1), failed("aborted", "lost"), failed("envError", "on fire")];
    expect(unplayedText(all)).toBe("2 of 3 episodes could not be played; lost: lost");
    expect(metricValues(endCounts([...all, finished([turn({})], 1, { status: "truncated" })]))).toEqual({
      "train/scored_episodes": 1,
      "train/truncated_episodes": 1,
      "train/env_errors": 1,
      "train/aborted_episodes": 1,
      "train/failed_episodes": 2,
    });
  });
});

test("a thought's tokens are those written before it is closed, also where the prompt quotes a closed thought", () => {
  const CLOSED = 9;
  const outcome = anOutcome({
    turns: [turn({}), turn({})],
    trajectory: aTrajectory({
      //                     prompt, reply,       prompt that quotes,  reply that closes no thought
      tokens: Int32Array.of(1, 5, 5, CLOSED, 6, 1, 5, CLOSED, 2, 5, 5, 5),
      written: Uint8Array.of(0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1),
      logProbs: new Float32Array(12),
      contexts: [0],
      turns: [
        { end: 4, reward: 0, penalty: 0 },
        { end: 11, reward: 0, penalty: 0 },
      ],
    }),
  });
  const played = playedOf([{ ticket: aTicket(), sampler: "s", outcome }]);
  // 2 of the first turn, 3 of the second.
  expect(rolloutMetrics("train", played, CLOSED)["train/think_tokens"]).toBe(5);
});
