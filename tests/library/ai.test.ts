/** Tests `bunraku/ai` with the real AI SDK: a run trains on an env whose game is an agent, and then the agent asks the trained policy. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { generateText, streamText, tool } from "ai";
import { z } from "zod";
import type { OutsideGame } from "../../envs/env.ts";
import { agentEnv, bunraku } from "../../library/ai.ts";
import type { Settings } from "../../library/config.ts";
import type { Episode, Message } from "../../library/index.ts";
import { loadPolicy, type Policy } from "../../library/policy.ts";
import { train } from "../../library/train.ts";
import { temporaryFolder } from "../scripts/temporary.ts";
import { DOORS, openDoor } from "./doors.ts";

Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false });

const page = join(import.meta.dir, "../../docs/agents.md");
const folder = join(temporaryFolder(), "doors");
const updates: number[] = [];
const episodes: Episode[] = [];
let policy: Policy;

beforeAll(async () => {
  const stage = { name: "learn", babble: 0.1, noise: 0, steps: 120, batch: 16, learningRate: 1e-2, warmUpSteps: 10 };
  // The page's settings, with a smaller policy and a shorter run.
  const shown = /^```ts bunraku\.config\.ts\n(.*?)^```/ms.exec(await Bun.file(page).text())![1]!;
  const file = join(temporaryFolder(), "bunraku.config.ts");
  await Bun.write(file, shown.replace("bunraku/config", join(import.meta.dir, "../../library/config.ts")));
  const { run: settings } = (await import(file)).default as { run: Settings };
  const run = await train(
    {
      ...settings,
      rollout: { ...settings.rollout, groups: 4, groupSize: 4 },
      sampler: { count: 1, slots: 8 },
      model: { width: 32, layers: 1, heads: 2, kvHeads: 1, hidden: 64 },
      warmStart: { ...settings.warmStart, stages: [stage] },
      learner: { updates: 2, filter: { strategy: "all" } },
      validate: { episodes: 16 },
      engine: { threads: 1 },
    },
    { folder, envs: [join(import.meta.dir, "doors.ts")] },
  );
  for await (const { update } of run.updates()) updates.push(update);
  for await (const episode of run.episodes()) episodes.push(episode);
  policy = await loadPolicy(folder, { temperature: 0 });
}, 300_000);
afterAll(() => policy.close());

/** `expect(…).rejects` would keep the policy's thread from answering. */
const messageOf = (failing: Promise<unknown>) => failing.then(String, ({ message }: Error) => message);

test("docs/agents.md shows the agent of doors.ts", async () => {
  const text = await Bun.file(page).text();
  const shown = /^```ts envs\/doors\.ts\n(.*?)^```/ms.exec(text)![1]!;
  const lines = (code: string) =>
    code
      .replaceAll(/"(?:\.\.\/\.\.\/library|bunraku)\/(\w+)(?:\.ts)?"/g, '"$1"')
      .split("\n")
      .sort();
  expect(lines(shown)).toEqual(lines(await Bun.file(join(import.meta.dir, "doors.ts")).text()));
});

test("an agent's calls are the turns of its episodes, with token ids; its result is their reward", () => {
  expect(updates).toEqual([1, 2]);
  // The budgets are those of the env: a call is a turn and an action.
  expect([policy.config.env.actionsMax, policy.config.env.turnsMax]).toEqual([3, 3]);
  const played = episodes.flatMap(({ seed, outcome }) => ("turns" in outcome ? [{ seed, ...outcome }] : []));
  expect(played.length).toBe(episodes.length);
  const two = played.filter(({ turns }) => turns.length === 2 && turns[0]!.actions[0] === "peek {}");
  expect(two.length).toBeGreaterThan(10);
  for (const { seed, turns, trajectory, success, stop } of two) {
    const prize = DOORS[seed % 2]!;
    const [first, second] = turns;
    expect(first!.observation).toStartWith("Which door?\nTools:\npeek: Looks behind the doors. {");
    expect([first!.actions, first!.reward, second!.observation]).toEqual([["peek {}"], 0, `peek: ${prize}`]);
    const won = second!.actions[0] === prize;
    expect(stop).toBe(won ? "success" : "over");
    expect([success, second!.reward]).toEqual([won, Number(won) - 0.1 * 2]);
    expect(trajectory.turns.map(({ end }) => trajectory.written[end])).toEqual([1, 1]);
  }
});

test("if an agent returns a number, the number is the reward, and a positive number means solved", async () => {
  const guess = agentEnv({
    tag: "Guess",
    instruction: "",
    actionsMax: 2,
    task: (_, { layout }) => layout,
    agent: async (model, task) => Number((await generateText({ model, prompt: "?" })).text) - task,
    random: () => "0",
  });
  const effectOf = async (answer: string) => {
    const game = guess.make({}, "strict").open({ layout: 3, dynamics: 0 }) as OutsideGame;
    await game.start();
    return game.act(answer);
  };
  expect(await effectOf("5")).toMatchObject({ reward: 2, done: true, success: true });
  expect(await effectOf("3")).toMatchObject({ reward: 0, done: true, success: false });
});

test.each([
  [undefined, "undefined"],
  [{ reward: 1 }, "{ reward: 1 }"],
  [{ reward: "1", success: true }, '{ reward: "1", success: true }'],
])("a result of %j fails the episode, and does not count as a reward of 0", async (result, shown) => {
  const careless = agentEnv({
    tag: "Careless",
    instruction: "",
    actionsMax: 2,
    task: () => null,
    async agent(model) {
      await generateText({ model, prompt: "?" });
      return result as never;
    },
    random: () => "0",
  });
  const game = careless.make({}, "strict").open({ layout: 3, dynamics: 0 }) as OutsideGame;
  await game.start();
  expect(await messageOf(game.act("1"))).toStartWith(`the agent of Careless returned ${shown}; return the reward`);
});

