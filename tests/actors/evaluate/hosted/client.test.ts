/** The client of hosted models against a real local server that refuses, delays, and talks nonsense; time is simulated. */
import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { type ClientOptions, HostedClient, retryAfter } from "../../../../actors/evaluate/hosted/client.ts";
import { anthropic, openai } from "../../../../actors/evaluate/hosted/provider.ts";
import { FakeClock } from "../../fake-clock.ts";

const KEY = "sk-very-secret-0123456789";
const TIMEOUT_MS = 5000;

interface Seen {
  readonly path: string;
  readonly headers: Headers;
  readonly body: Record<string, unknown>;
}

type Answer = (seen: Seen) => Response | Promise<Response>;
const seen: Seen[] = [];
let answers: Answer[] = [];
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    const one = { path: new URL(request.url).pathname, headers: request.headers, body: await request.json() };
    seen.push(one as Seen);
    return (answers.length > 1 ? answers.shift()! : answers[0]!)(one as Seen);
  },
});
afterAll(() => server.stop(true));

/** Waits are over at once, and noted; only the limit of an answer is waited for, until a test moves the clock. */
class Waits extends FakeClock {
  readonly waited: number[] = [];

  override after(delayMs: number, run: () => void): () => void {
    if (delayMs === TIMEOUT_MS) return super.after(delayMs, run);
    this.waited.push(delayMs);
    let cancelled = false;
    queueMicrotask(() => {
      if (cancelled) return;
      this.advance(delayMs);
      run();
    });
    return () => {
      cancelled = true;
    };
  }
}

let clock = new Waits();
const warnings: string[] = [];
beforeEach(() => {
  clock = new Waits();
  seen.length = 0;
  warnings.length = 0;
});

const clientOf = (changed: Partial<ClientOptions> = {}) =>
  new HostedClient({
    provider: openai,
    model: "tiny",
    baseUrl: `${server.url.origin}/v1`,
    key: KEY,
    temperature: 0,
    replyTokensMax: 64,
    triesMax: 4,
    timeoutMs: TIMEOUT_MS,
    fetch: (url, init) => fetch(url, init),
    clock,
    wallClock: () => Date.UTC(2026, 10, 20, 12, 0, 0),
    uniform: () => 0.5,
    warn: (text) => void warnings.push(text),
    ...changed,
  });

const good: Answer = () =>
  Response.json({
    choices: [{ message: { role: "assistant", content: "<answer>Up</answer>" }, finish_reason: "stop" }],
    usage: { prompt_tokens: 40, completion_tokens: 5, total_tokens: 45 },
  });
const refuse = (status: number, headers: Record<string, string> = {}): Answer => {
  return () => new Response(`no: Bearer ${KEY} \u001b[31mis\u0000 bad`, { status, headers });
};
const ask = [
  { role: "system", content: "Play." },
  { role: "user", content: "Where?" },
] as const;

describe("an answer", () => {
  test("of an OpenAI-compatible server is its text, and what it cost", async () => {
    answers = [good];
    const client = clientOf();
    expect(await client.complete(ask)).toEqual({
      text: "<answer>Up</answer>",
      cut: false,
      inputTokens: 40,
      outputTokens: 5,
    });
    expect(seen[0]!.path).toBe("/v1/chat/completions");
    expect(seen[0]!.headers.get("authorization")).toBe(`Bearer ${KEY}`);
    expect(seen[0]!.body).toEqual({ model: "tiny", messages: ask, max_tokens: 64, temperature: 0 });
    expect(client.usage).toEqual({ requests: 1, retries: 0, inputTokens: 40, outputTokens: 5 });
  });

  test("of Anthropic's API likewise, with the system message beside the others", async () => {
    answers = [
      () =>
        Response.json({
          content: [
            { type: "text", text: "<answer>" },
            { type: "text", text: "Up" },
          ],
          stop_reason: "max_tokens",
          usage: { input_tokens: 40, output_tokens: 64 },
        }),
    ];
    const client = clientOf({ provider: anthropic, temperature: null });
    expect(
      await client.complete([...ask, { role: "assistant", content: "" }, { role: "user", content: "And?" }]),
    ).toEqual({
      text: "<answer>Up",
      cut: true,
      inputTokens: 40,
      outputTokens: 64,
    });
    const { path, headers, body } = seen[0]!;
    expect([path, headers.get("x-api-key"), headers.get("anthropic-version")]).toEqual([
      "/v1/messages",
      KEY,
      "2023-06-01",
    ]);
    expect(body).toEqual({
      model: "tiny",
      max_tokens: 64,
      system: "Play.",
      messages: [
        { role: "user", content: "Where?" },
        { role: "assistant", content: "(no answer)" },
        { role: "user", content: "And?" },
      ],
    });
  });

  test("without a key gets requests without one", async () => {
    answers = [good];
    await clientOf({ key: null }).complete(ask);
    expect(seen[0]!.headers.get("authorization")).toBe(null);
  });
});

