/** What RAGEN's recorded memory (tests/golden) does not reach. */
import { describe, expect, test } from "bun:test";
import { alfworldMemory } from "../../../envs/text/alfworld-memory.ts";

const turn = (observation: string, reply: string) => ({ observation, reply });
const linesOf = (answered: ReturnType<typeof turn>[], observation: string, from = 0) => {
  const now = { observation, actionsLeft: 9, noValidAction: false };
  return alfworldMemory(answered, now, { from, replyWordsHint: 512, think: true }).split("\n");
};

describe("ALFWorld's memory", () => {
  test("shows turns from the given one on, by their numbers; the task is the first turn's", () => {
    const answered = ["Your task is to: sit.", "two", "three"].map((text) => turn(text, `<answer>${text}</answer>`));
    const lines = linesOf(answered, "four", 1);
    expect(lines.slice(0, 6)).toEqual([
      "Your task is to: sit.",
      "Prior to this step, you have already taken 3 step(s).",
      "Below are the most recent 2 observations and the corresponding actions you took:",
      "[Observation 2: 'two', Action 2: 'two']",
      "[Observation 3: 'three', Action 3: 'three']",
      "You are now at step 4 and your current observation is: four",
    ]);
  });

  test("cuts former observations to 200 characters, and not the current one", () => {
    const [whole, long] = ["a".repeat(200), "b".repeat(201)];
    const lines = linesOf([turn(whole, ""), turn(long, "")], long);
    expect(lines[3]).toBe(`[Observation 1: '${whole}', Action 1: '']`);
    expect(lines[4]).toBe(`[Observation 2: '${"b".repeat(197)}...', Action 2: '']`);
    expect(lines[5]).toEndWith(`: ${long}`);
  });

  test("leaves out empty lines, spaces at ends of lines and of answers; a reply without an answer is its own action", () => {
    const answered = [turn("  You wait. \n\n Nothing. ", " look around "), turn("x", "<answer> go </answer>")];
    const lines = linesOf(answered, "y");
    expect(lines.slice(3, 6)).toEqual([
      "[Observation 1: 'You wait.",
      "Nothing.', Action 1: 'look around']",
      "[Observation 2: 'x', Action 2: 'go']",
    ]);
  });

  test("has an empty task and list of actions where the env names none", () => {
    const lines = linesOf([], "You wait.");
    expect(lines[0]).toBe("Your task is to: .");
    expect(lines[2]).toBe("Your admissible actions of the current situation are: []");
  });
});
