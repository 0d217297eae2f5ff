/** What is played is decided by config and update alone; what was played is said in numbers worked by hand. */

import { describe, expect, test } from "bun:test";
import { composeRunConfig } from "../../../actors/config/config.ts";
import type { Finished } from "../../../actors/learner/tickets.ts";
import { metricValues } from "../../../actors/metrics/metrics.ts";
import type { Outcome, PlayedOutcome, TurnRecord } from "../../../actors/protocol.ts";
import {
  endCounts,
  playedOf,
  rolloutMetrics,
  trainingTickets,
  unplayed,
  validationTickets,
} from "../../../actors/training/rollouts.ts";
import { writtenTokens } from "../../../model/trajectory.ts";
import { ticketOf } from "../metrics-sink/fake-run.ts";

const configOf = (changed: Record<string, object> = {}) =>
  composeRunConfig([
    {
      source: "test",
      values: { rollout: { groups: 3, groupSize: 4, firstSeed: 500 }, learner: { filter: { strategy: "all" } } },
    },
    { source: "test", values: changed },
  ]);

describe("the tickets of an update", () => {
  const tickets = trainingTickets(configOf(), 2, 9);

  test("are P groups of N; a group shares its board, and each member has chance of its own", () => {
    expect(tickets.map(({ group, member }) => [group, member])).toEqual(
      [0, 1, 2].flatMap((group) => [0, 1, 2, 3].map((member) => [group, member])),
    );
    // Updates 0 and 1 had boards 500 to 505.
    expect(tickets.map(({ layoutSeed }) => layoutSeed)).toEqual([506, 507, 508].flatMap((seed) => Array(4).fill(seed)));
    expect(new Set(tickets.map(({ dynamicsSeed }) => dynamicsSeed)).size).toBe(12);
    expect(tickets.every(({ version, exact, attempt }) => version === 9 && exact && attempt === 0)).toBe(true);
  });

  test("share chance within a group as well where RAGEN is reproduced", () => {
    const shared = trainingTickets(configOf({ prompt: { compat: "ragen-v2" } }), 2, 9);
    expect(shared.every(({ layoutSeed, dynamicsSeed }) => layoutSeed === dynamicsSeed)).toBe(true);
  });

  test("have names that no other update and no validation has", () => {
    const config = configOf();
    const names = [0, 1, 10, 11].flatMap((update) => trainingTickets(config, update, 1));
    const others = ["v0", "v1", "v10"].flatMap((name) =>
      [0.5, 1].flatMap((t) => validationTickets(config, name, t, 1)),
    );
    const all = [...names, ...others].map(({ episode }) => episode);
    expect(new Set(all).size).toBe(all.length);
  });

  test("allow newer weights in async mode", () => {
    const config = configOf({ learner: { mode: "async", stalenessMax: 1, filter: { strategy: "all" } } });
    expect(trainingTickets(config, 0, 1).every(({ exact }) => !exact)).toBe(true);
  });
});

describe("the tickets of a validation", () => {
  test("are the same boards every time, one episode each, without a cut in what may be sampled", () => {
    const config = configOf({ rollout: { topP: 0.9, topK: 5 }, validate: { episodes: 6, firstSeed: 123 } });
    const [first, later] = [validationTickets(config, "v0", 0.5, 1), validationTickets(config, "v9", 0.5, 7)];
    expect(first.map(({ layoutSeed }) => layoutSeed)).toEqual([123, 124, 125, 126, 127, 128]);
    const chance = (tickets: typeof first) => tickets.map(({ layoutSeed, dynamicsSeed }) => [layoutSeed, dynamicsSeed]);
    expect(chance(later)).toEqual(chance(first));
    expect(first[0]).toMatchObject({ purpose: "validate", temperature: 0.5, topP: 1, topK: 0, exact: true });
  });
});

