/** One env or a mix: the groups, options and budgets of each env, and mixes that are refused. */

import { afterAll, describe, expect, test } from "bun:test";
import { importEnvs } from "../../../actors/play/env-modules.ts";
import {
  envAlone,
  envNames,
  envsText,
  episodeRules,
  playedEnvs,
  sharedGroups,
  shortText,
  tagOf,
  tooSmallBudgets,
} from "../../../actors/play/envs-of-run.ts";
import { groupEnvs } from "../../../actors/training/curriculum.ts";
import { updateSettings } from "../../../actors/training/update-settings.ts";
import { envModules, removeEnvs } from "../../../envs/registry.ts";
import { aConfig } from "../../fixtures.ts";

const configOf = (values: Record<string, unknown>) => aConfig({ warmStart: { enabled: false }, ...values });
const mix = [
  { tag: "SimpleSokoban", groups: 2 },
  { tag: "FrozenLake", options: { successRate: 0.9 }, turnsMax: 3 },
  { tag: "FrozenLake", name: "Ice", actionsMax: 7 },
  { tag: "Bandit" },
];

afterAll(() => {
  for (const module of envModules()) removeEnvs(module);
});

describe("groups of a mix", () => {
  const of = (...groups: (number | null)[]) => groups.map((count, i) => ({ name: `env${i}`, groups: count }));

  test.each([
    [of(null), 16, [16]],
    [of(null, null), 16, [8, 8]],
    [of(4, null, null), 16, [4, 6, 6]],
    [of(10, 6), 16, [10, 6]],
  ])("of %j, %p in all, are %p", (envs, total, expected) => {
    expect(sharedGroups(envs, total)).toEqual(expected);
  });

  test.each([
    [
      of(null, null, null),
      16,
      "16 groups do not split evenly among 3 envs; change rollout.groups, or give each env its groups",
    ],
    [
      of(15, null, null),
      16,
      "16 groups less 15 do not split evenly among 2 envs; change rollout.groups, or give each env its groups",
    ],
    [
      of(20, null),
      16,
      "16 groups less 20 do not split evenly among 1 envs; change rollout.groups, or give each env its groups",
    ],
    [
      of(4, 4),
      16,
      "the envs of the mix ask for 8 groups in all, but an update has 16; make the two equal, or omit `groups` of one env, which then gets the rest",
    ],
  ])("of %j, %p in all, are refused", (envs, total, message) => {
    expect(() => sharedGroups(envs, total)).toThrow(new RangeError(message));
  });

  test("follow one another in a batch, env by env", () => {
    const config = configOf({ env: { mix }, rollout: { groups: 8 } });
    expect(groupEnvs(config)).toEqual([
      "SimpleSokoban",
      "SimpleSokoban",
      "FrozenLake",
      "FrozenLake",
      "Ice",
      "Ice",
      "Bandit",
      "Bandit",
    ]);
  });
});

describe("an env of a mix", () => {
  const config = configOf({ env: { mix, turnsMax: 4 }, rollout: { groups: 8 } });

  test("has its own options, also beside another of its tag", () => {
    expect(tagOf(config, "FrozenLake").config["successRate"]).toBe(0.9);
    expect(tagOf(config, "Ice").config["successRate"]).not.toBe(0.9);
    expect(() => tagOf(config, "LargerSokoban")).toThrow(
      "this run plays no env named LargerSokoban; it plays SimpleSokoban, FrozenLake, Ice, Bandit",
    );
  });

  test("takes turns from its tag where the mix has no number, also when it is played alone, and in the loss's divisor", async () => {
    await importEnvs("./tests/library/doors.ts", process.cwd());
    const config = configOf({
      env: {
        mix: [
          { tag: "Doors", name: "Two" },
          { tag: "Bandit", turnsMax: 1 },
        ],
        turnsMax: 2,
      },
    });
    expect(episodeRules(config, "Two", tagOf(config, "Two")).turnsMax).toBe(3);
    expect(envAlone(config, "Two")).toMatchObject({ tag: "Doors", turnsMax: 3, actionsMax: 3, mix: [] });
    const adapted = { klCoefficient: 0, entropyCoefficient: 0, covariance: "none" } as const;
    const { writtenTokensMax } = updateSettings(config, 1, adapted, {
      messageStart: 1,
      system: [],
      beforeReplies: true,
    });
    expect(writtenTokensMax).toBe(3 * config.rollout.replyTokensMax);
  });

  test("has its own budgets; those that it leaves out are the run's, and for actions its tag's", () => {
    const rules = (name: string) => {
      const { turnsMax, actionsMax, actionsPerTurnMax } = episodeRules(config, name, tagOf(config, name));
      return [turnsMax, actionsMax, actionsPerTurnMax];
    };
    expect(["SimpleSokoban", "FrozenLake", "Ice", "Bandit"].map(rules)).toEqual([
      [4, 10, 5],
      [3, 10, 5],
      [4, 7, 5],
      [4, 1, 5],
    ]);
  });

  test("names the run with the others", () => {
    expect(envsText(config)).toBe("SimpleSokoban+FrozenLake+Ice+Bandit");
    expect(envNames(envsText(config))).toEqual(playedEnvs(config).map(({ name }) => name));
    const alone = configOf({ env: { tag: "Bandit" } });
    expect([envsText(alone), shortText(alone), shortText(config)]).toEqual(["Bandit", "Bandit", "mix-of-4"]);
    expect(playedEnvs(configOf({ env: { tag: "Bandit", actionsMax: 1 } }))).toMatchObject([
      { name: "Bandit", actionsMax: 1 },
    ]);
  });
});