describe("what fails in passing is tried again", () => {
  test.each([408, 429, 500, 502, 503, 529])("status %p", async (status) => {
    answers = [refuse(status), refuse(status), good];
    const client = clientOf();
    expect((await client.complete(ask)).text).toBe("<answer>Up</answer>");
    // Half of one second, then half of two: chance is always 0.5 here.
    expect(clock.waited).toEqual([500, 1000]);
    expect(client.usage).toMatchObject({ requests: 3, retries: 2 });
  });

  test.each([
    ["no JSON", () => new Response("<html>oops</html>")],
    ["JSON of another kind", () => Response.json({ choices: [] })],
    ["an empty body", () => new Response("")],
    ["a redirect", () => new Response(null, { status: 302, headers: { location: "http://127.0.0.1:1/" } })],
    ["more than is taken in", () => new Response(new Uint8Array((4 << 20) + 1))],
  ])("%s", async (_, garbage) => {
    answers = [garbage, good];
    expect((await clientOf().complete(ask)).text).toBe("<answer>Up</answer>");
    expect(seen.length).toBe(2);
  });

  test("an answer that does not come in time", async () => {
    answers = [
      () => {
        clock.advance(TIMEOUT_MS);
        return new Promise<Response>(() => {});
      },
      good,
    ];
    expect((await clientOf().complete(ask)).text).toBe("<answer>Up</answer>");
    expect(warnings[0]).toContain("no answer in 5 s; trying again in 0.5 s");
  });

  test("an answer that is no JSON is shown, without the key", async () => {
    answers = [() => new Response(`<html>oops ${KEY}</html>`)];
    await expect(clientOf({ triesMax: 1 }).complete(ask)).rejects.toThrow(
      ": the answer is no JSON, so the address may be wrong: <html>oops (hidden)</html>",
    );
  });

  test("no server there", async () => {
    const client = clientOf({ baseUrl: "http://127.0.0.1:1/v1", triesMax: 2 });
    await expect(client.complete(ask)).rejects.toThrow(/^tiny at http:\/\/127\.0\.0\.1:1\/v1: .*\(2 tries\)$/);
  });
});

describe("Retry-After", () => {
  test("is kept to, by all requests, with a little chance on top", async () => {
    answers = [refuse(429, { "retry-after": "20" }), good];
    const client = clientOf();
    await Promise.all([client.complete(ask), client.complete(ask)]);
    expect(Math.max(...clock.waited)).toBe(20_500);
    answers = [refuse(503, { "retry-after": "Fri, 20 Nov 2026 12:00:07 GMT" }), good];
    clock.waited.length = 0;
    await client.complete(ask);
    expect(clock.waited[0]).toBe(7500);
  });

  test("that is too long ends it", async () => {
    answers = [refuse(429, { "retry-after": "86400" })];
    await expect(clientOf().complete(ask)).rejects.toThrow(
      "its Retry-After is 86400 s, and the client waits at most 600 s",
    );
    expect(clock.waited).toEqual([]);
  });

  test.each([
    ["1.5", 1500],
    ["0", 0],
    ["-3", null],
    ["soon", null],
    ["", null],
    [null, null],
    ["Thu, 01 Jan 1970 00:00:09 GMT", 8000],
    ["Thu, 01 Jan 1970 00:00:00 GMT", 0],
  ])("%p is read as %p ms", (header, ms) => {
    expect(retryAfter(header, 1000)).toBe(ms);
  });
});

describe("what fails for good", () => {
  test.each([400, 401, 403, 404, 422])("is not tried again: status %p", async (status) => {
    answers = [refuse(status)];
    await expect(clientOf().complete(ask)).rejects.toThrow(new RegExp(`: status ${status}: no`));
    expect(seen.length).toBe(1);
  });

  test("ends after so many tries", async () => {
    answers = [refuse(500)];
    await expect(clientOf({ triesMax: 3 }).complete(ask)).rejects.toThrow(/status 500: no.*\(3 tries\)$/);
    expect(seen.length).toBe(3);
  });

  test("quotes the server's answer on one line, without the key and without terminal control characters", async () => {
    answers = [refuse(401)];
    const error = await clientOf()
      .complete(ask)
      .catch((error: Error) => error);
    expect((error as Error).message).toEndWith("status 401: no: Bearer (hidden) [31mis bad");
    answers = [refuse(500), refuse(401)];
    await clientOf()
      .complete(ask)
      .catch(() => {});
    expect(warnings.join()).not.toContain(KEY);
  });

  test("a stopped client asks nothing more, and wakes who waits", async () => {
    class Asleep extends FakeClock {}
    const still = new Asleep();
    answers = [refuse(500)];
    const client = clientOf({ clock: still, warn: () => client.stop() });
    await expect(client.complete(ask)).rejects.toThrow("not sent: the evaluation was stopped");
    expect(seen.length).toBe(1);
  });
});
