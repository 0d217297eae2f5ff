/** Baselines of an env whose dynamics are random. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { z } from "zod";
import { bestPossible, evaluatePlayer, evaluateRandom, passAtK, passCurve } from "../../../envs/analysis/evaluate.ts";
import type { DiscreteGame, OutsideGame, Seeds } from "../../../envs/env.ts";
import { openEpisode } from "../../../envs/episode.ts";
import { Refused } from "../../../envs/outside/json-server.ts";
import { Pcg64 } from "../../../envs/rng/pcg64.ts";
import { dynamicsSeed } from "../../../envs/seeds.ts";
import { defineTag, openLocal, plainWording, uniformPlayer } from "../../../envs/tag.ts";

/** A coin is shown, from the layout; guess the next one, from the dynamics. Each seed starts a generator, as documented. */
function coinTag(opened: Seeds[]) {
  return defineTag({
    tag: "Coin",
    type: "coin",
    schema: z.strictObject({}),
    actionsMax: 1,
    replyWordsHint: 10,
    parts: () => ({
      wording: plainWording("Guess the coin.", null, false),
      open(seeds): DiscreteGame {
        opened.push(seeds);
        const toss = (seed: number) => (new Pcg64(seed).random() < 0.5 ? 0 : 1);
        return {
          kind: "discrete",
          actions: ["0", "1"],
          render: () => String(toss(seeds.layout)),
          act: (action) => {
            const success = action === toss(seeds.dynamics);
            return { reward: Number(success), done: true, effective: true, valid: true, success };
          },
        };
      },
      random: uniformPlayer,
      optimal: (game) => Number(game.render()),
      best: () => 0.5,
    }),
  }).make({}, "strict");
}

describe("the dynamics of a baseline", () => {
  test("are unrelated to the layout: a player that copies the shown coin is right half of the time", async () => {
    const tag = coinTag([]);
    const { success } = await evaluatePlayer(tag, tag.optimal!, { episodes: 1000, seed: 123 });
    // Four standard errors of 1,000 fair coins.
    expect(success).toBeWithin(0.437, 0.563);
  });

  test("are those of tickets, and differ among the tries at a board and the rounds of the random player", async () => {
    const opened: Seeds[] = [];
    const tag = coinTag(opened);
    await evaluatePlayer(tag, tag.optimal!, { episodes: 2, seed: 7, tries: 2 });
    const expected = [7, 7, 8, 8].map((layout, i) => ({ layout, dynamics: dynamicsSeed(layout, i % 2) }));
    expect(opened.splice(0)).toEqual(expected);
    await evaluateRandom(tag, { episodes: 1, seed: 7 });
    expect(new Set(opened.splice(0).map(({ dynamics }) => dynamics)).size).toBe(16);
    bestPossible(tag, { episodes: 1, seed: 7 });
    expect(opened).toEqual([{ layout: 7, dynamics: dynamicsSeed(7, 0) }]);
  });
});

test("an episode that fails is reported by its own error, also if its close fails too", async () => {
  let opened = 0;
  const tag = defineTag({
    tag: "Dead",
    type: "dead",
    schema: z.strictObject({}),
    actionsMax: 1,
    replyWordsHint: 10,
    parts: () => ({
      wording: plainWording("Wait.", null, false),
      open: (): OutsideGame => ({
        kind: "outside",
        actions: null,
        start: async () => void opened++,
        render: () => "",
        act: () => Promise.reject(new Refused("the server refuses the action")),
        close: () => Promise.reject(new Error("the line is dead")),
      }),
      random: () => "wait",
    }),
  }).make({}, "strict");
  expect(await evaluatePlayer(tag, tag.random, { episodes: 1, seed: 1 }).catch(String)).toBe(
    "Error: the server refuses the action",
  );
  // The evaluation does not repeat what a server refuses.
  expect(opened).toBe(1);
});