describe("the tickets of a mix", () => {
  const mix = [{ tag: "SimpleSokoban", groups: 1 }, { tag: "Bandit" }];
  const config = configOf({
    env: { mix },
    rollout: { groups: 3, groupSize: 2 },
    validate: { episodes: 2, groupSize: 2 },
  });

  test("name their env, group by group; boards go on from group to group", () => {
    const tickets = trainingTickets(config, 1, 1);
    expect(tickets.map(({ env }) => env)).toEqual([
      "SimpleSokoban",
      "SimpleSokoban",
      "Bandit",
      "Bandit",
      "Bandit",
      "Bandit",
    ]);
    expect(tickets.map(({ layoutSeed }) => layoutSeed - config.rollout.firstSeed)).toEqual([3, 3, 4, 4, 5, 5]);
  });

  test("of a validation are the same boards of each env, tried as often as is asked for", () => {
    const tickets = validationTickets(config, "v0", 0.5, 1);
    expect(tickets.map(({ env, group, member, layoutSeed }) => [env, group, member, layoutSeed])).toEqual([
      ["SimpleSokoban", 0, 0, 123],
      ["SimpleSokoban", 0, 1, 123],
      ["SimpleSokoban", 1, 0, 124],
      ["SimpleSokoban", 1, 1, 124],
      ["Bandit", 2, 0, 123],
      ["Bandit", 2, 1, 123],
      ["Bandit", 3, 0, 124],
      ["Bandit", 3, 1, 124],
    ]);
    expect(new Set(tickets.map(({ episode }) => episode)).size).toBe(8);
    // Tries differ in chance, and the first is what it is without others.
    expect(new Set(tickets.map(({ dynamicsSeed }) => dynamicsSeed)).size).toBe(4);
    const alone = validationTickets({ ...config, validate: { ...config.validate, groupSize: 1 } }, "v0", 0.5, 1);
    expect(tickets.filter(({ member }) => member === 0)).toEqual(alone);
  });
});

const turn = (changed: Partial<TurnRecord>): TurnRecord => ({
  observation: "",
  reply: "",
  actions: ["Up"],
  reward: -0.1,
  penalty: 0,
  wellFormed: true,
  effective: true,
  valid: true,
  cut: false,
  dropped: 0,
  ...changed,
});

function finished(turns: TurnRecord[], written: number, changed: Partial<PlayedOutcome> = {}): Finished {
  const outcome: PlayedOutcome = {
    status: "scored",
    stop: "over",
    success: false,
    turns,
    finalObservation: "",
    extra: {},
    trajectory: {
      tokens: new Int32Array(10),
      written: Uint8Array.from({ length: 10 }, (_, i) => Number(i < written)),
      logProbs: new Float32Array(10),
      contexts: [0],
      turns: turns.map(({ reward, penalty }, i) => ({ end: i, reward, penalty })),
      version: 1,
      digest: "",
    },
    ...changed,
  };
  return { ticket: ticketOf(), sampler: "s", outcome };
}
const failed = (status: "envError" | "aborted", detail: string): Finished => ({
  ticket: ticketOf({ episode: detail }),
  sampler: "s",
  outcome: { status, detail } satisfies Outcome,
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

  test("is said in numbers, under names that there are", () => {
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

  test("is said of each env of a mix as well, and of no env where there is but one", () => {
    const tries = [
      ...[0, 1, 2, 3].map((member) => ({ env: "Bandit", group: 0, member, success: member < 2 })),
      ...[0, 1, 2, 3].map((member) => ({ env: "Ice", group: 1, member, success: member === 0 })),
    ].map(({ success, ...ticket }) => ({
      ...finished([turn({ reward: Number(success) })], 2, { success }),
      ticket: ticketOf(ticket),
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
    expect(unplayed(all)).toBe("2 of 3 episodes could not be played; lost: lost");
    expect(metricValues(endCounts([...all, finished([turn({})], 1, { status: "truncated" })]))).toEqual({
      "train/scored_episodes": 1,
      "train/truncated_episodes": 1,
      "train/env_errors": 1,
      "train/aborted_episodes": 1,
      "train/failed_episodes": 2,
    });
  });
});
