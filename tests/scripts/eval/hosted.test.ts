/** `bun run eval --policy openai:MODEL` against a local server, as a process where there is a proxy. */

import { afterAll, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { appendFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Tree } from "../../../actors/config/layers.ts";
import { servedCard } from "../../../actors/policy/served-card.ts";
import { answersWithoutActions, jsonService } from "../../envs/outside/json-service.ts";
import { aConfig } from "../../fixtures.ts";
import { command, commandHere, expectRefusal } from "../command.ts";
import { temporaryFolder } from "../temporary.ts";

setDefaultTimeout(60_000);
const KEY = "sk-never-shown-0123456789";

let requests = 0;
/** Requests that wait for each other, and how many must be there before any is answered. */
let waiting: (() => void)[] = [];
let together = 1;
let most = 0;
/** Requests that are answered; all others are refused for good. */
let served = Number.POSITIVE_INFINITY;
/** What the server tells of its model; null: nothing. */
let card: object | null = null;
const prompts: string[] = [];
const keys: (string | null)[] = [];
/** Paths of the requests, and the limits of the replies that they ask for. */
const paths = new Set<string>();
const limits = new Set<number | undefined>();
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    if (request.method === "GET") return card === null ? new Response("", { status: 404 }) : Response.json(card);
    const body = (await request.json()) as { messages: { content: string }[]; max_tokens?: number };
    paths.add(new URL(request.url).pathname);
    limits.add(body.max_tokens);
    keys.push(request.headers.get("authorization"));
    prompts.push(body.messages.map(({ content }) => content).join("\n"));
    const { promise, resolve } = Promise.withResolvers<void>();
    most = Math.max(most, waiting.push(resolve));
    if (waiting.length === together) for (const answer of waiting.splice(0)) answer();
    await promise;
    if (++requests > served) return new Response(`bad ${request.headers.get("authorization")}`, { status: 400 });
    return Response.json({
      choices: [
        { message: { content: "<think>the other one</think><answer>Phoenix</answer>" }, finish_reason: "stop" },
      ],
      usage: { prompt_tokens: 100, completion_tokens: 10 },
    });
  },
});
afterAll(() => server.stop(true));
beforeEach(() => {
  [requests, together, most, served, waiting] = [0, 1, 0, Number.POSITIVE_INFINITY, []];
  card = null;
  prompts.length = 0;
  keys.length = 0;
  for (const seen of [paths, limits]) seen.clear();
});

const folder = temporaryFolder();
const evaluate = (...args: string[]) =>
  command(
    ["eval", "--env", "Bandit", "--policy", "openai:tiny", "--base-url", `${server.url.origin}/v1`, ...args],
    undefined,
    // Nothing is at the proxy: requests to this machine go past it.
    { MY_KEY: KEY, OPENAI_API_KEY: "sk-of-another-server", HTTP_PROXY: "http://127.0.0.1:1" },
  );

test("plays the env's own prompts, counts tokens and money, and keeps to the concurrency", async () => {
  together = 3;
  const args = ["--episodes", "12", "--concurrency", "3", "--key-env", "MY_KEY", "--price-in", "2", "--price-out", "8"];
  const { code, out, err } = await evaluate(...args, "--json");
  expect([code, err.includes(KEY), out.includes(KEY)]).toEqual([0, false, false]);
  const result = JSON.parse(out.trimEnd().split("\n").at(-1)!);
  expect(result).toMatchObject({
    env: "Bandit",
    policy: "openai:tiny",
    episodes: 12,
    formatErrors: 0,
    usage: { requests: 12, retries: 0, inputTokens: 1200, outputTokens: 120, cost: (1200 * 2 + 120 * 8) / 1e6 },
  });
  expect(out).toContain("12 requests, 0 of them retries · 1200 input tokens, 120 output tokens · 0.0034 USD");
  expect(most).toBe(3);
  expect([...limits]).toEqual([512]);
  expect(prompts[0]).toContain("Always output: <think> [Your thoughts] </think> <answer> [your answer] </answer>");
});

test("plays 256 boards from seed 123, each as often as asked; one price is no cost, and a slash ends no address", async () => {
  const { out } = await evaluate(
    "--json",
    "--samples",
    "2",
    "--price-in",
    "2",
    "--base-url",
    `${server.url.origin}/v1/`,
  );
  const asked = { episodes: 256, seed: 123, samples: 2, usage: { requests: 512, cost: null } };
  expect(JSON.parse(out.trimEnd().split("\n").at(-1)!)).toMatchObject(asked);
  expect(out).toContain(" · cost unknown (--price-in, --price-out)");
  expect([...paths]).toEqual(["/v1/chat/completions"]);
});

