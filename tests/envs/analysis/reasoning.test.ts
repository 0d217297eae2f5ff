/** Thoughts about grid worlds, judged by hand and by rule. The thoughts of the scripted demonstrators are true before noise. */
import { describe, expect, test } from "bun:test";
import { gridScorer } from "../../../envs/analysis/grid-reasoning.ts";
import { faithfulness, thoughtOf } from "../../../envs/analysis/reasoning.ts";
import { envTag } from "../../../envs/registry.ts";
import { Pcg64 } from "../../../envs/rng/pcg64.ts";
import { openLocal } from "../../../envs/tag.ts";

const sokoban = gridScorer([
  ["#", "wall"],
  ["_", "empty"],
  ["O", "target"],
  ["√", "box on target"],
  ["X", "box"],
  ["P", "player"],
  ["S", "player on target"],
]);
// Columns 0 to 5, rows 0 to 4: the player at (2, 2), the box at (2, 3), the target at (3, 3).
const ROOM = "######\n#____#\n#_PX_#\n#__O_#\n######";
const score = (thought: string, ...actions: string[]) => sokoban({ thought, observation: ROOM, actions });

describe("positions stated in a thought", () => {
  test.each([
    ["I am at (2, 2).", 1],
    ["I am at (2, 3).", 0],
    ["The box is at (2,3) and the target is at (3,3)", 1],
    ["The box is at (2, 3), the goal at (1, 1)", 0.5],
    ["Player: (2, 2); box: (1, 1); target: (3, 3)", 2 / 3],
    ["There is a wall at (0, 0), and a box at (9, 9).", 0.5],
    ["The boxes are at (2, 3) and (1, 2).", 0.5],
  ])("%p: %p of it is true", (thought, share) => {
    expect(score(thought, "Up")).toBeCloseTo(share, 12);
  });

  test.each(["Let me think.", "The box is near.", "(2, 3) looks good", "", "up and away"])(
    "%p claims nothing",
    (thought) => {
      expect(score(thought, "Up")).toBe(null);
    },
  );
});

describe("the plan stated in a thought", () => {
  test.each([
    ["go Left", ["Left"], 1],
    ["go Left", ["Up", "Left"], 0],
    ["I should go left then up", ["Left", "Up", "Right"], 1],
    ["I should go left then go up", ["Left"], 1],
    ["I will move to the right and down", ["Right", "Right"], 0],
    ["try Down", ["Down", "Up"], 1],
    // The box is right of the player and has room; to push it down one walks around it first.
    ["push Right", ["Right"], 1],
    ["push Down", ["Up", "Right", "Down"], 1],
    ["push Down", ["Right"], 0],
    ["push the box left", ["Up", "Down"], 0],
    // Up, right, right, down: beside the box on its other side, and then against it.
    ["push Left", ["Up", "Right", "Right", "Down", "Left"], 1],
  ] as const)("%p with %p: %p", (thought, actions, share) => {
    expect(score(thought, ...actions)).toBe(share);
  });

  test("is not judged by an action that pushes a box against another, which moves nothing", () => {
    const observation = "######\n#____#\n#PXX_#\n#____#\n######";
    const actions = ["Right", "Up", "Right", "Down"];
    expect(sokoban({ thought: "push Down", observation, actions })).toBe(1);
    expect(sokoban({ thought: "push Right", observation, actions })).toBe(0);
  });

  test("counts as one claim beside the positions", () => {
    expect(score("The box is at (2, 3), the target at (3, 3), so I go left", "Up")).toBeCloseTo(2 / 3, 12);
  });
});

