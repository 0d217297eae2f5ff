/** Which tokens the loss is on, worked by hand on ChatML; RAGEN's own numbers are in golden case H8. */
import { describe, expect, test } from "bun:test";
import { lossMask } from "../../../model/learn/loss-mask.ts";
import { builtinDialogue } from "../../../model/text/chat.ts";

const START = 1;
const SYSTEM = 7;
const marks = { messageStart: START, system: [SYSTEM], beforeReplies: true };
/** S: turn start, E: turn end, s u a: roles, x: text, w: written by the policy, n: a line break behind a turn end. */
const WORDS: Record<string, number> = { S: START, E: 2, s: SYSTEM, u: 8, a: 9, x: 10, w: 11, n: 12, W: START };

/** `|` begins a context; W is a turn-start token that the policy sampled. */
function trajectory(text: string) {
  const words = [...text.replaceAll("|", "")];
  const contexts = [0, ...[...text.matchAll(/\|/g)].map(({ index }, i) => index - i)];
  const written = words.map((word, i) => Number(/[wW]/.test(word) || (word === "E" && words[i - 1] === "w")));
  return { tokens: Int32Array.from(words, (word) => WORDS[word]!), written: Uint8Array.from(written), contexts };
}
const masked = (text: string, turns: "assistant" | "all") => {
  const mask = lossMask(trajectory(text), { turns, marks });
  const words = [...text.replaceAll("|", "")];
  return words.map((word, i) => (mask[i] === 1 ? word : ".")).join("");
};

describe("assistant turns", () => {
  test.each([
    // A role, a reply with its end, the line break behind it, and the next turn's start.
    ["SsxEnSuxEnSawwEnSuxEnSawE", "...........awwEnS.....awE"],
    ["SuxEnSawEnSux", "......awEnS.."],
    // A reply that an earlier context has trained.
    ["SsxESuxESawE|SsxESuxESaxxESuxESawE", ".........awE..................awE"],
    ["SuxESaWwESux", ".....aWwES.."],
  ])("of %p are %p", (text, expected) => expect(masked(text, "assistant")).toBe(expected));
});

describe("everything", () => {
  test.each([
    ["SsxEnSuxEnSawwEnSuxE", "......uxEnSawwEnSuxE"],
    ["SuxEnSawE|SsxESux", ".uxEnSawE.....ux"],
    ["SuxESawE", ".uxESawE"],
  ])("of %p is %p: the system message and a context's first token are left out", (text, expected) =>
    expect(masked(text, "all")).toBe(expected),
  );

  test("of the built-in policy's prompts leaves the system message out too", () => {
    const { promptTokens, roleMarks } = builtinDialogue();
    const user = { role: "user", content: "_#" } as const;
    const prompt = (messages: Parameters<typeof promptTokens>[0]) =>
      promptTokens(messages, { first: true, prefix: "<think>" });
    const system = prompt([{ role: "system", content: "O" }, user]);
    const alone = prompt([user]);
    const count = (tokens: number[]) => {
      const made = { tokens: Int32Array.from(tokens), written: new Uint8Array(tokens.length), contexts: [0] };
      return lossMask(made, { turns: "all", marks: roleMarks }).reduce((sum, one) => sum + one, 0);
    };
    expect([count(system), count(alone)]).toEqual([alone.length - 1, alone.length - 1]);
  });
});

test("replies are the tokens that the policy wrote", () => {
  const made = trajectory("SuxESawESuxESawwE");
  expect(lossMask(made, "replies")).toBe(made.written);
});
