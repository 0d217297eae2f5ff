import { describe, expect, test } from "bun:test";
import { ragenMask, ragenScores } from "../../model/mask.ts";

const chat = { turnStart: 1, turnEnd: 2 };
const [PAD, NEWLINE, ROLE, WORD] = [0, 3, 4, 5];
const turn = [1, ROLE, NEWLINE, WORD, 2, NEWLINE];
// Padding, then system, user, assistant, user, assistant.
const tokens = Int32Array.from([PAD, PAD, ...turn, ...turn, ...turn, ...turn, ...turn]);

describe("ragenMask", () => {
  test("trains from each reply's role header to the start of the next turn", () => {
    const mask = ragenMask(tokens, chat, "replies");
    const targets = [...mask.keys()].filter((t) => mask[t]).map((t) => t + 1);
    // Assistant turns begin at 14 and 26: their targets begin one later, and the first one's end at the next start, 20.
    expect(targets).toEqual([15, 16, 17, 18, 19, 20, 27, 28, 29, 30, 31]);
    expect(tokens[20]).toBe(1);
  });

  test("or everything behind the system turn", () => {
    const mask = ragenMask(tokens, chat, "all");
    expect(mask.indexOf(1)).toBe(8);
    expect(mask.reduce((sum, one) => sum + one, 0)).toBe(tokens.length - 1 - 8);
  });

  test("trains nothing in a chat without a reply", () => {
    expect(ragenMask(Int32Array.from([...turn, ...turn]), chat, "replies").includes(1)).toBe(false);
  });
});

describe("ragenScores", () => {
  test("puts each turn's reward behind its turn-end token, or the sum on the last column", () => {
    const scores = ragenScores(tokens, chat, [-0.5, 2], "turns");
    const placed = [...scores.keys()].filter((t) => scores[t] !== 0).map((t) => [t + 1, tokens[t + 1], scores[t]]);
    expect(placed).toEqual([
      [19, NEWLINE, -0.5],
      [31, NEWLINE, 2],
    ]);
    expect(ragenScores(tokens, chat, [-0.5, 2], "end").at(-1)).toBe(1.5);
  });

  test("as RAGEN, loses the reward of a turn that was cut away", () => {
    const cut = tokens.subarray(0, 20);
    expect([...ragenScores(cut, chat, [-0.5, 2], "turns")].filter((score) => score !== 0)).toEqual([-0.5]);
  });
});