describe("a free thought", () => {
  // The player at (2, 1): a wall to its left, a box to its right that has room.
  const observation = "######\n#____#\n#PX__#\n#__O_#\n######";
  const judged = (thought: string, ...actions: string[]) => sokoban({ thought, observation, actions });

  test.each([
    // The wall is there, and the plan is what is done: two claims.
    ["I cannot go left because of the wall so I go down, then right, then up", ["Down", "Right", "Up"], 1],
    ["I can't go right, so I go down", ["Down"], 0.5],
    ["I don't go up; I go down", ["Down"], 1],
    ["If I go up I am stuck, so I go down", ["Down"], 1],
    ["I could go right but I go down", ["Down"], 1],
    ["I cannot go left so I go down", ["Up"], 0.5],
    ["I'll go up twice, then right 3 times", ["Up", "Up", "Right", "Right", "Right"], 1],
    ["I'll go up twice, then right", ["Up", "Right", "Right"], 0],
    ["I move two cells down and one step to the right", ["Down", "Down", "Right", "Up"], 1],
    ["I head downwards", ["Up"], 0],
  ] as const)("%p with %p: %p", (thought, actions, share) => {
    expect(judged(thought, ...actions)).toBe(share);
  });

  test.each([
    ["The box is to my right.", 1],
    ["The box is to my left.", 0],
    ["The box is directly to my right, and the target is below the box.", 1],
    ["the target is directly below me", 0],
    ["I am left of the box", 1],
    ["The target is above the box", 0],
    ["There is a wall to my left", 1],
    ["There is a wall to my right", 0],
    ["There is no wall above me", 1],
    ["The box is not to my left", 1],
    ["there is a hole to my right", 0],
  ])("%p: %p of it is true", (thought, share) => {
    expect(judged(thought, "Up")).toBe(share);
  });

  test.each(["I push the box to the right of the room", "the box could be to my left", "I move to the right side"])(
    "%p places nothing",
    (thought) => {
      expect(sokoban({ thought, observation, actions: ["push"] })).toBe(null);
    },
  );
});

test("coordinates are read where there is no grid; a push cannot be followed there", () => {
  const coordinates = gridScorer(null);
  const observation =
    "Board size: 6 rows x 6 cols (zero-indexed).\nTargets: (3, 3)\nBoxes: (2, 3)\nPlayer on target: (3, 3)";
  const judged = (thought: string) => coordinates({ thought, observation, actions: ["Up"] });
  expect(judged("I am at (3, 3), the box at (2, 3), a target at (2, 3)")).toBeCloseTo(2 / 3, 12);
  expect(judged("push Up")).toBe(null);
  expect(judged("go Up")).toBe(1);
});

test("FrozenLake: the plan is what is tried, wherever the ice leads", () => {
  const { reasoning } = envTag("FrozenLake");
  const judged = (thought: string) =>
    reasoning!({ thought, observation: "P_O_\n____\n__G_\n____", actions: ["Down", "Right"] });
  expect(judged("A hole at (0, 2), the goal at (2, 2): go down, then right")).toBe(1);
  expect(judged("go right")).toBe(0);
});

test.each([
  ["<think> go Up </think><answer>Up</answer>", "go Up"],
  ["<think></think><answer>Up</answer>", null],
  ["<think>go Up<answer>Up</answer>", null],
  ["<answer>Up</answer>", null],
])("of %p the thought is %p", (reply, thought) => {
  expect(thoughtOf(reply)).toBe(thought);
});

test("a turn without a thought, or without an action, is not judged", () => {
  const judged = (reply: string, actions: string[]) => faithfulness(sokoban, { reply, observation: ROOM, actions });
  expect(judged("<think>go Left</think><answer>Left</answer>", ["Left"])).toBe(1);
  expect(judged("<answer>Left</answer>", ["Left"])).toBe(null);
  expect(judged("<think>go Left</think><answer>fly</answer>", [])).toBe(null);
});

describe("the demonstrators' own thoughts", () => {
  const scores = (name: string, noise: number) => {
    const tag = envTag(name);
    const found: number[] = [];
    for (let layout = 0; layout < 100; layout++) {
      const uniform = new Pcg64(layout, 9);
      const game = openLocal(tag, { layout, dynamics: layout });
      const reply = tag.demonstrator!.reply(game, 10, { babble: 0, noise }, () => uniform.random());
      const actions = /<answer>(.*)<\/answer>/.exec(reply)![1]!.split(" || ");
      // A reply has five actions at most, and may end before the push that it is about.
      if (actions.length === 5) continue;
      const judged = faithfulness(tag.reasoning!, { reply, observation: game.render(), actions });
      if (judged !== null) found.push(judged);
    }
    return { count: found.length, mean: found.reduce((sum, one) => sum + one, 0) / found.length };
  };

  test.each(["SimpleSokoban", "LargerSokoban", "SokobanDifferentGridVocab", "FrozenLake", "CoordFrozenLake"])(
    "in %s are faithful without noise, and less so with it",
    (name) => {
      const honest = scores(name, 0);
      expect(honest.count).toBeGreaterThan(50);
      expect(honest.mean).toBe(1);
      expect(scores(name, 0.5).mean).toBeLessThan(0.85);
    },
  );
});

/** Of a tag's first observation. */
function judge(name: string, thought: string, ...actions: string[]): number | null {
  const tag = envTag(name);
  const game = openLocal(tag, { layout: 1, dynamics: 1 });
  return tag.reasoning!({ thought, observation: game.render(), actions });
}

