/**
 * `bunraku/ai` turns a policy into a language model of the Vercel AI SDK, and an agent that is written with the SDK into an env.
 *
 * - This module imports only types from `ai`, so the caller's version of `ai` runs. A process that loads this module for an env loads no engine.
 * - In training, the run's settings (temperature, length) apply. The settings of an agent's calls do not apply.
 */
import type { LanguageModel } from "ai";
import { episodeRules, tagOf } from "../actors/play/envs-of-run.ts";
import { linesOf } from "../actors/process/lines.ts";
import type { Seeds } from "../envs/env.ts";
import { AgentGame, type AgentResult, type AskPolicy } from "../envs/outside/agent-game.ts";
import type { TagSource } from "../envs/tag.ts";
import { parseReply, shownReply } from "../envs/text/answer.ts";
import { type AnsweredTurn, contextMessages } from "../envs/text/context.ts";
import {
  type Call,
  callable,
  contentOf,
  type Generated,
  generated,
  type Model,
  messagesOf,
  messageText,
  replyParts,
  requestText,
  type StreamPart,
  streamOf,
  warningsOf,
} from "./ai-text.ts";
import { defineEnv, type EnvDefinition, type PlayerOf } from "./env.ts";
import type { Completion, Policy } from "./policy.ts";

export type { AgentGame, AgentResult } from "../envs/outside/agent-game.ts";

export interface BunrakuOptions {
  /**
   * Tag of an env that the policy was trained on. With a tag, prompts have the form of that env, and the model plays one episode: it keeps
   * the dialogue of its calls. A call fails after the episode has used up its budgets. The policy's temperature and limit of tokens apply, and
   * not those of the calls. Without a tag, each call is a separate dialogue.
   */
  readonly env?: string;
}

/**
 * A policy as a language model for generateText and streamText.
 *
 * @throws {TagError} if the run has no env of this tag
 */
export function bunraku(policy: Policy, { env }: BunrakuOptions = {}): LanguageModel {
  if (env !== undefined) return abortable(agentModel(policy.name, episodeOf(policy, env)));
  const { think } = policy.config.env;
  const nextId = callNames();
  const complete = (call: Call, stream: boolean) => {
    const { temperature, topP, topK, seed, maxOutputTokens, stopSequences, abortSignal } = call;
    const body = {
      messages: messagesOf(call, think),
      temperature,
      top_p: topP,
      top_k: topK,
      seed,
      max_tokens: maxOutputTokens,
      stop: stopSequences?.length === 0 ? undefined : stopSequences,
      stream,
      ...(stream && { stream_options: { include_usage: true } }),
    };
    return policy.complete(body, abortSignal);
  };
  const whole = model(
    policy.name,
    async (call) => {
      const { error, choices, usage } = (await (await complete(call, false)).json()) as Completion;
      if (error !== undefined) throw new Error(`no reply: ${error.message}`);
      const { message, finish_reason: finish } = choices[0]!;
      return generated(contentOf(replyParts(message!.content, true), call, nextId), call, tokensOf(usage, finish));
    },
    async (call) => streamed(await complete(call, true), call, nextId),
  );
  return abortable(whole);
}

/** An agent as an env. C: the env's options. Task: what the agent works on. */
export interface AgentDefinition<C extends Record<string, unknown>, Task>
  extends Omit<EnvDefinition<C, AgentGame<Task>>, "open" | "actions" | "external" | "browser" | "random" | "best"> {
  /** Maximum number of calls to the model in an episode. */
  readonly actionsMax: number;
  /** Returns the task of the agent. Equal options and layout seeds give equal tasks. */
  task(options: C, seeds: Seeds): Task;
  /**
   * Runs the agent. In two episodes with equal tasks and equal replies, the agent must send equal prompts. An error that the agent throws fails
   * the episode.
   *
   * @param model  each call is a turn of the policy in training
   * @param signal  the env aborts this signal when the episode is over
   * @returns the reward of the episode, and whether the task is solved. A number alone is the reward; a positive reward counts as solved
   */
  agent(model: LanguageModel, task: Task, signal: AbortSignal): Promise<number | AgentResult>;
  /**
   * The random player. Every report compares the policy with it. It returns answers in the form in which the model writes them: `add {"a": 1,
   * "b": 2}`.
   */
  readonly random: PlayerOf<AgentGame<Task>>;
}