test("plays a remote env that lists no actions, and has no random player to compare with", async () => {
  await using remote = jsonService(answersWithoutActions);
  const args = ["--env", "Remote", `--env.options.url=${remote.url}`, "--episodes", "3", "--json"];
  const { code, out } = await evaluate(...args);
  expect(code).toBe(0);
  expect(out).toMatch(/^random +unknown$/m);
  expect(JSON.parse(out.trimEnd().split("\n").at(-1)!)).toMatchObject({ success: 1, random: null });
});

test("shows the model its own words as it wrote them, a turn later: no thought is opened for it", async () => {
  const url = ["--policy", "openai:tiny", "--base-url", `${server.url.origin}/v1`, "--key-env", "MY_KEY"];
  const args = ["eval", "--env", "SimpleSokoban", ...url, "--episodes", "1", "--concurrency", "1"];
  const { code } = await commandHere(args, { MY_KEY: KEY });
  expect(code).toBe(0);
  expect(prompts.length).toBeGreaterThan(1);
  // RAGEN begins every prompt's answer with <think>, and a model that writes it too is shown it twice.
  expect(prompts[1]!.split("<think>the other one</think><answer>Phoenix</answer>").length).toBe(2);
  for (const prompt of prompts) expect(prompt).not.toMatch(/<think>\s*<think>|<think>$/);
});

test("continues from its results, and sends no request twice", async () => {
  const file = join(folder, "results.jsonl");
  served = 5;
  const args = ["--episodes", "9", "--concurrency", "1", "--results", file, "--key-env", "MY_KEY"];
  const broken = await evaluate(...args);
  expect(broken.code).toBe(1);
  expect(broken.err).toContain("status 400: bad Bearer (hidden); 5 episodes are in");
  expect(readFileSync(file, "utf8")).not.toContain(KEY);
  // Whoever wrote it was killed in the middle of a line.
  appendFileSync(file, '{"index":5,"layo');
  [requests, served] = [0, Number.POSITIVE_INFINITY];
  const { code, out, err } = await evaluate(...args, "--json");
  expect([code, requests]).toEqual([0, 4]);
  expect(err).toContain(`5 episodes are taken from ${file}`);
  expect(JSON.parse(out.trimEnd().split("\n").at(-1)!)).toMatchObject({ episodes: 9, usage: { requests: 4 } });
  expect(readFileSync(file, "utf8").trimEnd().split("\n").length).toBe(10);

  const fewer = await evaluate(...args, "--episodes", "3");
  expect([fewer.code, fewer.err]).toEqual([0, expect.stringContaining(`3 episodes are taken from ${file}`)]);
  const other = await evaluate(...args, "--seed", "7");
  expect([other.code, other.err]).toEqual([
    2,
    expect.stringContaining("belongs to another evaluation: seed is 123 there and 7 here"),
  ]);
});

test("a key of OpenAI's is not sent to another server unless it is named", async () => {
  const headers: (string | null)[] = [];
  const spy = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request) {
      headers.push(request.headers.get("authorization"));
      return new Response("", { status: 400 });
    },
  });
  await command(["eval", "--policy", "openai:m", "--base-url", `${spy.url.origin}/v1`, "--episodes", "1"], undefined, {
    OPENAI_API_KEY: KEY,
  });
  spy.stop(true);
  // The model's card, and the first prompt.
  expect(headers).toEqual([null, null]);
});

test("the server is the one of OPENAI_BASE_URL, with its key, unless --base-url names another", async () => {
  const args = ["eval", "--env", "Bandit", "--policy", "openai:tiny", "--episodes", "2"];
  const ask = (variables: Record<string, string>) => commandHere(args, variables);
  const OPENAI_BASE_URL = `${server.url.origin}/v1`;
  expect(await ask({ OPENAI_BASE_URL, OPENAI_API_KEY: "" })).toMatchObject({ code: 0 });
  expect(await ask({ OPENAI_BASE_URL, OPENAI_API_KEY: KEY })).toMatchObject({ code: 0 });
  expect(keys).toEqual([null, null, `Bearer ${KEY}`, `Bearer ${KEY}`]);
  const { code, err } = await ask({ OPENAI_BASE_URL: "example" });
  expect([code, err]).toEqual([2, 'error: OPENAI_BASE_URL takes an address such as https://host/v1, got "example"\n']);
});

