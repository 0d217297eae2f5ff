/** An episode from its ticket to its outcome: real prompts and tokens, a scripted policy and a scripted env. */

import { describe, expect, test } from "bun:test";
import { EpisodeError } from "../../../actors/errors.ts";
import { type PlayContext, type PlayRules, playEpisode } from "../../../actors/play/play-episode.ts";
import type { Messages, PlayedOutcome } from "../../../actors/protocol.ts";
import { decodeFrame, encodeFrame } from "../../../actors/transport/frame.ts";
import { envTag } from "../../../envs/registry.ts";
import type { Reply, ReplyRequest } from "../../../model/decode/generate.ts";
import { hash64 } from "../../../model/rng.ts";
import { builtinDialogue } from "../../../model/text/chat.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";
import { aTicket, somePlayRules } from "../../fixtures.ts";

const tokenizer = new Tokenizer();
const tag = envTag("SimpleSokoban", {});
const END = tokenizer.id("<|im_end|>");
const rules: PlayRules = somePlayRules({ SimpleSokoban: 5 });
const ticket = aTicket({
  episode: "u3.g1.m2",
  group: 1,
  member: 2,
  env: "SimpleSokoban",
  temperature: 0.9,
  topP: 0.8,
  topK: 4,
  version: 3,
  attempt: 1,
});

/** Gives these replies in order; a reply that begins with "cut " has no end token. */
class FakePolicy {
  readonly requests: ReplyRequest[] = [];
  readonly calls: string[] = [];
  readonly #replies: string[];

  constructor(replies: readonly string[]) {
    this.#replies = [...replies];
  }

  readonly methods = {
    start: async () => "fake",
    load: async () => "0".repeat(64),
    open: async (sequence: string) => void this.calls.push(`open ${sequence}`),
    close: async (sequence: string) => void this.calls.push(`close ${sequence}`),
    reply: async (_: string, request: ReplyRequest): Promise<Reply> => {
      this.requests.push(request);
      const text = this.#replies.shift();
      if (text === undefined) throw new Error("the policy broke");
      const cut = text.startsWith("cut ");
      const tokens = builtinDialogue(tokenizer)
        .replyTokens(text.replace("cut ", ""), "<think>")
        .slice(0, cut ? -1 : undefined);
      return { tokens, logProbs: tokens.map((_, i) => -(i + 1) / 8), cut };
    },
  };
}

type Step = Partial<Messages["env.stepped"]> | Messages["failed"];

/** An env server's answers, one per turn. */
class FakeEnv {
  readonly asked: Messages["env.open" | "env.step"][] = [];
  readonly closed: string[] = [];
  readonly #steps: Step[];

  constructor(steps: readonly Step[]) {
    this.#steps = [...steps];
  }

  askEnv = async (ask: Messages["env.open" | "env.step"]): Promise<never> => {
    this.asked.push(ask);
    const { episode } = ask;
    const opened = { type: "env.opened", episode, observation: "#_P_#", actionsLeft: 10 };
    return (ask.type === "env.open" ? opened : this.#step(ask)) as never;
  };

  closeEnv = ({ episode }: Messages["env.close"]) => void this.closed.push(episode);

  #step({ episode, turn }: Messages["env.step"]): unknown {
    const given = this.#steps.shift() ?? {};
    if ("type" in given && given.type === "failed") return given;
    return {
      type: "env.stepped",
      episode,
      turn,
      observation: `#P_${turn}#`,
      reward: -0.1,
      penalty: 0,
      actions: ["Left"],
      actionsLeft: 9 - turn,
      wellFormed: true,
      effective: true,
      valid: true,
      success: false,
      ending: null,
      extra: { pushes: 1 },
      ...given,
    };
  }
}

function stage(replies: readonly string[], steps: readonly Step[], changed: Partial<PlayRules> = {}) {
  const policy = new FakePolicy(replies);
  const env = new FakeEnv(steps);
  const context: PlayContext = {
    tag,
    dialogue: builtinDialogue(tokenizer),
    policy: policy.methods,
    rules: { ...rules, ...changed },
    weights: { version: 3, digest: "d".repeat(64) },
    askEnv: env.askEnv,
    closeEnv: env.closeEnv,
  };
  return { policy, env, context, play: () => playEpisode(ticket, context) };
}

const LEFT = "<think>go left</think><answer>Left</answer>";
const UP = "<think>go up</think><answer>Up</answer>";

/** What the trajectory says was written, as text, turn by turn. */
const spoken = ({ trajectory: { tokens, written } }: PlayedOutcome) =>
  tokenizer.decode([...tokens].filter((_, i) => written[i] === 1));

