/** What the sampler's policy of engine tinker asks its server for, and how the policy reads the answer. */
import { afterAll, expect, test } from "bun:test";
import { realClock } from "../../../actors/clock.ts";
import { tinkerPolicy } from "../../../actors/tinker/policy.ts";
import { ModelServer, servedVersion } from "../../../actors/tinker/server.ts";
import type { ReplyRequest } from "../../../model/decode/generate.ts";

// biome-ignore lint/suspicious/noExplicitAny: JSON of the code under test
const asked: any[] = [];
let sequence: object = {};
const endpoint = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  async fetch(request) {
    if (request.url.endsWith("retrieve_future")) return Response.json({ sequences: [sequence] });
    asked.push(await request.json());
    return Response.json({ request_id: "1" });
  },
});
afterAll(() => endpoint.stop(true));

const server = new ModelServer({
  url: `http://127.0.0.1:${endpoint.port}`,
  root: "/api/v1/",
  deadlineMs: 10_000,
  fetch,
  clock: realClock,
  warn() {},
});
const policy = tinkerPolicy(server).methods;
const request: ReplyRequest = {
  prompt: [1, 2, 3],
  coins: { seed: 7, episode: [1, 2] },
  settings: { temperature: 0.5, topP: 0.9, topK: 0 },
  stops: [9, 8],
  tokensMax: 4,
};
const promptOf = (at: number) => asked.at(at).prompt.chunks[0].tokens;

test("a version is its name; its digest is acknowledged", async () => {
  const message = servedVersion(3, "tinker://model_1/v3");
  expect(await policy.load(message)).toBe(message.digest);
  const shared = { kind: "http", url: "http://127.0.0.1:1/weights/3" } as const;
  await expect(policy.load({ ...message, location: shared })).rejects.toThrow("engine tinker cannot load http weights");
});

test("a reply continues its sequence, from what a later prompt keeps of it", async () => {
  await policy.open("e");
  sequence = { tokens: [4, 9], logprobs: [-0.1, -0.2], stop_reason: "stop" };
  expect(await policy.reply("e", request)).toEqual({ tokens: [4, 9], logProbs: [-0.1, -0.2], cut: false });
  expect(asked.at(-1)).toMatchObject({
    model_path: "tinker://model_1/v3",
    num_samples: 1,
    sampling_params: { max_tokens: 4, stop: [9, 8], temperature: 0.5, top_p: 0.9, top_k: -1 },
  });
  sequence = { tokens: [5, 5, 5, 5], logprobs: [-1, -1, -1, -1], stop_reason: "length" };
  expect(await policy.reply("e", { ...request, prompt: [6] })).toMatchObject({ cut: true });
  await policy.reply("e", { ...request, prompt: [7], keep: 2 });
  expect([promptOf(-3), promptOf(-2), promptOf(-1)]).toEqual([
    [1, 2, 3],
    [1, 2, 3, 4, 9, 6],
    [1, 2, 7],
  ]);
  await policy.close("e");
});

test("equal coins make equal requests; each turn and each episode has its own seed", async () => {
  const seedOf = async (changed: Partial<ReplyRequest>) => {
    await policy.open("s");
    await policy.reply("s", { ...request, ...changed });
    await policy.close("s");
    return asked.at(-1).sampling_params.seed;
  };
  const seeds = [
    await seedOf({}),
    await seedOf({}),
    await seedOf({ prompt: [1, 2, 3, 4] }),
    await seedOf({ coinsFrom: 5 }),
    await seedOf({ coins: { seed: 7, episode: [1, 3] } }),
  ];
  expect(seeds[1]).toBe(seeds[0]);
  expect(new Set(seeds).size).toBe(4);
  expect(seeds.every((seed) => Number.isInteger(seed) && seed >= 0 && seed < 2 ** 31)).toBe(true);
});

test("a reply without a log-probability for each token is an error", async () => {
  await policy.open("short");
  sequence = { tokens: [4, 9], logprobs: [-0.1], stop_reason: "stop" };
  await expect(policy.reply("short", request)).rejects.toThrow("the server wrote 2 tokens with 1 log-probabilities");
});