/**
 * An env whose game is an agent. Each call to the model gives an observation. The observation is what the call adds to the previous call:
 * messages and results of tools. If a call does not continue the previous call, the observation has all messages of the call except the
 * assistant's. The list of tools is part of the first observation. It comes again if the list changes, or if a call does not continue the
 * previous call.
 *
 * @throws {TypeError} if the tag is not a valid name.
 */
export function agentEnv<Task, C extends Record<string, unknown> = Record<string, never>>(
  env: AgentDefinition<C, Task>,
): TagSource {
  const { task, agent, ...definition } = env;
  return defineEnv<AgentGame<Task>, C>({
    // A call is a turn.
    turnsMax: definition.actionsMax,
    ...definition,
    external: true,
    browser: false,
    open(options, seeds) {
      const given = task(options, seeds);
      return new AgentGame(given, async (ask, signal) => {
        return resultOf(env.tag, await agent(agentModel(env.tag, ask), given, signal));
      });
    },
  });
}

/**
 * @throws {TypeError} if the agent returned no valid result. The check is needed because the agent may be untyped code, and a missing reward
 * must not count as 0
 */
function resultOf(tag: string, result: number | AgentResult): AgentResult {
  if (typeof result === "number") return { reward: result, success: result > 0 };
  const { reward, success } = (result ?? {}) as Partial<AgentResult>;
  if (typeof reward === "number" && typeof success === "boolean") return { reward, success };
  const text = `the agent of ${tag} returned ${Bun.inspect(result, { depth: 1, compact: true })}`;
  throw new TypeError(`${text}; return the reward, or an object with reward (a number) and success (a boolean)`);
}

/** A model that sends the policy only the part of a call that the previous call does not have. */
function agentModel(name: string, ask: AskPolicy): Model {
  const nextId = callNames();
  let before = { prompt: [] as Call["prompt"], request: "" };
  const generate = async (call: Call): Promise<Generated> => {
    const request = requestText(call);
    const { prompt } = call;
    const seen = before.prompt.length;
    const goesOn =
      seen > 0 && prompt[seen]?.role === "assistant" && Bun.deepEquals(prompt.slice(0, seen), before.prompt);
    const added = goesOn ? prompt.slice(seen) : prompt;
    const texts = added.flatMap((message) => (message.role === "assistant" ? [] : messageText(message)));
    const isNew = request !== "" && !(goesOn && request === before.request);
    before = { prompt, request };
    const answer = await ask([...texts, ...(isNew ? [request] : [])].join("\n"));
    return generated(contentOf({ thought: "", answer }, call, nextId), call);
  };
  return model(name, generate, async (call) => streamOf(await generate(call)));
}

/** One episode of an env whose game the caller plays. */
function episodeOf(policy: Policy, name: string): AskPolicy {
  const { config } = policy;
  const { layout, compat, context, contextTurnsMax } = config.prompt;
  const tag = tagOf(config, name);
  const { turnsMax, actionsMax, think, actionsPerTurnMax } = episodeRules(config, name, tag);
  const shown = { layout, compat: compat !== "strict", think, mode: context, window: contextTurnsMax };
  const answered: AnsweredTurn[] = [];
  const ask: AskPolicy = async (observation) => {
    for (;;) {
      const actionsLeft = actionsMax - answered.filter(({ actions }) => actions.length > 0).length;
      if (actionsLeft < 1 || answered.length >= turnsMax) {
        const text = `${answered.length} turns of at most ${turnsMax}, ${actionsLeft} of ${actionsMax} answers left`;
        throw new Error(`the episode of ${name} is over: ${text}; ask bunraku() for a new model`);
      }
      const reply = await policy.reply(contextMessages(tag, { answered, now: { observation, actionsLeft } }, shown));
      const rules = { think, actionsPerTurnMax };
      const { actions } = parseReply(reply, { ...rules, wholeAnswer: true });
      const shownAs = shownReply(reply, { ...rules, compat: shown.compat });
      answered.push({ observation, actionsLeft, reply: shownAs, reward: 0, actions });
      // A reply without an answer also uses up a turn. The next turn then has the same observation.
      if (actions[0] !== undefined) return actions[0];
    }
  };
  let last: Promise<unknown> = Promise.resolve();
  // If the agent makes several calls at once, the policy answers one call after another, as in training.
  return (observation) => {
    const mine = last.then(() => ask(observation));
    last = mine.catch(() => {});
    return mine;
  };
}

