/** `bun run serve` as a process, talked to by OpenAI's own client; and what its app refuses. */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import OpenAI from "openai";
import { type CompletionsOptions, completionsApp } from "../../actors/policy/completions.ts";
import type { Reply, ReplyRequest } from "../../model/decode/generate.ts";
import { builtinDialogue } from "../../model/text/chat.ts";
import { Tokenizer } from "../../model/text/tokenizer.ts";
import { playRun, tinyConfig, tinySettings } from "../actors/supervisor/tiny-run.ts";
import { aConfig } from "../fixtures.ts";
import { testWhere } from "../needs.ts";
import { childEnv, command, commandHere, root } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

const folder = join(temporaryFolder(), "taught");
const secret = join(temporaryFolder(), "secret");
const question = { role: "user", content: "1 left Dragon Phoenix" } as const;

/** A virtual environment with verifiers and uv (examples/verifiers_bandit.py). */
const verifiers = process.env["BUNRAKU_VERIFIERS"] ?? null;

const serve = (...args: string[]) => serveRun(folder, ...args);

async function serveRun(run: string, ...args: string[]) {
  const child = Bun.spawn([process.execPath, "scripts/run.ts", "serve", run, "--port", "0", ...args], {
    cwd: root,
    env: childEnv(),
    stdio: ["ignore", "pipe", "inherit"],
  });
  const reader = child.stdout.getReader();
  let said = "";
  while (!said.includes("\n")) said += new TextDecoder().decode((await reader.read()).value);
  return { child, said, url: /http:\S+/.exec(said)![0] };
}

/** What the client throws. */
async function failure(asked: PromiseLike<unknown>): Promise<Error> {
  try {
    await asked;
  } catch (error) {
    return error as Error;
  }
  throw new Error("the client threw nothing");
}

async function waitUntil(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((next) => setImmediate(next));
}

const metricsOf = async (app: { request(url: string): Response | Promise<Response> }): Promise<string> =>
  (await app.request("http://localhost/metrics")).text();

let server: Awaited<ReturnType<typeof serve>>;
let client: OpenAI;
beforeAll(async () => {
  await playRun(folder, tinyConfig(folder, { samplers: 1, warmStart: "shared" }));
  writeFileSync(secret, "a secret of many letters\n");
  server = await serve("--token-file", secret);
  client = new OpenAI({ baseURL: server.url, apiKey: "a secret of many letters", maxRetries: 0 });
}, 300_000);
afterAll(() => server.child.kill());

