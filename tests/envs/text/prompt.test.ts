import { describe, expect, test } from "bun:test";
import { envTag } from "../../../envs/registry.ts";
import type { EnvTag } from "../../../envs/tag.ts";
import { type AnsweredTurn, type ContextOptions, contextMessages } from "../../../envs/text/context.ts";
import { plainNumber, pythonFloat } from "../../../envs/text/numbers.ts";
import { type Layout, nextPrompt, type PromptOptions } from "../../../envs/text/prompt.ts";

const sokoban = envTag("SimpleSokoban");
const BOARD = "######\n#_OXP#\n#____#\n#____#\n#____#\n######";
const played = {
  turn: 2,
  observation: BOARD,
  reward: -0.30000000000000004,
  actions: ["Up"],
  actionsLeft: 7,
  noValidAction: false,
};
/** The messages before the first reply of an episode with 10 actions. */
const firstPrompt = (tag: EnvTag, layout: Layout, observation: string, options: PromptOptions = {}) =>
  contextMessages(
    tag,
    { answered: [], now: { observation, actionsLeft: 10 } },
    { ...options, layout, mode: "full", window: null },
  );
const content = (messages: readonly { content: string }[]) => messages.map((message) => message.content);

describe("compact", () => {
  test("says how many actions are left and what changes, first and later", () => {
    expect(firstPrompt(sokoban, "compact", BOARD)).toEqual([{ role: "user", content: "10 left _OXP____________" }]);
    expect(content(nextPrompt(sokoban, "compact", played))).toEqual(["7 left _OXP____________"]);
  });
});

describe("ragen-v1", () => {
  test("greets, explains and asks for the first turn", () => {
    const [system, user] = content(firstPrompt(sokoban, "ragen-v1", BOARD));
    expect(system).toBe("You're a helpful assistant. ");
    expect(user).toStartWith("You are solving the Sokoban puzzle. ");
    expect(user).toEndWith(
      `You can make up to 10 actions, separated by the action separator " || "\n\nTurn 1:\nState:\n${BOARD}\nYou have 10 actions left. Always output: <think> [Your thoughts] </think> <answer> [your answer] </answer> with no extra text. Strictly follow this format. Max response length: 100 words (tokens).\n`,
    );
  });

  test("prints rewards as Python does where RAGEN is reproduced, and readably where not", () => {
    const rewardLine = (turn: typeof played, compat: boolean) =>
      content(nextPrompt(sokoban, "ragen-v1", turn, { compat }))[0]!.split("\n")[1];
    expect(rewardLine(played, true)).toBe("-0.30000000000000004");
    expect(rewardLine(played, false)).toBe("-0.3");
    expect(rewardLine({ ...played, reward: 0, actions: [] }, true)).toBe("0");
    expect(rewardLine({ ...played, reward: 1 }, true)).toBe("1.0");
    expect(
      content(nextPrompt(envTag("FrozenLake"), "ragen-v1", { ...played, reward: 1 }, { compat: true }))[0],
    ).toStartWith("Reward:\n1\n");
  });

  test("names the board's own symbols, which RAGEN does not", () => {
    const tag = envTag("SokobanDifferentGridVocab");
    const told = (compat: boolean) => content(firstPrompt(tag, "ragen-v1", "", { compat }))[1];
    expect(told(false)).toContain(
      "W: wall, .: empty, G: target, C: box on target, B: box, A: player, @: player on target",
    );
    expect(told(true)).toContain(
      "#: wall, _: empty, O: target, √: box on target, X: box, P: player, S: player on target",
    );
  });

  test("explains coordinates where there are no symbols", () => {
    const tag = envTag("CoordSokoban", { observationFormat: "coord" });
    const told = content(firstPrompt(tag, "ragen-v2", ""))[0]!;
    expect(told).toContain("States are provided as coordinate lists");
    expect(told).not.toContain("The meaning of each symbol");
  });
});