test.each([
  [
    { env: { mix: [{ tag: "Bandit" }, { tag: "Bandit" }] } },
    "env.mix: two envs are named Bandit; set a different name for one of them",
  ],
  [{ env: { mix: [{ tag: "Bandits" }] } }, 'env.mix.0.tag: unknown env tag "Bandits"'],
  [{ env: { mix: [{ tag: "Bandit", options: { arms: 3 } }] } }, "env.mix.0.options: options of Bandit"],
  [
    { env: { mix: [{ tag: "Bandit" }, { tag: "FrozenLake" }] }, rollout: { groups: 3 } },
    "env.mix: 3 groups do not split evenly among 2 envs",
  ],
  [
    { env: { tag: "Bandit", mix: [{ tag: "Bandit" }] } },
    "env.tag is not read with env.mix, whose envs have their own value; leave it out",
  ],
  [
    { rollout: { curriculum: { by: "success" } } },
    "rollout.curriculum.by: a curriculum moves groups between the envs of env.mix",
  ],
  [
    { rollout: { curriculum: { smoothing: 0.5 } } },
    "rollout.curriculum.smoothing is not read while rollout.curriculum.by is none",
  ],
  [
    {
      env: { mix: [{ tag: "Bandit" }, { tag: "FrozenLake" }] },
      rollout: { groups: 8, curriculum: { by: "reward", groupsMin: 5 } },
    },
    "rollout.curriculum.groupsMin: 2 envs with 5 groups each need 10 groups, but an update has 8; lower it",
  ],
  [
    { rollout: { onlineK: 2 }, learner: { minibatch: 8 } },
    "rollout.onlineK: Online-k divides the episodes of an update into 2 minibatches",
  ],
])("%j is refused", (values, message) => {
  expect(() => configOf(values)).toThrow(message);
});

describe("a budget smaller than any solution", () => {
  const lines = (tag: string, budgets: object, compat = "strict") =>
    tooSmallBudgets(configOf({ env: { tag, ...budgets }, prompt: { compat } }));

  test("is reported in one line for each env", () => {
    expect(lines("game_2048", { turnsMax: 5, actionsMax: 700, actionsPerTurnMax: 5 })).toEqual([
      "no episode of game_2048 can succeed: success takes at least 510 actions, but 5 turns of 5 actions within a budget of 700 allow only 25; raise env.turnsMax, env.actionsPerTurnMax or env.actionsMax",
    ]);
    expect(lines("SimpleSudoku", { turnsMax: 20, actionsMax: 20 }, "ragen-v2")).toHaveLength(1);
  });

  test("is none of the tags' own", () => {
    expect(lines("game_2048", { turnsMax: 800, actionsMax: 700, actionsPerTurnMax: 1 })).toEqual([]);
    expect(lines("MediumSudoku", { turnsMax: 5, actionsMax: 30, actionsPerTurnMax: 2 })).toEqual([]);
    expect(lines("SimpleSokoban", { turnsMax: 1, actionsMax: 1 })).toEqual([]);
  });
});
