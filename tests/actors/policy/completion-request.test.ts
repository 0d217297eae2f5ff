/** Requests for completions, as `askedOf` checks them; tests/scripts/serve.test.ts has the answers to bad requests. */
import { expect, test } from "bun:test";
import { askedOf } from "../../../actors/policy/completion-request.ts";

const messages = [{ role: "user", content: "hello" }];
const chat = (more: object) => askedOf("chat", { model: "m", messages, ...more });

test("a reply may come back as the server sent it", () => {
  const reply = { role: "assistant", content: "<think></think><answer>Up</answer>", refusal: null };
  const { messages: read } = chat({ messages: [...messages, reply, ...messages] });
  expect(read[1]).toEqual({ role: "assistant", content: reply.content });
  expect(() => chat({ messages: [{ ...reply, refusal: "no" }] })).toThrow("messages.0.refusal must be of type null");
});

test("a limit of tokens may have its old or its new name", () => {
  expect(chat({}).tokensMax).toBeNull();
  expect(chat({ max_tokens: 5 }).tokensMax).toBe(5);
  expect(chat({ max_completion_tokens: 6, max_tokens: null }).tokensMax).toBe(6);
  expect(chat({ max_completion_tokens: 7, max_tokens: 7 }).tokensMax).toBe(7);
});

test("two different limits of tokens are refused", () => {
  expect(() => chat({ max_completion_tokens: 6, max_tokens: 5 })).toThrow(
    "max_tokens is 5, and max_completion_tokens is 6; leave one of them out",
  );
});
