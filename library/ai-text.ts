/**
 * Converts calls of the Vercel AI SDK to text for a policy, and the policy's replies to content of the SDK.
 *
 * - The policy reads text only: a file or an image in a prompt is an error.
 * - The prompt lists the tools. An answer of the form `NAME {"argument": value}` calls one tool; `||` separates several calls.
 *   Any other answer is text. The SDK checks the arguments, and tells the policy which arguments are wrong.
 *
 * Source: ai-sdk.dev/providers/community-providers/custom-providers, specification v3, which versions 6 and 7 of `ai` take.
 */
import type { LanguageModel } from "ai";
import { parsedJson } from "../actors/checkpoint/json.ts";
import { ACTION_SEPARATOR } from "../envs/text/answer.ts";
import type { Message } from "../model/text/dialogue.ts";

export type Model = Extract<LanguageModel, { readonly specificationVersion: "v3" }>;
export type Call = Parameters<Model["doGenerate"]>[0];
export type Generated = Awaited<ReturnType<Model["doGenerate"]>>;
export type StreamPart = Awaited<ReturnType<Model["doStream"]>>["stream"] extends ReadableStream<infer P> ? P : never;
type Content = Generated["content"][number];
type SdkMessage = Call["prompt"][number];
type ToolResult = Extract<Extract<SdkMessage, { role: "tool" }>["content"][number], { type: "tool-result" }>;

type ReplyParts = ReturnType<typeof replyParts>;

const TOOL_HINT =
  'To call a tool, answer with its name and its arguments: NAME {"argument": value}. Any other answer ends the task.';

/** The tools that an answer may call. */
export const callable = ({ tools = [], toolChoice }: Call) =>
  toolChoice?.type === "none" ? [] : tools.filter((tool) => tool.type === "function");

/**
 * The tools that a call offers and the form of answer that the call asks for, as text. The text is empty if the call has neither tools nor a
 * form.
 */
export function requestText(call: Call): string {
  const { responseFormat } = call;
  const lines = callable(call).map(({ name, description, inputSchema }) => {
    const { $schema: _, type: __, additionalProperties: ___, ...schema } = inputSchema as Record<string, unknown>;
    return `${name}: ${description === undefined ? "" : `${description} `}${JSON.stringify(schema)}`;
  });
  const schema = responseFormat?.type === "json" ? responseFormat.schema : undefined;
  const ofSchema = schema === undefined ? "" : ` of this schema: ${JSON.stringify(schema)}`;
  const form = responseFormat?.type === "json" ? [`Answer with JSON${ofSchema}`] : [];
  return [...(lines.length === 0 ? [] : ["Tools:", ...lines, TOOL_HINT]), ...form].join("\n");
}

/** Text of a message that the policy has not written. @throws {TypeError} if the message has a part that is not text */
export function messageText(message: Exclude<SdkMessage, { role: "assistant" }>): string {
  switch (message.role) {
    case "system":
      return message.content;
    case "user":
      return message.content.map(textOf).join("");
    case "tool":
      return message.content.map((part) => `${textName(part)}: ${textOf(part)}`).join("\n");
    default:
      return message satisfies never;
  }
}

const textName = (part: { readonly type: string }) => (part as ToolResult).toolName;

function textOf(part: { readonly type: string }): string {
  if (part.type === "text") return (part as { readonly text?: string }).text!;
  if (part.type === "tool-result") {
    const { output } = part as ToolResult;
    if (output.type === "text" || output.type === "error-text") return output.value;
    if (output.type === "json" || output.type === "error-json") return JSON.stringify(output.value);
    if (output.type === "execution-denied") return `denied${output.reason === undefined ? "" : `: ${output.reason}`}`;
    return output.value.map(textOf).join("");
  }
  throw new TypeError(`a policy reads text only; the prompt has a part of type ${part.type}; leave it out`);
}

/** The dialogue of a call. @param think  true if replies have a thought */
export function messagesOf(call: Call, think: boolean): Message[] {
  const request = requestText(call);
  const said = call.prompt.map((message): Message => {
    if (message.role !== "assistant") {
      return { role: message.role === "system" ? "system" : "user", content: messageText(message) };
    }
    return { role: "assistant", content: replyText(message, think) };
  });
  if (request === "") return said;
  const [first, ...rest] = said;
  if (first?.role === "system") return [{ ...first, content: `${first.content}\n${request}` }, ...rest];
  return [{ role: "system", content: request }, ...said];
}