describe("a thought that is not what is done", () => {
  const untrue = "<think>go up</think><answer>Left</answer>";
  const half = "<think>I am at (0, 2), and go up</think><answer>Left</answer>";
  const silent = "<think>hm</think><answer>Left</answer>";
  const penalties = async (reasoningWeight: number) => {
    const steps = [{}, { penalty: -0.1 }, {}, {}, { ending: "turns" }] as const;
    const { play } = stage([untrue, untrue, half, silent, LEFT], steps, { reasoningWeight });
    const { trajectory, turns } = (await play()) as PlayedOutcome;
    expect(turns.map(({ penalty }) => penalty)).toEqual(trajectory.turns.map(({ penalty }) => penalty));
    expect(trajectory.turns.map(({ reward }) => reward)).toEqual([-0.1, -0.1, -0.1, -0.1, -0.1]);
    return turns.map(({ penalty }) => penalty);
  };

  test("costs its share of the weight, beside the format penalty; silence and truth cost nothing", async () => {
    // The player of the third turn's board, "#P_1#", is at (0, 1): neither claim holds.
    expect(await penalties(0.4)).toEqual([-0.4, -0.5, -0.4, 0, 0]);
  });

  test("costs nothing by default", async () => {
    expect(await penalties(0)).toEqual([0, -0.1, 0, 0, 0]);
  });
});

test("the trajectory takes the version and the digest of the weights, and no column of a trajectory passed as weights", async () => {
  const tokens = new Int32Array([1, 2, 3]);
  const logProbs = new Float32Array([-9, -9, -9]);
  const recorded = { version: 7, digest: "e".repeat(64), tokens, logProbs };
  const { context } = stage([LEFT], [{ ending: "turns" }]);
  const { trajectory } = (await playEpisode(ticket, { ...context, weights: recorded })) as PlayedOutcome;
  expect(trajectory).toMatchObject({ version: 7, digest: "e".repeat(64) });
  expect(spoken({ trajectory } as PlayedOutcome)).toBe("go left</think><answer>Left</answer><|im_end|>");
  expect(trajectory.logProbs).not.toContain(-9);
});

describe("an episode played to its end", () => {
  const { policy, env, play } = stage(
    [LEFT, UP],
    [{}, { reward: 10.9, penalty: -0.1, success: true, ending: "success" }],
  );

  test("becomes a trajectory that says which tokens the policy wrote, and how likely each was", async () => {
    const outcome = (await play()) as PlayedOutcome;
    expect(outcome).toMatchObject({ status: "scored", stop: "success", success: true, finalObservation: "#P_1#" });
    const { tokens, written, logProbs, turns, version, digest } = outcome.trajectory;
    expect([written.length, logProbs.length]).toEqual([tokens.length, tokens.length]);
    expect(spoken(outcome)).toBe(
      "go left</think><answer>Left</answer><|im_end|>go up</think><answer>Up</answer><|im_end|>",
    );
    expect([...logProbs].every((logProb, i) => logProb < 0 === (written[i] === 1))).toBe(true);
    const first = written.indexOf(1);
    expect([...logProbs.subarray(first, first + 3)]).toEqual([-1 / 8, -2 / 8, -3 / 8]);
    expect({ version, digest }).toEqual({ version: 3, digest: "d".repeat(64) });
    // A turn ends on the last token it wrote, which is the end of the reply.
    expect(turns.map(({ reward, penalty }) => [reward, penalty])).toEqual([
      [-0.1, 0],
      [10.9, -0.1],
    ]);
    for (const { end } of turns) expect([tokens[end], written[end], written[end + 1] ?? 0]).toEqual([END, 1, 0]);
    expect(turns.at(-1)!.end).toBe(tokens.length - 1);
  });

  test("appends prompts and shows no text twice", () => {
    const [first, second] = policy.requests.map(({ prompt }) => tokenizer.decode(prompt));
    const brief = (text: string) => tag.brief(text);
    expect(first).toBe(`<|im_start|>10 left ${brief("#_P_#")}<|im_end|><think>`);
    expect(second).toBe(`<|im_start|>9 left ${brief("#P_0#")}<|im_end|><think>`);
  });

  test("sends the policy's reply to the env, and draws by the ticket alone", () => {
    expect(env.asked).toEqual([
      { type: "env.open", episode: "u3.g1.m2", env: "SimpleSokoban", layoutSeed: 7, dynamicsSeed: 8 },
      { type: "env.step", episode: "u3.g1.m2", turn: 0, reply: LEFT },
      { type: "env.step", episode: "u3.g1.m2", turn: 1, reply: UP },
    ]);
    const drawn = {
      coins: { seed: 5, episode: hash64("u3.g1.m2") },
      settings: { temperature: 0.9, topP: 0.8, topK: 4 },
    };
    for (const request of policy.requests) expect(request).toMatchObject({ ...drawn, stops: [END], tokensMax: 40 });
  });

  test("is closed at the policy, and not at the env, which ended it itself", () => {
    expect(policy.calls).toEqual(["open u3.g1.m2 1", "close u3.g1.m2 1"]);
    expect(env.closed).toEqual([]);
  });
});

