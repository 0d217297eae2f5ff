/** A reward of one's own over an existing env: only the reward changes, and the env's players still play. */
import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { evaluatePlayer } from "../../envs/analysis/evaluate.ts";
import { type RewardFunction, withReward } from "../../envs/custom-reward.ts";
import { openEpisode } from "../../envs/episode.ts";
import { addEnvs, type EnvModule, envTag, envTags, removeEnvs } from "../../envs/registry.ts";
import { openLocal, TagError } from "../../envs/tag.ts";
import { command, root } from "../scripts/command.ts";
import { temporaryFolder } from "../scripts/temporary.ts";

const BOARDS = { episodes: 16, seed: 123 };
const RULES = { turnsMax: 5, actionsMax: 10, actionsPerTurnMax: 5, formatPenalty: -0.1, think: false };

/** 1 for a solved board and a tenth off for an action that moves nothing. */
const quiet: RewardFunction = ({ effect, before, after }) => Number(effect.success) - (before === after ? 0.1 : 0);

describe("withReward", () => {
  const tag = withReward("QuietSokoban", "SimpleSokoban", quiet).make({}, "strict");
  const base = envTag("SimpleSokoban");

  test("changes the reward and nothing else: boards, players, success and what is best possible", async () => {
    const [own, theirs] = [
      await evaluatePlayer(tag, tag.optimal!, BOARDS),
      await evaluatePlayer(base, base.optimal!, BOARDS),
    ];
    // The best player always moves and always solves: each episode earns 1, and Sokoban's own reward is another.
    expect(own).toEqual({ ...theirs, meanReward: 1 });
    expect(theirs.meanReward).not.toBe(1);
    expect(tag).toMatchObject({ tag: "QuietSokoban", type: "sokoban", config: base.config });
  });

  test("counts in a turn as the sum over its actions, and sees each action with what came before and after", () => {
    const seen: string[] = [];
    const told = withReward("ToldSokoban", "SimpleSokoban", (action) => {
      seen.push(action.action);
      return quiet(action);
    }).make({}, "strict");
    const env = openEpisode(openLocal(told, { layout: 123, dynamics: 0 }), RULES);
    // Four steps into one direction on a board of 4 by 4 cells inside its walls: the last ones hit the wall.
    const { reward, actions } = env.step("<answer>Up || Up || Up || Up || Up</answer>");
    expect(seen).toEqual([...actions]);
    expect(reward).toBeLessThan(0);
    expect(Math.round(reward * -10)).toBeWithin(1, 6);
  });

  test("takes the env's options, and reaches games of text", () => {
    const arms = withReward("Safe", "Bandit", ({ action }) => (action === "Left" ? 5 : -5)).make(
      { loArmName: "left", hiArmName: "right" },
      "strict",
    );
    const pulled = (name: string) =>
      openEpisode(openLocal(arms, { layout: 1, dynamics: 1 }), RULES).step(`<answer>${name}</answer>`);
    expect([pulled("left"), pulled("right")].map(({ reward }) => reward)).toEqual([5, -5]);
    const sums = withReward("Words", "Countdown", ({ action }) => action.length).make({}, "strict");
    const answered = openEpisode(openLocal(sums, { layout: 1, dynamics: 1 }), RULES).step("<answer>1 + 2</answer>");
    expect(answered.reward).toBe("1 + 2".length);
    expect(() => withReward("Safe", "Bandit", () => 0).make({ arms: 3 }, "strict")).toThrow("options of Bandit");
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY])("of %p is an error of an evaluation", async (reward) => {
    const bad = withReward("Bad", "Bandit", () => reward).make({}, "strict");
    expect(await evaluatePlayer(bad, bad.random, BOARDS).catch(String)).toBe(
      `RangeError: the env's reward is ${reward}; return a finite number`,
    );
  });

  test("reaches games that answer later", async () => {
    const later = withReward("SearchWords", "SearchQAMock", ({ effect }) => 10 + effect.reward).make({}, "strict");
    const env = await openEpisode(later.open({ layout: 3, dynamics: 3 }), RULES);
    const turn = await env.step("<answer>search[anything]</answer>");
    expect(turn.reward).toBe(10);
    await env.close();
  });

  test("is not made of an env of its own tag, which would play itself without end", () => {
    expect(() => withReward("Quiet", "Quiet", quiet)).toThrow("withReward defines Quiet over Quiet itself");
    // The name of a run's folder has the tag.
    expect(() => withReward("../quiet", "Quiet", quiet)).toThrow(
      'starts with a capital, such as LightsOut; got "../quiet"',
    );
  });

  test("is refused where two envs would play each other's games without end", () => {
    const [first, second] = ["one.ts", "two.ts"].map((path) => ({ path, digest: "0" })) as [EnvModule, EnvModule];
    addEnvs([withReward("One", "Two", quiet)], first);
    const message = "two.ts: envs play each other's games: Two over One over Two";
    expect(() => addEnvs([withReward("Two", "One", quiet)], second)).toThrow(new TagError(message));
    expect(envTags()).not.toContain("Two");
    removeEnvs(first);
  });

  test("comes from a module that the user names", async () => {
    const file = join(temporaryFolder(), "solved.ts");
    const library = JSON.stringify(join(root, "library/env.ts"));
    const reward = "({ effect }) => Number(effect.success)";
    writeFileSync(
      file,
      `import { withReward } from ${library};\nexport default withReward("Solved", "SimpleSokoban", ${reward});\n`,
    );
    // In a process of its own: a module's envs stay known.
    const { code, out } = await command(["eval", "--env", file, "--policy", "optimal", "--episodes", "4", "--json"]);
    expect([code, JSON.parse(out.trimEnd().split("\n").at(-1)!)]).toEqual([
      0,
      expect.objectContaining({ env: "Solved", success: 1, meanReward: 1 }),
    ]);
  });
});