describe("a policy of bunraku serve", () => {
  const play = (...args: string[]) =>
    commandHere([
      "eval",
      "--policy",
      "openai:tiny",
      "--base-url",
      `${server.url.origin}/v1`,
      "--episodes",
      "1",
      ...args,
    ]);
  const served = (values: Tree) => servedCard(aConfig({ warmStart: { enabled: false }, ...values }));

  test("gets the prompts that it was trained with, also where they equal a default", async () => {
    const prompt = { compat: "ragen-v2", layout: "compact" };
    const env = { tag: "Bandit", turnsMax: 1, actionsMax: 1 };
    const trained = served({ env, prompt, rollout: { replyTokensMax: 77 } });
    card = { bunraku: { ...trained, prompt: { ...trained.prompt, contextTurnsMax: 3 } } };
    const file = join(folder, "served.jsonl");
    expect(await play("--results", file)).toMatchObject({ code: 0 });
    expect(prompts[0]).not.toContain("Always output:");
    // The server has the limit, unless the flag gives one.
    expect([...limits]).toEqual([undefined]);
    expect(JSON.parse(readFileSync(file, "utf8").split("\n")[0]!).settings).toMatchObject({ replyTokensMax: 77 });
    expect(await play("--reply-tokens", "9")).toMatchObject({ code: 0 });
    expect([...limits]).toEqual([undefined, 9]);
    // Budgets are those of the env that it plays.
    const { out } = await play("--env", "FrozenLake");
    expect(out).toStartWith("FrozenLake, 1 board from seed 123, at most 10 actions each\n");
  });

  test("trained on several envs plays the one that is named, with its own settings", async () => {
    const mix = [{ tag: "Bandit" }, { tag: "FrozenLake", name: "Ice", turnsMax: 2 }];
    card = { bunraku: served({ env: { mix } }) };
    const unnamed = await play();
    expect([unnamed.code, unnamed.err]).toEqual([
      2,
      "error: this policy was trained on several envs; name one with --env: Bandit, Ice\n",
    ]);
    const { code, out } = await play("--env", "Ice", "--json");
    expect(code).toBe(0);
    expect(JSON.parse(out.trimEnd().split("\n").at(-1)!)).toMatchObject({ env: "FrozenLake" });
    expect(requests).toBeLessThanOrEqual(2);
    expect(out).toStartWith("Ice (FrozenLake), ");
  });
});

describe("refused with exit code 2 and one line", () => {
  test.each([
    [["--policy", "openai:gpt"], /needs a key in the environment variable OPENAI_API_KEY, which is not set/],
    [["--policy", "anthropic:m"], /ANTHROPIC_API_KEY, which is not set/],
    [["--policy", "openai:m", "--base-url", "example"], /--base-url takes an address/],
    [["--policy", "openai:m", "--base-url", "https://me:pw@host/v1"], /host and path only/],
    [["--policy", "openai:m", "--base-url", "https://host/v1?key=x"], /host and path only/],
    [
      ["--policy", "openai:m", "--base-url", "http://127.0.0.1:1", "--key-env", "NONE"],
      /variable NONE, which is not set/,
    ],
    [
      ["--policy", "openai:m", "--base-url", "http://127.0.0.1:1", "--key-env", "SPACED"],
      /the key in SPACED has spaces/,
    ],
    [
      ["--policy", "openai:m", "--base-url", "http://127.0.0.1:1", "--timeout-s", "0"],
      /--timeout-s must be above 0, got 0/,
    ],
    [["--policy", "openai:m", "--base-url", "http://127.0.0.1:1", "--temperature=-1"], /must be 0 or more, got -1/],
    [["--policy", "openai:m", "--base-url", "http://127.0.0.1:1", "--env.mix.0.tag=Bandit"], /except env\.mix, prompt/],
    [["--policy", "openai:m", "--base-url", "http://example.com/v1", "--key-env", "HOME"], /is not encrypted/],
    [
      ["--policy", "openai:m", "--base-url", "http://127.0.0.1:1", "--concurrency", "0"],
      /--concurrency takes a whole number, 1 or more, got "0"/,
    ],
    [
      ["--policy", "openai:m", "--base-url", "http://127.0.0.1:1", "--learner.gamma=1"],
      /takes keys of env and prompt, except env\.mix/,
    ],
    [["--policy", "random", "--tries", "2"], /--tries is for hosted models/],
    [
      ["--policy", "random,openai:m", "--results", "x.jsonl"],
      /--results cannot mix a hosted model with other policies/,
    ],
    [
      ["--policy", "openai:m,random", "--results", "x.jsonl"],
      /--results cannot mix a hosted model with other policies/,
    ],
    [["--policy", "random,openai:m"], /OPENAI_API_KEY, which is not set/],
    [["--policy", "openai:m", "--checkpoint", "u1"], /--checkpoint is for a run's policy/],
    [
      ["--policy", "openai:m", "--env", "Bandit,BanditRev", "--results", "x.jsonl"],
      /--results of a hosted model holds the episodes of one env only/,
    ],
  ])("%p", async (args, told) => {
    const keys = { OPENAI_API_KEY: "", ANTHROPIC_API_KEY: "", SPACED: "two words" };
    expectRefusal(await commandHere(["eval", ...args], keys), told);
  });
});