/** A message of the assistant in the form in which the policy writes a reply. */
function replyText({ content }: Extract<SdkMessage, { role: "assistant" }>, think: boolean): string {
  const thought = content.map((part) => (part.type === "reasoning" ? part.text : "")).join("");
  const answers = content.flatMap((part) => {
    if (part.type === "reasoning") return [];
    if (part.type === "tool-call") return `${part.toolName} ${JSON.stringify(part.input)}`;
    return textOf(part);
  });
  const answer = `<answer>${answers.join(` ${ACTION_SEPARATOR} `)}</answer>`;
  return think ? `<think>${thought}</think>${answer}` : answer;
}

/**
 * Thought and answer of a reply.
 *
 * @param isWhole  false while the policy still writes the reply: thought and answer are then incomplete
 */
export function replyParts(reply: string, isWhole: boolean) {
  // The end of an unfinished reply may be the beginning of a tag.
  const known = isWhole ? reply : reply.replace(/<[^>]{0,8}$/, "");
  const [opening = "", thought = ""] = /^<think>(.*?)(?:<\/think>|$)/s.exec(known) ?? [];
  const rest = known.slice(opening.length);
  const answer = /<answer>(.*?)(?:<\/answer>|$)/s.exec(rest)?.[1];
  return { thought, answer: (answer ?? (isWhole ? rest : "")).trim() };
}

const TOOL_CALL = /^([\w-]+)\s*(\{.*\})?$/s;

/** A reply as content of the SDK. @param nextId returns an id for the next call of a tool */
export function contentOf({ thought, answer }: ReplyParts, call: Call, nextId: () => string): Content[] {
  const names = new Set(callable(call).map(({ name }) => name));
  const content: Content[] = thought === "" ? [] : [{ type: "reasoning", text: thought }];
  const calls = callsIn(answer, names);
  if (calls === null) return [...content, { type: "text", text: answer }];
  const named = calls.map(([toolName, input]): Content => {
    return { type: "tool-call", toolCallId: nextId(), toolName, input };
  });
  return [...content, ...named];
}

/** Tool name and input of each call in the answer; null if the answer is not a list of calls. A `||` inside an input's JSON separates no calls. */
function callsIn(answer: string, names: ReadonlySet<string>): [name: string, input: string][] | null {
  const calls: [string, string][] = [];
  const pieces = answer.split(ACTION_SEPARATOR);
  let text = "";
  for (const [i, piece] of pieces.entries()) {
    text += piece;
    const [, name = "", input = "{}"] = TOOL_CALL.exec(text.trim()) ?? [];
    if (names.has(name) && (parsedJson(input) !== undefined || i === pieces.length - 1)) {
      calls.push([name, input]);
      text = "";
    } else text += ACTION_SEPARATOR;
  }
  return text === "" && calls.length > 0 ? calls : null;
}

/** `prompt` and `reply` are numbers of tokens; undefined if unknown. `cut` is true if the limit of tokens ended the reply. */
export function generated(
  content: Content[],
  call: Call,
  { prompt, reply, cut = false }: { readonly prompt?: number; readonly reply?: number; readonly cut?: boolean } = {},
): Generated {
  const isCall = content.some(({ type }) => type === "tool-call");
  return {
    content,
    finishReason: { unified: isCall ? "tool-calls" : cut ? "length" : "stop", raw: undefined },
    usage: {
      inputTokens: { total: prompt, noCache: prompt, cacheRead: undefined, cacheWrite: undefined },
      outputTokens: { total: reply, text: reply, reasoning: undefined },
    },
    warnings: warningsOf(call),
  };
}

/** A warning for each setting and tool of the call that a policy does not support. */
export function warningsOf(call: Call): Generated["warnings"] {
  const { tools = [], toolChoice, presencePenalty, frequencyPenalty } = call;
  const providers = tools.flatMap((tool) => (tool.type === "provider" ? `the provider's tool ${tool.id}` : []));
  const asked = {
    toolChoice: toolChoice?.type === "required" || toolChoice?.type === "tool",
    presencePenalty: (presencePenalty ?? 0) !== 0,
    frequencyPenalty: (frequencyPenalty ?? 0) !== 0,
  };
  const lacking = Object.entries(asked).flatMap(([feature, isAsked]) => (isAsked ? feature : []));
  return [...lacking, ...providers].map((feature) => ({ type: "unsupported", feature }));
}

/** The stream of a result that is already complete. */
export function streamOf({ content, finishReason, usage, warnings }: Generated): StreamPart[] {
  const parts = content.flatMap((part, i): StreamPart[] => {
    if (part.type !== "reasoning" && part.type !== "text") return [part as StreamPart];
    const id = String(i);
    const { type, text: delta } = part;
    return [
      { type: `${type}-start`, id },
      { type: `${type}-delta`, id, delta },
      { type: `${type}-end`, id },
    ];
  });
  return [{ type: "stream-start", warnings }, ...parts, { type: "finish", finishReason, usage }];
}