describe("an episode", () => {
  test.each([
    ["over", "scored"],
    ["actions", "truncated"],
    ["turns", "truncated"],
  ] as const)("that ends as %p is %p", async (ending, status) => {
    const outcome = await stage([LEFT], [{ ending }]).play();
    expect(outcome).toMatchObject({ status, stop: ending, success: false });
  });

  test("adds up what its turns measured", async () => {
    const outcome = (await stage(
      [LEFT, UP],
      [{}, { ending: "over", extra: { pushes: 2, falls: 1 } }],
    ).play()) as PlayedOutcome;
    expect(outcome.extra).toEqual({ pushes: 3, falls: 1 });
  });

  test("of numbers with any names, is a message that the learner takes", async () => {
    const extra = { constructor: 1, toString: 2, hasOwnProperty: 3, ["__proto__"]: 4 };
    const outcome = await stage([LEFT, UP], [{ extra }, { extra, ending: "over" }]).play();
    const body = { type: "episode.finished", actor: "sampler-1", episode: "u3.g1.m2", attempt: 1, outcome } as const;
    const { body: taken } = decodeFrame(encodeFrame({ kind: "ask", id: 1, body }, 1 << 20));
    const { outcome: arrived } = taken as typeof body;
    const sums = Object.entries((arrived as PlayedOutcome).extra);
    expect(sums.slice(0, 3)).toEqual([
      ["constructor", 2],
      ["toString", 4],
      ["hasOwnProperty", 6],
    ]);
  });

  test("closes a cut reply before the next prompt, with a token that the policy did not write", async () => {
    const { policy, play } = stage(["cut <think>go", UP], [{ actions: [], wellFormed: false }, { ending: "over" }]);
    const outcome = (await play()) as PlayedOutcome;
    expect(outcome.turns.map(({ cut, reply }) => [cut, reply])).toEqual([
      [true, "<think>go"],
      [false, UP],
    ]);
    expect(tokenizer.decode(policy.requests[1]!.prompt)).toStartWith("<|im_end|><|im_start|>");
    expect(spoken(outcome)).toBe("gogo up</think><answer>Up</answer><|im_end|>");
    const { end } = outcome.trajectory.turns[0]!;
    expect([outcome.trajectory.tokens[end + 1], outcome.trajectory.written[end + 1]]).toEqual([END, 0]);
  });

  test("without thoughts begins its replies at the answer", async () => {
    const { policy, play } = stage([LEFT], [{ ending: "over" }], { think: false });
    await play();
    expect(tokenizer.decode(policy.requests[0]!.prompt)).toEndWith("<|im_end|><answer>");
  });
});

describe("the context's limit", () => {
  test("shortens a reply to the room that is left, and ends the episode before a prompt that leaves none", async () => {
    const roomy = stage([LEFT], [{ ending: "over" }]);
    const whole = ((await roomy.play()) as PlayedOutcome).trajectory.tokens.length;
    const limit = whole + 2;
    const { policy, env, play } = stage([LEFT, UP], [{}], { contextTokensMax: limit });
    const outcome = (await play()) as PlayedOutcome;
    expect(policy.requests.map(({ tokensMax }) => tokensMax)).toEqual([
      limit - roomy.policy.requests[0]!.prompt.length,
    ]);
    expect(outcome).toMatchObject({ status: "truncated", stop: "context", finalObservation: "#P_0#" });
    expect(outcome.turns.length).toBe(1);
    expect(outcome.trajectory.tokens.length).toBeLessThanOrEqual(limit);
    // The env server would keep it for minutes otherwise.
    expect(env.closed).toEqual(["u3.g1.m2"]);
  });

  test("too small for the first prompt aborts the episode, which has nothing to learn from", async () => {
    const { play } = stage([LEFT], [], { contextTokensMax: 5 });
    const detail =
      "the first prompt has 6 tokens, which leaves no room for a reply in rollout.contextTokensMax (5); raise it, or shorten the observation by the env's `brief`";
    expect(await play()).toEqual({ status: "aborted", detail });
  });
});

describe("a failure", () => {
  const failed = (code: Messages["failed"]["code"]): Step => ({ type: "failed", code, detail: "the board is on fire" });

  test("of the env is an env error, never a turn that earned 0", async () => {
    const { policy, play } = stage([LEFT, UP], [{}, failed("env")]);
    expect(await play()).toEqual({ status: "envError", detail: "the board is on fire" });
    expect(policy.calls.at(-1)).toBe("close u3.g1.m2 1");
  });

  test.each([
    ["closed", "closed"],
    ["deadline", "closed"],
    ["capacity", "capacity"],
    ["protocol", "protocol"],
  ] as const)("of the connection (%p) leaves the episode to be played again", async (code, boundary) => {
    const { policy, env, play } = stage([LEFT], [failed(code)]);
    const error = await play().catch((caught) => caught);
    expect(error).toBeInstanceOf(EpisodeError);
    expect(error).toMatchObject({ boundary, message: "the board is on fire" });
    expect([policy.calls.at(-1), env.closed]).toEqual(["close u3.g1.m2 1", ["u3.g1.m2"]]);
  });

  test("of the policy is not the episode's: it is thrown, and both ends forget the episode", async () => {
    const { policy, env, play } = stage([], []);
    await expect(play()).rejects.toThrow("the policy broke");
    expect([policy.calls.at(-1), env.closed]).toEqual(["close u3.g1.m2 1", ["u3.g1.m2"]]);
  });
});
