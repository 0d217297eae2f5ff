/** Calls of the AI SDK as text, and replies as its content. */
import { expect, test } from "bun:test";
import { type Call, contentOf, messagesOf, replyParts, warningsOf } from "../../library/ai-text.ts";

const add = { type: "function", name: "add", description: "Adds.", inputSchema: { type: "object" } } as const;
const call: Call = {
  prompt: [
    { role: "system", content: "Be exact." },
    { role: "user", content: [{ type: "text", text: "1 + 1?" }] },
    {
      role: "assistant",
      content: [
        { type: "reasoning", text: " a sum" },
        { type: "tool-call", toolCallId: "1", toolName: "add", input: { a: 1, b: 1 } },
        { type: "tool-call", toolCallId: "2", toolName: "add", input: { a: 2 } },
      ],
    },
    {
      role: "tool",
      content: [
        { type: "tool-result", toolCallId: "1", toolName: "add", output: { type: "json", value: { sum: 2 } } },
        { type: "tool-result", toolCallId: "2", toolName: "add", output: { type: "error-text", value: "no b" } },
      ],
    },
  ],
  tools: [add],
};

test("tools follow the system message, calls and results are in the dialogue", () => {
  const [system, ...said] = messagesOf(call, true);
  expect(system!.content).toStartWith("Be exact.\nTools:\nadd: Adds. {}\nTo call a tool, answer ");
  expect(said).toEqual([
    { role: "user", content: "1 + 1?" },
    { role: "assistant", content: '<think> a sum</think><answer>add {"a":1,"b":1} || add {"a":2}</answer>' },
    { role: "user", content: 'add: {"sum":2}\nadd: no b' },
  ]);
  expect(messagesOf({ ...call, toolChoice: { type: "none" } }, false)[0]!.content).toBe("Be exact.");
});

test("a tool that only a provider can run is in no prompt, and a warning names it", () => {
  const web = { type: "provider", id: "openai.web_search", name: "web_search", args: {} } as const;
  const both: Call = { ...call, tools: [add, web] };
  expect(messagesOf(both, true)).toEqual(messagesOf(call, true));
  expect(warningsOf(both)).toEqual([{ type: "unsupported", feature: "the provider's tool openai.web_search" }]);
  expect(contentOf({ thought: "", answer: "web_search" }, both, () => "1")).toEqual([
    { type: "text", text: "web_search" },
  ]);
  expect(warningsOf(call)).toEqual([]);
});

test("a call that asks for JSON says of which schema, if it names one", () => {
  const request = (schema?: object) =>
    messagesOf({ prompt: [], responseFormat: { type: "json", schema } } as Call, true);
  expect(request({ type: "array" })[0]!.content).toBe('Answer with JSON of this schema: {"type":"array"}');
  expect(request()[0]!.content).toBe("Answer with JSON");
});

test("an answer is text, or calls of tools that the call has", () => {
  const made = (answer: string) => {
    let count = 0;
    return contentOf({ thought: "", answer }, call, () => `${++count}`);
  };
  const toolCall = (toolCallId: string, input: string) => ({ type: "tool-call", toolCallId, toolName: "add", input });
  expect(made('add {"a": 1} || add')).toEqual([toolCall("1", '{"a": 1}'), toolCall("2", "{}")] as never);
  expect(made('add {"a": "||"} || add {"a": 2}')).toEqual([
    toolCall("1", '{"a": "||"}'),
    toolCall("2", '{"a": 2}'),
  ] as never);
  expect(made('add {"a": "}||{"} || add')).toEqual([toolCall("1", '{"a": "}||{"}'), toolCall("2", "{}")] as never);
  // The agent's error reaches the policy.
  expect(made("add {a}")).toEqual([toolCall("1", "{a}")] as never);
  for (const text of ["2", 'sub {"a": 1}', 'add {"a": 1} || 2', "add 1 and 1", ""]) {
    expect(made(text)).toEqual([{ type: "text", text }]);
  }
  const without: Call = { ...call, toolChoice: { type: "none" } };
  expect(contentOf({ thought: "", answer: "add" }, without, () => "1")).toEqual([{ type: "text", text: "add" }]);
});

test("while a reply is written, its thought and its answer only grow", () => {
  const reply = "<think> so\n<b</think> <answer> 1 < 2 </answer>";
  let before = { thought: "", answer: "" };
  for (let length = 0; length <= reply.length; length++) {
    const now = replyParts(reply.slice(0, length), false);
    expect(now.thought).toStartWith(before.thought);
    expect(now.answer).toStartWith(before.answer);
    before = now;
  }
  expect(replyParts(reply, true)).toEqual({ thought: " so\n<b", answer: "1 < 2" });
  expect(replyParts("<think>cut", true)).toEqual({ thought: "cut", answer: "" });
  expect(replyParts("<think>a</think> plain", false)).toEqual({ thought: "a", answer: "" });
  expect(replyParts("<think>a</think> plain", true)).toEqual({ thought: "a", answer: "plain" });
});
