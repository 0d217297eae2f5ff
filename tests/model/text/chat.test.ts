import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { builtinDialogue } from "../../../model/text/chat.ts";
import type { Message, PromptOptions } from "../../../model/text/dialogue.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";

const tokenizer = new Tokenizer();
const dialogue = builtinDialogue(tokenizer);
const user = (content: string): Message => ({ role: "user", content });
const end = tokenizer.id("<|im_end|>");

describe("promptTokens", () => {
  test("lays out an episode of two turns, token by token", () => {
    const reply = dialogue.replyTokens("<think>go Up</think><answer>Up</answer>", "<think>");
    const episode = [
      ...dialogue.promptTokens([user("P_G")], { first: true, prefix: "<think>" }),
      ...reply,
      ...dialogue.promptTokens([user("_√")], { first: false, prefix: "<think>" }),
    ];
    expect(episode.map((id) => tokenizer.decode([id]))).toEqual([
      "<|im_start|>",
      "P",
      "_",
      "G",
      "<|im_end|>",
      "<think>",
      "go",
      " Up",
      "</think>",
      "<answer>",
      "Up",
      "</answer>",
      "<|im_end|>",
      "<|im_start|>",
      "_",
      "√",
      "<|im_end|>",
      "<think>",
    ]);
  });

  test("closes a reply that was cut", () => {
    const options = { first: false, prefix: "<answer>" } as const;
    const whole = dialogue.promptTokens([user("P")], options);
    expect(dialogue.promptTokens([user("P")], { ...options, cut: true })).toEqual([end, ...whole]);
  });

  test("puts a system message with its role before the first observation", () => {
    const rules: Message = { role: "system", content: "go" };
    const ids = dialogue.promptTokens([rules, user("P")], { first: true, prefix: "<answer>" });
    expect(tokenizer.decode(ids)).toBe("<|im_start|>system\ngo<|im_end|><|im_start|>P<|im_end|><answer>");
  });

  test("starts and ends each message once, whatever the observation says", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme" }), { minLength: 1 }), (contents) => {
        const texts = contents.flatMap((content) => [`${content}<|im_end|>`, content]);
        const ids = dialogue.promptTokens(texts.map(user), { first: true, prefix: "<think>" });
        expect(ids.filter((id) => id === end)).toHaveLength(texts.length);
        expect(ids.filter((id) => id === tokenizer.id("<|im_start|>"))).toHaveLength(texts.length);
      }),
    );
  });

  const later = { first: false, prefix: "<think>" } as const;
  test.each<[string, Message[], PromptOptions, string]>([
    ["no message", [], later, "a prompt needs at least one message, found none"],
    [
      "an assistant message",
      [{ role: "assistant", content: "hi" }],
      later,
      "a prompt has no assistant messages, found one",
    ],
    ["a late system message", [{ role: "system", content: "hi" }], later, "must be in the first prompt"],
    ["a cut before the beginning", [user("hi")], { ...later, first: true, cut: true }, "follows no reply"],
  ])("refuses %s", (_, messages, options, message) => {
    expect(() => dialogue.promptTokens(messages, options)).toThrow(message);
  });
});

describe("replyTokens and replyText", () => {
  test("give back the reply that an env reads", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: "grapheme" }),
        fc.constantFrom("<think>" as const, "<answer>" as const),
        (rest, prefix) => {
          const ids = dialogue.replyTokens(prefix + rest, prefix);
          expect(dialogue.replyText(ids, prefix)).toBe(prefix + rest);
          expect(dialogue.replyText(ids.slice(0, -1), prefix)).toBe(prefix + rest);
          expect(dialogue.replyText(Int32Array.from(ids), prefix)).toBe(prefix + rest);
        },
      ),
    );
  });

  test("refuse a reply without its prefix", () => {
    expect(() => dialogue.replyTokens("<answer>Up</answer>", "<think>")).toThrow(
      'a reply must begin with <think>, found "<answer>Up</answer>"',
    );
  });
});
