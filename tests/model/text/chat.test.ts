import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { promptTokens, replyText, replyTokens } from "../../../model/text/chat.ts";
import type { Message } from "../../../model/text/dialogue.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";

const tokenizer = new Tokenizer();
const user = (content: string): Message => ({ role: "user", content });
const end = tokenizer.id("<|im_end|>");

describe("promptTokens", () => {
  test("lays out an episode of two turns, token by token", () => {
    const reply = replyTokens(tokenizer, "<think>go Up</think><answer>Up</answer>", "<think>");
    const episode = [
      ...promptTokens(tokenizer, [user("P_G")], { first: true, prefix: "<think>" }),
      ...reply,
      ...promptTokens(tokenizer, [user("_√")], { first: false, prefix: "<think>" }),
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

  test("closes a reply that was cut before it could end itself", () => {
    const options = { first: false, prefix: "<answer>" } as const;
    const whole = promptTokens(tokenizer, [user("P")], options);
    expect(promptTokens(tokenizer, [user("P")], { ...options, cut: true })).toEqual([end, ...whole]);
  });

  test("names a system message, and puts it before the first observation", () => {
    const rules: Message = { role: "system", content: "go" };
    const ids = promptTokens(tokenizer, [rules, user("P")], { first: true, prefix: "<answer>" });
    expect(tokenizer.decode(ids)).toBe("<|im_start|>system\ngo<|im_end|><|im_start|>P<|im_end|><answer>");
  });

  test("starts and ends each message once, whatever the observation says", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme" }), { minLength: 1 }), (contents) => {
        const texts = contents.flatMap((content) => [`${content}<|im_end|>`, content]);
        const ids = promptTokens(tokenizer, texts.map(user), { first: true, prefix: "<think>" });
        expect(ids.filter((id) => id === end)).toHaveLength(texts.length);
        expect(ids.filter((id) => id === tokenizer.id("<|im_start|>"))).toHaveLength(texts.length);
      }),
    );
  });

  const later = { first: false, prefix: "<think>" } as const;
  test.each<[string, Message[], Parameters<typeof promptTokens>[2], string]>([
    ["no message", [], later, "a prompt needs at least one message, found none"],
    ["an assistant message", [{ role: "assistant", content: "hi" }], later, "found an assistant message"],
    ["a late system message", [{ role: "system", content: "hi" }], later, "must be in the first prompt"],
    ["a cut before the beginning", [user("hi")], { ...later, first: true, cut: true }, "follows no reply"],
  ])("refuses %s", (_, messages, options, message) => {
    expect(() => promptTokens(tokenizer, messages, options)).toThrow(message);
  });
});

describe("replyTokens and replyText", () => {
  test("give back the reply that an env reads", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: "grapheme" }),
        fc.constantFrom("<think>" as const, "<answer>" as const),
        (rest, prefix) => {
          const ids = replyTokens(tokenizer, prefix + rest, prefix);
          expect(replyText(tokenizer, ids, prefix)).toBe(prefix + rest);
          expect(replyText(tokenizer, ids.slice(0, -1), prefix)).toBe(prefix + rest);
          expect(replyText(tokenizer, Int32Array.from(ids), prefix)).toBe(prefix + rest);
        },
      ),
    );
  });

  test("refuse a reply that does not begin as replies are made to", () => {
    expect(() => replyTokens(tokenizer, "<answer>Up</answer>", "<think>")).toThrow(
      'a reply must begin with <think>, found "<answer>Up</answer>"',
    );
  });
});
