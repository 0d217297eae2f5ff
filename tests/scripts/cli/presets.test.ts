/** Tags that have a file in configs/env/: training and `eval` play with the budgets in this file. */
import { expect, test } from "bun:test";
import { fileBudgets } from "../../../actors/config/preset-files.ts";
import { tooSmallBudgets } from "../../../actors/play/envs-of-run.ts";
import { withReward } from "../../../envs/custom-reward.ts";
import { addEnvs, envTag, removeEnvs } from "../../../envs/registry.ts";
import { NO_PROJECT } from "../../../library/project.ts";
import { chooseConfig, inProject } from "../../../scripts/cli/presets.ts";

// Source: RAGEN-2 config/envs.yaml, _8_sudoku.yaml, _9_2048.yaml, _10_rubikscube.yaml.
test.each([
  ["game_2048", 800, 700, 1],
  ["rubikscube", 25, 20, 4],
  ["SimpleSudoku", 5, 20, 2],
  ["MediumSudoku", 5, 30, 2],
])("%s has RAGEN-2's budgets", (tag, turnsMax, actionsMax, actionsPerTurnMax) => {
  const config = chooseConfig({ flags: {}, overrides: [{ path: "env.tag", text: tag, source: "--env" }] });
  expect(config.env).toMatchObject({ tag, turnsMax, actionsMax, actionsPerTurnMax });
  expect(fileBudgets(tag)).toEqual({ turnsMax, actionsMax, actionsPerTurnMax });
  expect(envTag(tag).actionsMax).toBe(actionsMax);
  expect(tooSmallBudgets(config)).toEqual([]);
});

test("a tag that a flag chooses brings its budgets, whatever the preset has for its own", () => {
  const envOf = (preset: string, tag: string, ...flags: string[]) =>
    chooseConfig({
      flags: { preset },
      overrides: [["env.tag", tag], ...flags.map((flag) => flag.split("="))].map(([path, text]) => {
        return { path: path!, text: text!, source: `--${path}=${text}` };
      }),
    }).env;
  expect(envOf("ragen2-ppo", "game_2048")).toMatchObject({ turnsMax: 800, actionsMax: 700, actionsPerTurnMax: 1 });
  expect(envOf("ragen2-ppo", "game_2048", "env.turnsMax=7")).toMatchObject({ turnsMax: 7, actionsMax: 700 });
  // Tags without budgets of their own keep the preset's.
  expect(envOf("ragen2-ppo", "FrozenLake")).toMatchObject({ turnsMax: 5, actionsMax: 10, actionsPerTurnMax: 2 });
});

test("a tag that the built-in policy has nothing to learn from asks for a pretrained model", () => {
  const asks = (tag: string) =>
    chooseConfig({ flags: {}, overrides: [{ path: "env.tag", text: tag, source: "--env" }] }).model.pretrainedOnly;
  expect(["game_2048", "SimpleSudoku", "MediumSudoku", "Countdown", "WebShop"].filter((tag) => !asks(tag))).toEqual([]);
  expect(["rubikscube", "Bandit", "FrozenLake"].filter(asks)).toEqual([]);
});

test("an env with a reward of its own has the settings of the env that it plays", () => {
  const module = { path: "/quiet.ts", digest: "0".repeat(64) };
  addEnvs([withReward("Quiet2048", "game_2048", () => 0)], module);
  const chosen = (tag: string) =>
    chooseConfig({ flags: {}, overrides: [{ path: "env.tag", text: tag, source: "--env" }] });
  const [own, theirs] = [chosen("Quiet2048"), chosen("game_2048")];
  removeEnvs(module);
  const env = { ...theirs.env, tag: "Quiet2048", modules: { [module.path]: module.digest } };
  expect(own).toEqual({ ...theirs, env });
});

test("a tag without a file has no budgets of its own", () => {
  expect(fileBudgets("SimpleSokoban")).toEqual({});
});

test("a project's preset that has the name of a built-in one is refused", () => {
  expect(() => inProject({ ...NO_PROJECT, presets: { mine: {}, bandit: {} } })).toThrow(
    "bunraku.config.ts: presets.bandit: a built-in preset has this name; choose another",
  );
});

const promptOf = (...flags: [path: string, text: string][]) =>
  chooseConfig({
    flags: {},
    overrides: flags.map(([path, text]) => ({ path, text, source: `--${path}=${text}` })),
  }).prompt;

test("prompt.compat sets RAGEN's layout too; a layout that is given wins", () => {
  expect(promptOf(["prompt.compat", "ragen-v1"]).layout).toBe("ragen-v1");
  expect(promptOf(["prompt.compat", "ragen-v2"]).layout).toBe("ragen-v2");
  expect(promptOf(["prompt.layout", "compact"], ["prompt.compat", "ragen-v1"]).layout).toBe("compact");
  expect(promptOf(["prompt.compat", "strict"]).layout).toBe("compact");
});
