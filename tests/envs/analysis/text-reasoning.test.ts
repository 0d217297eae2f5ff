/** Thoughts about bandits, questions and the shop, judged by hand. */
import { describe, expect, test } from "bun:test";
import { envTag } from "../../../envs/registry.ts";
import { openLocal } from "../../../envs/tag.ts";

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
    ["I choose dark red", "click[red]", 0],
    ["I choose dark red", "click[dark red]", 1],
    ["It fits, buy it now", "click[buy now]", 1],
    ["I will not buy it yet, I go back", "click[back to search]", 1],
    ["I search for shoes", "click[red]", 0],
    ["a nice shoe", "click[red]", null],
  ])("%p, and %p: %p", (thought, action, share) => {
    expect(judged(thought, action)).toBe(share);
  });
});
