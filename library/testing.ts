/** `bunraku/testing`: the tests that every env passes. A test file awaits `checkEnv`, and `bun test` runs it. */
import { describe, expect, test } from "bun:test";
import { STUBBED } from "../actors/dashboard/assets.ts";
import { AnswerLimits } from "../actors/env-server/answer-limits.ts";
import { importEnvs, sourcesOf } from "../actors/play/env-modules.ts";
import { bestPossible, evaluatePlayer } from "../envs/analysis/evaluate.ts";
import type { Effect, Game } from "../envs/env.ts";
import { actionsByName } from "../envs/episode.ts";
import { envTag, tagsOf } from "../envs/registry.ts";
import { Pcg64 } from "../envs/rng/pcg64.ts";
import type { EnvTag } from "../envs/tag.ts";

/** Maximum number of actions of a random episode. */
const ACTIONS_MAX = 40;
const BOARDS = { episodes: 100, seed: 123 };

/**
 * Imports a module in the same way as a run, and tests the module's envs.
 *
 * @param module  the module's file: `import.meta.resolve("./street.ts")`
 * @param options  options of the envs, if the default options do not suit the tests
 */
export async function checkEnv(module: string, options: Readonly<Record<string, unknown>> = {}): Promise<void> {
  const imported = await importEnvs(module, process.cwd());
  for (const name of tagsOf(imported)) {
    const tag = envTag(name, options);
    checkTag(tag);
    test(`${name} plays in a browser, or is marked with browser: false`, () => {
      const lacking = [...sourcesOf(imported.path).packages].filter((one) => STUBBED.test(one));
      if (tag.browser === false || tag.external) return;
      expect(lacking, "imports that browsers lack").toEqual([]);
    });
  }
}

/** The tests of one env with its options. */
export function checkTag(tag: EnvTag): void {
  describe(tag.tag, () => {
    test("lacks nothing here", () => {
      expect(tag.missing?.() ?? null).toBeNull();
    });

    test("gives equal episodes for equal seeds", async () => {
      for (const seed of [0, 1, 4294967295]) expect(await played(tag, seed, 5)).toEqual(await played(tag, seed, 5));
    });

    test("shares its layout within a group", async () => {
      const opening = async (layout: number, dynamics: number) => (await played(tag, layout, dynamics, 0)).texts[0]!;
      for (const layout of [3, 4]) {
        const openings = await Promise.all([0, 1, 2, 3].map((dynamics) => opening(layout, dynamics)));
        expect(new Set(openings).size).toBe(1);
      }
      // The first observation may hide the board. Then equal random actions show whether two boards are equal.
      const differ = async (actionsMax?: number) => {
        const boards = Array.from({ length: 40 }, (_, layout) => played(tag, layout, 0, actionsMax, 0));
        return new Set((await Promise.all(boards)).map((board) => JSON.stringify(board))).size > 1;
      };
      expect((await differ(0)) || (await differ()), "the boards of 40 layout seeds differ").toBe(true);
    });

    test("plays 64 random episodes with finite rewards and short texts, and its brief loses nothing", async () => {
      const whole = new Map<string, string>();
      for (let layout = 123; layout < 187; layout++) {
        for (const observation of (await played(tag, layout, layout)).texts) {
          const brief = tag.brief(observation);
          expect(whole.get(brief) ?? observation).toBe(observation);
          whole.set(brief, observation);
          expect(brief.length).toBeLessThanOrEqual(observation.length);
        }
      }
    });

    test("its optimal or expert player, if any, beats random play, and an optimal player reaches the best possible success, if known", async () => {
      const possible = bestPossible(tag, BOARDS);
      const player = tag.optimal ?? tag.expert;
      if (player === undefined) return;
      const best = await evaluatePlayer(tag, player, BOARDS);
      if (possible !== null) {
        expect(best.ci95[0]).toBeLessThanOrEqual(possible);
        if (tag.optimal !== null) expect(best.ci95[1]).toBeGreaterThanOrEqual(possible - 1e-9);
      }
      expect((await evaluatePlayer(tag, tag.random, BOARDS)).success).toBeLessThan(best.success);
    });
  });
}

/** Observations and rewards of a random player in a whole game. @throws {Error} if an answer breaks a limit of the env server */
async function played(
  tag: EnvTag,
  layout: number,
  dynamics: number,
  actionsMax = Math.min(tag.actionsMax, ACTIONS_MAX),
  coinSeed = layout,
): Promise<{ texts: string[]; rewards: number[] }> {
  const coins = new Pcg64(coinSeed, 99);
  const game = tag.open({ layout, dynamics });
  const limits = new AnswerLimits();
  if (game.kind === "outside") await game.start();
  try {
    if (game.kind !== "language" && game.actions !== null) actionsByName(game.actions);
    const texts = [game.render()];
    const rewards: number[] = [];
    limits.opened({ observation: texts[0]! });
    for (let left = actionsMax; left > 0; left--) {
      const action = tag.random(game, left, () => coins.random());
      const { reward, extra = {}, message, done } = await act(game, action);
      const observation = message ?? game.render();
      limits.stepped({ observation, reward, penalty: 0, extra });
      texts.push(observation);
      rewards.push(reward);
      if (done) {
        if (game.kind !== "outside") expect(() => act(game, action), "an action after the end").toThrow();
        break;
      }
    }
    return { texts, rewards };
  } finally {
    if (game.kind === "outside") await game.close();
  }
}

const act = (game: Game, action: number | string): Effect | Promise<Effect> =>
  game.kind === "discrete" ? game.act(Number(action)) : game.act(String(action));