describe("ragen-v2", () => {
  test("explains in the system message, and says that nothing could be read", () => {
    const [system, user] = content(firstPrompt(sokoban, "ragen-v2", BOARD, { think: false }));
    expect(system).toStartWith("You're a helpful assistant. You are solving the Sokoban puzzle. \n");
    expect(user).toStartWith("\nTurn 1:\nState:\n######");
    expect(user).toContain("Always output: <answer> [your answer] </answer> with");
    const answered = [{ observation: BOARD, actionsLeft: 7, reply: "", reward: 0, actions: [] }];
    const history = { answered, now: { observation: BOARD, actionsLeft: 7 } };
    const next = content(contextMessages(sokoban, history, { layout: "ragen-v2", mode: "full", window: null })).at(-1)!;
    expect(next).toStartWith("Reward:\n0\n\nTurn 2:\nState:\n######");
    expect(next).toContain(
      "\nNo valid action provided previously. Environment state remains the same. Please try again.\nYou have 7",
    );
  });

  test("has the right corner where RAGEN's is another board's", () => {
    const corner = (compat: boolean) => content(firstPrompt(envTag("CoordFrozenLake"), "ragen-v2", "", { compat }))[0];
    expect(corner(true)).toContain("bottom-right corner (5, 5).");
    expect(corner(false)).toContain("bottom-right corner (3, 3).");
  });
});

describe("contextMessages", () => {
  const turn = (n: number): AnsweredTurn => ({
    observation: `S${n}`,
    actionsLeft: 11 - n,
    reply: `R${n}`,
    reward: -0.1,
    actions: ["Up"],
  });
  const history = { answered: [turn(1), turn(2), turn(3)], now: { observation: "S4", actionsLeft: 7 } };
  const full: ContextOptions = { layout: "ragen-v1", mode: "full", window: null };

  test("appends what nextPrompt says to the first prompt, with the replies in between", () => {
    for (const layout of ["ragen-v1", "ragen-v2"] as const) {
      const appended = [
        ...firstPrompt(sokoban, layout, "S1"),
        ...[1, 2, 3].flatMap((n) => [
          { role: "assistant" as const, content: `R${n}` },
          ...nextPrompt(sokoban, layout, {
            turn: n + 1,
            observation: `S${n + 1}`,
            reward: -0.1,
            actions: ["Up"],
            actionsLeft: 10 - n,
            noValidAction: false,
          }),
        ]),
      ];
      expect(contextMessages(sokoban, history, { ...full, layout })).toEqual(appended);
    }
  });

  test("shows the last turns only, and forgets no number", () => {
    const messages = contextMessages(sokoban, history, { ...full, mode: "limited_multi_turn", window: 2 });
    expect(messages.map(({ role }) => role)).toEqual(["system", "user", "assistant", "user"]);
    expect(messages[1]!.content).toContain("\nTurn 3:\nState:\nS3");
    expect(messages[3]!.content).toContain("\nTurn 4:\nState:\nS4");
  });

  test("sums up the last turns in one message", () => {
    const options: ContextOptions = { layout: "ragen-v2", mode: "single_turn", window: 3 };
    const [, user] = content(contextMessages(sokoban, history, options));
    expect(user).toStartWith("Summary: 3 step(s) completed so far. Showing the last 2 turn(s)");
    expect(user).toContain("Turn 2 State:\nS2\nTurn 2 Action: R2\nTurn 2 Reward: -0.1\n---\nTurn 3 State:");
    expect(user).toContain("\nCurrent Turn (Turn 4):\nState:\nS4\nYou have 7 actions left.");
  });

  test("ends a finished dialogue with the last reply, and leaves the history as it was", () => {
    const before = structuredClone(history);
    const messages = contextMessages(sokoban, { ...history, now: null }, { ...full, window: 1 });
    expect(messages.at(-1)).toEqual({ role: "assistant", content: "R3" });
    expect(history).toEqual(before);
  });

  test.each([
    [{ ...full, window: 0 }, history, "context window must be null (all turns) or at least 1, got 0"],
    [full, { answered: [], now: null }, "a dialogue needs at least one turn, found none"],
    [
      { ...full, mode: "single_turn" as const },
      history,
      "single_turn is a context of compact and ragen-v2; got ragen-v1",
    ],
  ])("refuses %j", (options, given, message) => {
    expect(() => contextMessages(sokoban, given, options)).toThrow(message);
  });
});

test.each([
  [1, "1.0"],
  [-0.1, "-0.1"],
  [10.9, "10.9"],
  [0, "0.0"],
  [-0, "-0.0"],
  [1e-5, "1e-05"],
  [0.0001, "0.0001"],
  [1e16, "1e+16"],
  [123456789012345, "123456789012345.0"],
  [1.5e-7, "1.5e-07"],
])("pythonFloat prints %p as str does in Python", (value, text) => {
  expect(pythonFloat(value)).toBe(text);
});

test("plainNumber rounds to four decimals and has no negative zero", () => {
  expect([0.1 + 0.2, -0.00001, 10.9, -1.1].map(plainNumber)).toEqual(["0.3", "0", "10.9", "-1.1"]);
});