describe("a bandit's arms", () => {
  // Dragon pays 1 with probability 1/4, Phoenix .1 for sure.
  test.each([
    ["Dragon pays more on average, so I pull Dragon.", "Dragon", 1],
    ["Dragon pays more on average, so I pull Dragon.", "Phoenix", 0.5],
    ["phoenix is better", "Phoenix", 0],
    ["Phoenix is safe but Dragon is risky; I choose Phoenix", "Phoenix", 1],
    ["Dragon is not better", "Dragon", 0],
    ["I will not pull Phoenix", "Dragon", null],
    ["Dragon might be better", "Dragon", null],
    ["pull Dragon", "Dragon", 1],
    ["both are birds", "Dragon", null],
  ])("%p, and %p is pulled: %p", (thought, pulled, share) => {
    expect(judge("Bandit", thought, pulled)).toBe(share);
  });

  test("may have names with any letters", () => {
    const { reasoning } = envTag("Bandit", { loArmName: "ähre", hiArmName: "öl++" });
    const observation = "1. There are 2 arms, named Öl++ and Ähre";
    const judged = (thought: string) => reasoning!({ thought, observation, actions: ["Öl++"] });
    expect([judged("Öl++ pays more, I pull öl++"), judged("Ähre is better"), judged("Ähren are better")]).toEqual([
      1,
      0,
      null,
    ]);
  });

  test("their names are those of the tag", () => {
    expect(judge("BanditRev", "Trader pays more", "Trader")).toBe(1);
    expect(judge("BanditTest", "Trader pays more", "Trader")).toBe(0);
  });
});

describe("a question", () => {
  const score = envTag("SearchQAMock").reasoning!;
  const judged = (thought: string, action: string) => score({ thought, observation: "", actions: [action] });
  test.each([
    ["12 * 3 = 36, so the answer is 36.", "finish[36]", 1],
    ["12 × 3 = 35, so the answer is 35.", "finish[35]", 0.5],
    ["10 / 3 = 3.33 and 2 / 3 = 0.66", "finish[3]", 0.5],
    ["$1,200 + 300 = 1,500", "finish[1500]", 1],
    ["The answer is Henry Platt.", "finish[henry platt]", 1],
    ["The answer is Henry Platt.", "finish[Ben]", 0],
    ["The answer is near.", "search[Ben Platt]", null],
    ["I search for Ben.", "search[Ben]", null],
    ["1 / 0 = 7", "finish[7]", null],
  ])("%p, and %p: %p", (thought, action, share) => {
    expect(judged(thought, action)).toBe(share);
  });

  test("is scored, however long its calculation is", () => {
    // In cubic time this thought would take hours, and the test would count as hung.
    expect(judged(`${"1 + ".repeat(10_000)}1`, "finish[7]")).toBe(null);
  });
});

describe("the shop", () => {
  const observation =
    "Page 1 [SEP] B07XYZ1234 [SEP] Red shoe [SEP] $19.99. You must choose from these actions:click[back to search], click[b07xyz1234], click[dark red], click[red], click[buy now].";
  const score = envTag("WebShop").reasoning!;
  const judged = (thought: string, action: string) => score({ thought, observation, actions: [action] });
  test.each([
    ["B07XYZ1234 costs $19.99, so I click B07XYZ1234", "click[b07xyz1234]", 1],
    ["B07XYZ1234 costs $15", "click[b07xyz1234]", 0.5],
    ["B000000000 fits", "click[b07xyz1234]", 0],
    ["a breathable background", "click[b07xyz1234]", null],
    ["I choose dark red", "click[red]", 0],
    ["I choose dark red", "click[dark red]", 1],
    ["It fits, buy it now", "click[buy now]", 1],
    ["I will not buy it yet, I go back", "click[back to search]", 1],
    ["I search for shoes", "click[red]", 0],
    ["a nice shoe", "click[red]", null],
  ])("%p, and %p: %p", (thought, action, share) => {
    expect(judged(thought, action)).toBe(share);
  });

  test("of a generated catalog has product ids too", () => {
    const page = observation.replaceAll("B07XYZ1234", "MU000LFLS3");
    const share = (thought: string) => score({ thought, observation: page, actions: ["click[red]"] });
    expect([share("MU000LFLS3 fits"), share("MU000LFLS4 fits")]).toEqual([1, 0]);
  });
});