test("generateText: the trained policy calls the tool, reads its result and answers", async () => {
  const model = bunraku(policy, { env: "Doors" });
  const { steps, text } = await openDoor(model, "B");
  expect(steps.map(({ toolCalls }) => toolCalls.map(({ toolName, input }) => [toolName, input]))).toEqual([
    [["peek", {}]],
    [],
  ]);
  expect(steps[0]!.toolResults.map(({ output }) => output)).toEqual(["B"]);
  // An episode of the env, as in validation, has the same answer.
  const { turns } = await policy.episode("Doors", 1, { temperature: 0 });
  expect(text).toBe(turns.at(-1)!.actions[0]!);
  // Concurrent calls become one turn after another.
  const atOnce = bunraku(policy, { env: "Doors" });
  const replies = await Promise.all(
    [1, 2, 3, 4].map(() => messageOf(generateText({ model: atOnce, prompt: "Which door?" }))),
  );
  expect(replies.filter((reply) => reply.startsWith("the episode of Doors is over: ")).length).toBeGreaterThan(0);
  // A model plays one episode, and then fails.
  const ends = [];
  for (let i = 0; i < 3; i++) ends.push(await messageOf(openDoor(model, "A")));
  expect(ends.at(-1)).toStartWith("the episode of Doors is over: ");
});

test("streamText streams what generateText gives, thought and answer apart", async () => {
  // The prompt has the form of training, so that the reply has a thought.
  const opening = episodes.map(({ outcome }) => ("turns" in outcome ? outcome.turns[0]!.observation : ""))[0]!;
  const [prompt, temperature, seed] = [`3 left ${opening}`, 1, 7];
  const asked = { model: bunraku(policy), prompt, temperature, seed, maxOutputTokens: 40 };
  const whole = await generateText(asked);
  const streamed = streamText(asked);
  expect((await Array.fromAsync(streamed.textStream)).join("")).toBe(whole.text);
  expect(await streamed.reasoningText).toBe(whole.reasoningText!);
  expect(await streamed.usage).toEqual(whole.usage);
  expect(whole.usage.outputTokens).toBeGreaterThan(5);
  const reply = await policy.reply([{ role: "user", content: prompt }], { seed, temperature, tokensMax: 40 });
  expect(reply).toBe(`<think>${whole.reasoningText}</think><answer>${whole.text}</answer>`);
});

test("an answer that may call no tool streams piece by piece, also if the call lists tools", async () => {
  const pieces = ["<answer>one ", "two ", "three</answer>"];
  const lines = pieces.map((content) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`);
  const { name, config } = policy;
  const written = { name, config, complete: async () => new Response(lines.join("")) } as unknown as Policy;
  const tools = { peek: tool({ inputSchema: z.object({}), execute: () => "" }) };
  const piecesOf = (toolChoice: "auto" | "none") =>
    Array.fromAsync(streamText({ model: bunraku(written), prompt: "?", tools, toolChoice }).textStream);
  expect(await piecesOf("auto")).toEqual(["one two three"]);
  expect(await piecesOf("none")).toEqual(["one", " two", " three"]);
});

test("with an env and prompts of RAGEN, later prompts show a reply as RAGEN rebuilds it, as in training", async () => {
  const { name, config } = policy;
  const shown: string[] = [];
  const spaced = {
    name,
    config: { ...config, prompt: { ...config.prompt, compat: "ragen-v1" } },
    async reply(messages: readonly Message[]) {
      shown.push(...messages.flatMap(({ role, content }) => (role === "assistant" ? content : [])));
      return "<think>a door</think> <answer> 1 </answer>";
    },
  } as unknown as Policy;
  const model = bunraku(spaced, { env: "Doors" });
  for (const prompt of ["Which door?", "Sure?"]) expect((await generateText({ model, prompt })).text).toBe("1");
  expect(shown).toEqual(["<think>a door</think><answer>1</answer>"]);
});

test("a call ends when its signal aborts, even if the policy still writes", async () => {
  const { name, config } = policy;
  for (const env of [undefined, "Doors"]) {
    const calls = new AbortController();
    // The signal comes while the policy writes a reply that has no end.
    const write = () => {
      calls.abort(new DOMException("late", "AbortError"));
      return new Promise<never>(() => {});
    };
    const endless = { name, config, complete: write, reply: write } as unknown as Policy;
    const model = bunraku(endless, env === undefined ? {} : { env });
    expect(await generateText({ model, prompt: "?", abortSignal: calls.signal }).catch(String)).toBe(
      "AbortError: late",
    );
  }
});

test("what a policy cannot do is an error or a warning", async () => {
  const model = bunraku(policy);
  const image = {
    type: "file" as const,
    mediaType: "image/png",
    data: new Uint8Array([137, 80, 78, 71, 13, 10, 26, 10]),
  };
  expect(await messageOf(generateText({ model, messages: [{ role: "user", content: [image] }] }))).toBe(
    "a policy reads text only; the prompt has a part of type file; leave it out",
  );
  const long = await messageOf(generateText({ model, prompt: "x".repeat(1000) }));
  expect(long).toEndWith("do not fit into a context of 1000");
  const { warnings } = await generateText({ model, prompt: "Hi", maxOutputTokens: 2, presencePenalty: 1 });
  expect(warnings).toEqual([{ type: "unsupported", feature: "presencePenalty" }]);
});