describe("a served policy, asked by the openai client", () => {
  test("says which model it is, and replies as it would to an env", async () => {
    expect(server.said).toMatch(/^serving taught, u000003: http:\/\/127\.0\.0\.1:\d+\/v1\n$/);
    expect((await client.models.list()).data.map(({ id }) => id)).toEqual(["taught"]);
    const answer = await client.chat.completions.create({ model: "taught", messages: [question], temperature: 0 });
    const [choice] = answer.choices;
    expect(choice!.finish_reason).toBe("stop");
    expect(choice!.message.content).toMatch(/^<think>.*<\/think><answer>.*<\/answer>$/);
    const tokenizer = new Tokenizer();
    // The reply's own tokens and its end; its prefix was part of the prompt.
    const written = tokenizer.encode(choice!.message.content!.slice("<think>".length)).length + 1;
    expect(answer.usage).toMatchObject({ completion_tokens: written });
    expect(answer.usage!.total_tokens).toBe(answer.usage!.prompt_tokens + written);
  });

  test("streams the same reply piece by piece, and what it cost", async () => {
    const asked = { model: "taught", messages: [question], seed: 7, temperature: 1 };
    const whole = await client.chat.completions.create(asked);
    const pieces: string[] = [];
    const finishes: unknown[] = [];
    let usage: unknown = null;
    const stream = await client.chat.completions.create({
      ...asked,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const chunk of stream) {
      for (const { delta, finish_reason } of chunk.choices) {
        if (delta.content) pieces.push(delta.content);
        if (finish_reason !== null) finishes.push(finish_reason);
      }
      usage = chunk.usage ?? usage;
    }
    expect(pieces.join("")).toBe(whole.choices[0]!.message.content!);
    expect(finishes).toEqual([whole.choices[0]!.finish_reason]);
    expect(usage).toEqual(whole.usage!);
  });

  test("equal seeds give equal choices; a dialogue continues from its earlier replies", async () => {
    const ask = () => client.chat.completions.create({ model: "taught", messages: [question], n: 3, seed: 11 });
    const [first, again] = [await ask(), await ask()];
    expect(first.choices.map(({ message }) => message.content)).toEqual(
      again.choices.map(({ message }) => message.content),
    );
    expect(first.choices.map(({ index }) => index)).toEqual([0, 1, 2]);
    const reply = "<think>pull Dragon</think><answer>Dragon</answer>";
    const messages = [question, { role: "assistant", content: reply }, question] as const;
    const next = await client.chat.completions.create({ model: "taught", messages: [...messages] });
    expect(next.usage!.prompt_tokens).toBeGreaterThan(first.usage!.prompt_tokens);
  });

  test("cuts a reply where it was told to", async () => {
    const messages = [question];
    const short = await client.chat.completions.create({ model: "taught", messages, max_completion_tokens: 2 });
    expect(short.choices[0]!.finish_reason).toBe("length");
    expect(short.usage!.completion_tokens).toBe(2);
  });

  test("errors are those that the client knows", async () => {
    const stranger = new OpenAI({ baseURL: server.url, apiKey: "guessed", maxRetries: 0 });
    expect(await failure(stranger.models.list())).toBeInstanceOf(OpenAI.AuthenticationError);
    const ask = (more: object) =>
      failure(client.chat.completions.create({ model: "taught", messages: [question], ...more } as never));
    expect((await ask({ model: "gpt-4o" })).message).toBe('404 no model "gpt-4o"; taught is served here');
    expect(await ask({ tools: [] })).toMatchObject({
      message: "400 tools is not supported by this server; leave it out",
      param: "tools",
    });
    expect((await ask({ max_tokens: 100_000 })).message).toMatch(
      /^400 \d+ tokens of messages and 100000 of reply do not fit into a context of \d+$/,
    );
    expect((await ask({ messages: [question, { role: "assistant", content: "Dragon" }] })).message).toBe(
      '400 messages: a reply must begin with <think>, found "Dragon"',
    );
    expect(await ask({ temperature: 3 })).toBeInstanceOf(OpenAI.BadRequestError);
  });

  test("reports log-probabilities, and the likeliest tokens beside each", async () => {
    const asked = { model: "taught", messages: [question], temperature: 0, logprobs: true, top_logprobs: 3 };
    const [choice] = (await client.chat.completions.create(asked)).choices;
    const entries = choice!.logprobs!.content!;
    expect(`<think>${entries.map(({ token }) => token).join("")}`).toBe(choice!.message.content!);
    for (const { token, logprob, top_logprobs } of entries) {
      expect(top_logprobs).toHaveLength(3);
      // A greedy policy writes the likeliest token.
      expect(top_logprobs[0]).toMatchObject({ token, logprob });
      expect(logprob).toBeLessThanOrEqual(0);
      expect(top_logprobs[0]!.logprob).toBeGreaterThanOrEqual(top_logprobs[1]!.logprob);
    }
  });

  test("gives the tokens of prompt and reply as vLLM does, log-probabilities beside each", async () => {
    const dialogue = builtinDialogue();
    const prompt = dialogue.promptTokens([question], { first: true, prefix: "<think>" });
    const more = { model: "taught", temperature: 0, return_token_ids: true } as const;
    const chat = await client.chat.completions.create({ ...more, messages: [question], logprobs: true });
    expect(chat as object).toMatchObject({ prompt_token_ids: prompt });
    const [choice] = chat.choices;
    const { token_ids } = choice as unknown as { token_ids: number[] };
    expect(dialogue.replyText(token_ids, "<think>")).toBe(choice!.message.content!);
    // The stop token is written too.
    expect(token_ids.at(-1)).toBe(dialogue.stops[0]!);
    expect(token_ids).toHaveLength(chat.usage!.completion_tokens);
    expect(choice!.logprobs!.content!).toHaveLength(token_ids.length);
    const text = await client.completions.create({ ...more, prompt: question.content, logprobs: 1 });
    expect(text.choices[0] as object).toMatchObject({ prompt_token_ids: prompt, token_ids });
    expect(text.choices[0]!.logprobs!.token_logprobs).toEqual(choice!.logprobs!.content!.map(({ logprob }) => logprob));
  });

  testWhere(
    verifiers === null ? "BUNRAKU_VERIFIERS is not set" : null,
    "is evaluated by verifiers, which gets the replies that an env gets",
    async () => {
      const env = {
        ...process.env,
        PATH: `${verifiers}/bin:${process.env["PATH"]}`,
        BUNRAKU_TOKEN: "a secret of many letters",
      };
      const script = join(root, "examples/verifiers_bandit.py");
      const child = Bun.spawn(["python", script, server.url, "taught", "2"], {
        env,
        stdio: ["ignore", "pipe", "inherit"],
      });
      const said = (await child.stdout.text()).trim().split("\n").at(-1)!;
      const answer = await client.chat.completions.create({ model: "taught", messages: [question], temperature: 0 });
      const reply = answer.choices[0]!.message.content!;
      const reward = Number(reply.endsWith("<answer>Dragon</answer>"));
      expect(JSON.parse(said)).toEqual(Array(2).fill({ reply, reward, errors: [] }));
    },
    240_000,
  );

  test("completes a text as it answers a message, with response_format text", async () => {
    const chat = await client.chat.completions.create({
      model: "taught",
      messages: [question],
      temperature: 0,
      response_format: { type: "text" },
    });
    const text = await client.completions.create({
      model: "taught",
      prompt: question.content,
      temperature: 0,
      logprobs: 2,
    });
    const [choice] = text.choices;
    expect(text.object).toBe("text_completion");
    expect(choice!.text).toBe(chat.choices[0]!.message.content!);
    expect(choice!.logprobs!.tokens!.length).toBe(text.usage!.completion_tokens - 1);
  });

  test("ends at SIGTERM with exit code 0", async () => {
    const other = await serve("--token-file", secret);
    other.child.kill("SIGTERM");
    expect(await other.child.exited).toBe(0);
  });
});

describe("serve's own example", () => {
  const sokoban = join(temporaryFolder(), "sokoban");
  beforeAll(async () => {
    const few = { learner: { updates: 1 }, validate: { episodes: 8 } };
    await playRun(sokoban, aConfig(tinySettings(sokoban), few));
  }, 300_000);

  test("evaluates a served policy of SimpleSokoban in the form that it was trained in: as eval of the run", async () => {
    const example = (await commandHere(["serve", "--help"])).out
      .split("\n")
      .find((line) => line.includes("bun run eval"));
    const { child, url } = await serveRun(sokoban);
    try {
      const words = example!.trim().replace("openai:a", "openai:sokoban").replace("http://127.0.0.1:8000/v1", url);
      const args = words.split(" ").slice("bun run".split(" ").length);
      const same = ["--episodes", "24", "--temperature", "0", "--json"];
      // More requests at once than slots: they wait.
      const served = await command([...args, ...same, "--concurrency", "24"]);
      expect(served).toMatchObject({ code: 0 });
      const own = await commandHere(["eval", "--policy", sokoban, ...same]);
      const numbers = ({ out }: { out: string }) => {
        const { policy: _, usage, ...rest } = JSON.parse(out.trimEnd().split("\n").at(-1)!);
        return { rest, retries: usage?.retries ?? 0 };
      };
      expect(numbers(served)).toEqual(numbers(own));
    } finally {
      child.kill();
    }
  }, 300_000);
});

describe("the app", () => {
  const dialogue = builtinDialogue();
  const written = dialogue.replyTokens("<think>a</think><answer>b</answer>", "<think>");

  function stage(changes: Partial<CompletionsOptions> = {}) {
    const held: { request: ReplyRequest; done: (reply: Reply) => void }[] = [];
    const app = completionsApp({
      dialogue,
      prefix: "<think>",
      model: "m",
      slots: 2,
      queueMax: 0,
      card: {},
      contextTokensMax: 100,
      replyTokensMax: 20,
      temperature: 1,
      token: null,
      wallClock: () => 0,
      freshSeed: () => 5,
      policy: {
        open: async () => {},
        close: async () => {},
        written: async () => [],
        reply: (_, request) => new Promise((done) => void held.push({ request, done })),
      },
      ...changes,
    });
    const post = (
      body: unknown,
      url = "http://localhost",
      headers = { "Content-Type": "application/json" },
      path = "chat/completions",
      signal: AbortSignal | null = null,
    ) =>
      Promise.resolve(
        app.request(`${url}/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body), signal }),
      );
    const asked = { model: "m", messages: [question] };
    return { held, post, asked, app };
  }

  /** A policy that shows its reply a token at a time. The reply ends when all tokens were read, or by `end`. */
  function tokenByToken(reply: Reply) {
    const { promise, resolve } = Promise.withResolvers<Reply>();
    const policy: CompletionsOptions["policy"] = {
      open: async () => {},
      close: async () => {},
      reply: () => promise,
      async written(_, from) {
        if (from === reply.tokens.length) resolve(reply);
        return reply.tokens.slice(from, from + 1);
      },
    };
    return { policy, end: () => resolve(reply) };
  }

  test("writes as many replies as it has room for, and tells others to come again", async () => {
    const { held, post, asked } = stage();
    expect((await post({ ...asked, n: 3 })).status).toBe(400);
    const both = [post({ ...asked, n: 2 })];
    while (held.length < 2) await new Promise((next) => setImmediate(next));
    const third = await post(asked);
    expect([third.status, third.headers.get("Retry-After")]).toEqual([429, "1"]);
    expect(((await third.json()) as { error: { message: string } }).error.message).toBe(
      "2 of 2 replies are being written, and 0 of 0 wait; try again later",
    );
    for (const { done } of held) done({ tokens: [...written], logProbs: [], cut: false });
    expect((await both[0]!).status).toBe(200);
    const fourth = post(asked);
    while (held.length < 3) await new Promise((next) => setImmediate(next));
    held[2]!.done({ tokens: [...written], logProbs: [], cut: false });
    const answer = (await (await fourth).json()) as { choices: { message: { content: string } }[] };
    expect(answer.choices[0]!.message.content).toBe("<think>a</think><answer>b</answer>");
  });

  test("lets as many wait as its queue has room for, oldest first, and forgets those who leave", async () => {
    const { held, post, asked, app } = stage({ slots: 1, queueMax: 2 });
    const arrived = (count: number) => waitUntil(() => held.length === count);
    const first = post(asked);
    await arrived(1);
    const leaver = new AbortController();
    const gone = post(asked, undefined, undefined, undefined, leaver.signal);
    const third = post({ ...asked, seed: 3 });
    await waitUntil(async () => (await metricsOf(app)).includes("replies_waiting 2"));
    expect((await post(asked)).status).toBe(429);
    leaver.abort();
    await gone.catch(() => {});
    held[0]!.done({ tokens: [...written], logProbs: [], cut: false });
    expect((await first).status).toBe(200);
    await arrived(2);
    expect(held[1]!.request.coins.seed).toBe(3);
    held[1]!.done({ tokens: [...written], logProbs: [], cut: false });
    expect((await third).status).toBe(200);
    const metrics = await metricsOf(app);
    expect(metrics).toContain('bunraku_serve_requests_total{status="429"} 1');
    expect(metrics).toContain(`bunraku_serve_reply_tokens_total ${2 * written.length}`);
    expect(metrics).toContain("bunraku_serve_replies_running 0");
  });

  test("says that it lives, also to a name that it does not answer", async () => {
    const { app } = stage({ token: "secret" });
    expect(await (await app.request("http://other.example/healthz")).json()).toEqual({ status: "ok" });
    expect((await app.request("http://localhost/metrics")).status).toBe(401);
  });

  test("refuses what it does not support in words, with the field's name", async () => {
    const { post, asked } = stage();
    const refused = async (more: object, path = "chat/completions") => {
      const response = await post({ ...asked, ...more }, undefined, undefined, path);
      const { error } = (await response.json()) as { error: { message: string; param: string | null } };
      return [response.status, error.param, error.message];
    };
    expect(await refused({ response_format: { type: "json_object" } })).toEqual([
      400,
      "response_format.type",
      'response_format.type must be "text"; got "json_object"',
    ]);
    expect(await refused({ temperature: 3 })).toEqual([400, "temperature", "temperature must be at most 2; got 3"]);
    expect(await refused({ n: "two" })).toEqual([400, "n", 'n must be of type number; got "two"']);
    expect(await refused({ messages: undefined })).toEqual([
      400,
      "messages",
      "messages must be of type array; it is missing",
    ]);
    expect(await refused({ top_logprobs: 2 })).toEqual([400, "top_logprobs", "top_logprobs needs logprobs: true"]);
    expect((await refused({ return_token_ids: true, stream: true }))[2]).toBe(
      "return_token_ids is not supported with stream: true; leave one of them out",
    );
    expect(await refused({ logprobs: true, stream: true })).toEqual([
      400,
      "logprobs",
      "logprobs is not supported with stream: true; leave one of them out",
    ]);
    expect(await refused({ stop: ["a", "b", "c", "d", "e"] })).toEqual([
      400,
      "stop",
      'stop must be a text, or up to 4 texts; got ["a","b","c","d","e"]',
    ]);
    expect((await refused({ messages: [{ role: "user", content: "x".repeat(500) }] }))[1]).toBe("messages");
    // More tokens than a call may have arguments.
    const long = [{ role: "user", content: "~".repeat(1e6) }];
    expect((await refused({ messages: long }))[2]).toMatch(/^100000\d tokens of messages do not fit/);
    expect((await refused({ model: "other" }))[1]).toBe("model");
  });

  test.each(["whole", "streamed"])("ends a %s reply before a stop, which may come in pieces", async (kind) => {
    const all = dialogue.replyTokens("<think>go up now</think><answer>b</answer>", "<think>");
    const { policy, end } = tokenByToken({ tokens: all, logProbs: [], cut: true });
    const { post, asked } = stage({ policy });
    if (kind === "whole") end();
    const answer = await post({ ...asked, stop: ["p now", "</answer>"], stream: kind === "streamed" });
    const chunks =
      kind === "whole"
        ? [(await answer.json()) as never]
        : (await answer.text())
            .split("\n\n")
            .filter((event) => event.startsWith("data: {"))
            .map((event) => JSON.parse(event.slice("data: ".length)) as never);
    const choices = chunks.map(({ choices }: { choices: Record<string, unknown>[] }) => choices[0]!);
    const texts = choices.map(({ message, delta }) => ((message ?? delta) as { content?: string }).content ?? "");
    expect(texts.join("")).toBe("<think>go u");
    expect(choices.at(-1)!["finish_reason"]).toBe("stop");
  });

  test("gives the log-probabilities of the tokens that a reply has before a stop", async () => {
    const tokens = dialogue.replyTokens("<think>go ☃ now</think><answer>b</answer>", "<think>");
    const choices = tokens.map((token) => ({ token, logProb: -1, top: [] }));
    const { policy, end } = tokenByToken({ tokens, logProbs: [], cut: false, choices });
    const { post, asked } = stage({ policy });
    end();
    const shown = async (more: object) => {
      const { choices } = (await (await post({ ...asked, logprobs: true, ...more })).json()) as {
        choices: { logprobs: { content: { token: string }[] } }[];
      };
      return choices[0]!.logprobs.content.map(({ token }) => token).join("");
    };
    expect(await shown({})).toBe("go \ufffd\ufffd\ufffd now</think><answer>b</answer>");
    expect(await shown({ stop: " now" })).toBe("go \ufffd\ufffd\ufffd");
    expect(await shown({ stop: "go" })).toBe("");
  });

  test("streams a reply while it is written, whole characters at a time", async () => {
    const text = "<think>push ☃</think><answer>b</answer>";
    const all = dialogue.replyTokens(text, "<think>");
    const { policy } = tokenByToken({ tokens: all, logProbs: [], cut: false });
    const { post, asked } = stage({ policy });
    const answer = await post({ ...asked, stream: true });
    expect(answer.headers.get("Content-Type")).toStartWith("text/event-stream");
    const events = (await answer.text()).trim().split("\n\n");
    expect(events.at(-1)).toBe("data: [DONE]");
    const chunks = events.slice(0, -1).map((event) => JSON.parse(event.slice("data: ".length)));
    const pieces = chunks.map(({ choices }) => choices[0].delta.content).filter((content) => content);
    expect(pieces.join("")).toBe(text);
    expect(pieces.length).toBeGreaterThan(3);
    expect(pieces.join("|")).not.toContain("\ufffd");
    expect(pieces.some((piece) => piece.includes("☃"))).toBe(true);
  });

  test("passes sampling settings on; those left out are the run's", async () => {
    const { held, post, asked } = stage({ slots: 8 });
    void post(asked);
    void post({ ...asked, temperature: 0.25, top_p: 0.5, top_k: 4, seed: 3, max_tokens: 9 });
    while (held.length < 2) await new Promise((next) => setImmediate(next));
    const [usual, special] = held.map(({ request }) => request);
    expect(usual!.settings).toEqual({ temperature: 1, topP: 1, topK: 0 });
    expect([usual!.coins.seed, usual!.tokensMax]).toEqual([5, 20]);
    expect(special!.settings).toEqual({ temperature: 0.25, topP: 0.5, topK: 4 });
    expect([special!.coins.seed, special!.tokensMax]).toEqual([3, 9]);
  });

  test("answers loopback names only, takes JSON only, and nothing too large", async () => {
    const { post, asked } = stage();
    expect((await post(asked, "http://evil.example")).status).toBe(403);
    expect((await post(asked, undefined, { "Content-Type": "text/plain" })).status).toBe(415);
    const huge = { ...asked, messages: [{ role: "user", content: "x".repeat(1 << 20) }] };
    expect((await post(huge)).status).toBe(413);
    expect((await post([])).status).toBe(400);
  });

  test("counts a request by its status, also one that it refuses before it reads the request", async () => {
    const open = stage();
    await open.post(open.asked, "http://evil.example");
    await open.post({ ...open.asked, messages: [{ role: "user", content: "x".repeat(1 << 20) }] });
    await open.post([], undefined, undefined, "completions");
    const guarded = stage({ token: "secret" });
    await guarded.post(guarded.asked);
    const headers = { Authorization: "Bearer secret" };
    const counts = async ({ app }: typeof open) => {
      const text = await (await app.request("http://localhost/metrics", { headers })).text();
      return text.split("\n").filter((line) => line.startsWith("bunraku_serve_requests_total{"));
    };
    const total = (status: number) => `bunraku_serve_requests_total{status="${status}"} 1`;
    expect([await counts(open), await counts(guarded)]).toEqual([[403, 413, 400].map(total), [total(401)]]);
  });
});

test.each([
  [["serve"], "name the folder of a run"],
  [
    ["serve", "runs/a", "--host", "0.0.0.0"],
    "--host 0.0.0.0: other machines could use the policy without a secret; set --token-file, or use 127.0.0.1",
  ],
  [["serve", "runs/a", "--prot", "1"], "serve has no flag --prot; did you mean --port?"],
  [["serve", "runs/a", "--port", "99999"], '--port takes a number from 0 to 65535, got "99999"'],
])("%p is refused in one line", async (args, message) => {
  expect(await commandHere(args)).toEqual({ code: 2, out: "", err: `error: ${message}\n` });
});