test("a task that is solved when the actions are used up counts, as in an episode of a policy", async () => {
  const tag = defineTag({
    tag: "Pole",
    type: "pole",
    schema: z.strictObject({}),
    actionsMax: 3,
    replyWordsHint: 10,
    parts: () => ({
      wording: plainWording("Keep the pole up.", ["Left", "Right"], false),
      // The game goes on as long as the agent plays: no action ends it.
      open: (): DiscreteGame => ({
        kind: "discrete",
        actions: ["Left", "Right"],
        render: () => "|",
        act: (action) => ({ reward: 1, done: false, effective: true, valid: true, success: action === 0 }),
      }),
      random: uniformPlayer,
    }),
  }).make({}, "strict");
  const successOf = async (action: number) =>
    (await evaluatePlayer(tag, () => action, { episodes: 2, seed: 1 })).success;
  expect(await successOf(0)).toBe(1);
  expect(await successOf(1)).toBe(0);

  const rules = { turnsMax: 5, actionsMax: 3, actionsPerTurnMax: 5, formatPenalty: 0, think: false };
  const env = openEpisode(openLocal(tag, { layout: 1, dynamics: 1 }), rules);
  expect(env.step("<answer>Left || Left || Left</answer>")).toMatchObject({ ending: "actions", success: true });
});

describe("passAtK", () => {
  test("matches estimates worked by hand", () => {
    // 5 tries, 2 solved: of the 10 pairs, 3 hold none of the solved (C(3, 2)); of the 10 triples, 1 does.
    expect(passAtK(5, 2, 1)).toBeCloseTo(0.4, 12);
    expect(passAtK(5, 2, 2)).toBeCloseTo(0.7, 12);
    expect(passAtK(5, 2, 3)).toBeCloseTo(0.9, 12);
    expect(passAtK(5, 2, 4)).toBe(1);
    expect([passAtK(4, 0, 4), passAtK(4, 1, 4)]).toEqual([0, 1]);
  });

  test("is the share of all choices of k tries that hold a solved one", () => {
    const cases = fc
      .tuple(fc.integer({ min: 1, max: 10 }), fc.nat(10), fc.integer({ min: 1, max: 10 }))
      .filter(([tries, solved, k]) => solved <= tries && k <= tries);
    fc.assert(
      fc.property(cases, ([tries, solved, k]) => {
        let [all, hits] = [0, 0];
        // The first `solved` tries are the solved ones; a choice is a set of k bits.
        for (let choice = 0; choice < 2 ** tries; choice++) {
          const bits = choice.toString(2).padStart(tries, "0");
          if ([...bits].filter((bit) => bit === "1").length !== k) continue;
          all++;
          if (bits.slice(0, solved).includes("1")) hits++;
        }
        expect(passAtK(tries, solved, k)).toBeCloseTo(hits / all, 12);
      }),
    );
  });

  test.each([
    [4, 2, 5, "pass@k of 4 tries needs k from 1 to 4, got 5"],
    [4, 2, 0, "pass@k of 4 tries needs k from 1 to 4, got 0"],
    [4, 5, 1, "of 4 tries, 0 to 4 can be solved, got 5"],
  ])("refuses %p tries, %p solved, k %p", (tries, solved, k, message) => {
    expect(() => passAtK(tries, solved, k)).toThrow(new RangeError(message));
  });
});

test("passCurve is the mean over boards, for powers of two and for all tries", () => {
  const curve = passCurve([0, 2, 6], 6);
  expect(curve.map(({ k }) => k)).toEqual([1, 2, 4, 6]);
  // Board 2: 2 of 6 solved, pairs without one: C(4, 2) / C(6, 2) = 6 / 15.
  expect(curve[0]!.share).toBeCloseTo((0 + 2 / 6 + 1) / 3, 12);
  expect(curve[1]!.share).toBeCloseTo((0 + 9 / 15 + 1) / 3, 12);
  expect(curve[3]!.share).toBeCloseTo(2 / 3, 12);
  expect(passCurve([0, 1], 1)).toEqual([{ k: 1, share: 0.5 }]);
});