const model = (
  modelId: string,
  doGenerate: Model["doGenerate"],
  parts: (call: Call) => Promise<Iterable<StreamPart> | AsyncIterable<StreamPart>>,
): Model => ({
  specificationVersion: "v3",
  provider: "bunraku",
  modelId,
  supportedUrls: {},
  doGenerate,
  doStream: async (call) => ({ stream: streamFrom(await parts(call)) }),
});

/** Ends a call when its signal is aborted. The policy still completes a reply that it has begun. In training, no signal ends a call. */
const abortable = (whole: Model): Model => ({
  ...whole,
  doGenerate: (call) => unlessAborted(whole.doGenerate(call), call.abortSignal),
  async doStream(call) {
    const { stream } = await unlessAborted(whole.doStream(call), call.abortSignal);
    const { abortSignal: signal } = call;
    return { stream: signal === undefined ? stream : stream.pipeThrough(new TransformStream(), { signal }) };
  },
});

/** The result of `work`. @throws the signal's reason, if the signal is aborted before `work` ends */
async function unlessAborted<T>(work: PromiseLike<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const abort = () => reject(signal.reason);
  if (signal.aborted) abort();
  signal.addEventListener("abort", abort);
  try {
    return await Promise.race([aborted, work]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

const streamFrom = (parts: Iterable<StreamPart> | AsyncIterable<StreamPart>) =>
  new ReadableStream<StreamPart>({
    async start(controller) {
      try {
        for await (const part of parts) controller.enqueue(part);
        controller.close();
      } catch (error) {
        controller.error(error);
      }
    },
  });

/**
 * Gives each call of a tool an id from a counter. Random ids are not possible, because prompts contain the ids, and equal episodes must have
 * equal prompts.
 */
function callNames(): () => string {
  let count = 0;
  return () => `call-${++count}`;
}

const tokensOf = (usage: Completion["usage"], finish: string | null) => ({
  ...(usage && { prompt: usage.prompt_tokens, reply: usage.completion_tokens }),
  cut: finish === "length",
});

/** Streams thought and answer while the policy writes them. An answer that may call a tool comes in one piece at the end. */
async function* streamed(response: Response, call: Call, nextId: () => string): AsyncGenerator<StreamPart> {
  const mayCall = callable(call).length > 0;
  const sent = { reasoning: "", text: "" };
  let reply = "";
  let usage: Completion["usage"];
  let finish: string | null = null;
  function* grown(type: keyof typeof sent, text: string, isWhole: boolean): Generator<StreamPart> {
    const delta = text.slice(sent[type].length);
    if (sent[type] === "" && delta !== "") yield { type: `${type}-start`, id: type };
    if (delta !== "") yield { type: `${type}-delta`, id: type, delta };
    sent[type] = text;
    if (isWhole && text !== "") yield { type: `${type}-end`, id: type };
  }
  yield { type: "stream-start", warnings: warningsOf(call) };
  for await (const { error, choices, usage: counted } of events(response)) {
    if (error !== undefined) throw new Error(`no reply: ${error.message}`);
    reply += choices[0]?.delta?.content ?? "";
    finish = choices[0]?.finish_reason ?? finish;
    usage = counted ?? usage;
    const { thought, answer } = replyParts(reply, false);
    yield* grown("reasoning", thought, false);
    if (!mayCall) yield* grown("text", answer, false);
  }
  const whole = replyParts(reply, true);
  const result = generated(contentOf(whole, call, nextId), call, tokensOf(usage, finish));
  yield* grown("reasoning", whole.thought, true);
  for (const part of result.content) {
    if (part.type === "text") yield* grown("text", part.text, true);
    if (part.type === "tool-call") yield part;
  }
  yield { type: "finish", finishReason: result.finishReason, usage: result.usage };
}

/** The events of a streamed response. If the server refused the request, the only event is the error. */
async function* events(response: Response): AsyncGenerator<Completion> {
  if (!response.ok) yield (await response.json()) as Completion;
  for await (const line of linesOf(response.body!)) {
    if (/^data: \{/.test(line)) yield JSON.parse(line.slice("data: ".length)) as Completion;
  }
}
