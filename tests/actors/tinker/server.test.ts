/** The client of Tinker's protocol, over real connections to a server that fails where a test asks for it. The client's clock skips every wait. */
import { afterEach, expect, test } from "bun:test";
import { z } from "zod";
import type { Clock } from "../../../actors/clock.ts";
import { ModelServer } from "../../../actors/tinker/server.ts";
import { figure, ms } from "../../figure.ts";

const WAITS_MS = [250, 500, 1000, 2000, 4000, 5000];

/** Time passes only by waits, and those are over at once. The deadline of a try, which is no wait, never comes. */
class SkippingClock implements Clock {
  #now = 0;
  readonly waits: number[] = [];

  now(): number {
    return this.#now;
  }

  after(delayMs: number, run: () => void): () => void {
    if (!WAITS_MS.includes(delayMs)) return () => {};
    this.waits.push(delayMs);
    this.#now += delayMs;
    const timer = setImmediate(run);
    return () => clearImmediate(timer);
  }
}

type Answer = (path: string) => Response;

const open: { stop(force: boolean): Promise<void> }[] = [];
afterEach(async () => {
  for (const server of open.splice(0)) await server.stop(true);
});

function stage(answers: readonly Answer[], afterFetch: (path: string) => void = () => {}) {
  const paths: string[] = [];
  const left = [...answers];
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    fetch(request) {
      const path = new URL(request.url).pathname;
      paths.push(path);
      return left.shift()!(path);
    },
  });
  open.push(server);
  const clock = new SkippingClock();
  const warnings: string[] = [];
  const client = new ModelServer({
    url: `http://127.0.0.1:${server.port}`,
    root: "/api/v1/",
    deadlineMs: 60_000,
    clock,
    warn: (text) => warnings.push(text),
    async fetch(url, init) {
      const response = await fetch(url, init);
      afterFetch(url);
      return response;
    },
  });
  return { server, client, clock, paths, warnings };
}

const Value = z.object({ value: z.number() });
const json =
  (body: unknown, status = 200) =>
  () =>
    Response.json(body, { status });
const queued = json({ request_id: "7" });
const done = json({ value: 5 });
const failing = (detail: string, status: number) => json({ detail }, status);
const lines = (promise: Promise<unknown>) => promise.then(String, (error: Error) => error.message);

test("a result is asked for until it is there", async () => {
  const { client, paths, clock, warnings } = stage([queued, failing("wait", 408), failing("wait", 408), done]);
  expect(await client.result("forward", {}, Value, true)).toEqual({ value: 5 });
  expect(paths).toEqual(["/api/v1/forward", ...new Array(3).fill("/api/v1/retrieve_future")]);
  expect([clock.waits, warnings]).toEqual([[250, 500], []]);
});

test("a request that the server did not take is sent again, also one that trains", async () => {
  const { client, paths, warnings } = stage([failing("busy", 503), failing("creating", 425), queued, done]);
  expect(await client.result("optim_step", {}, Value, false)).toEqual({ value: 5 });
  expect(paths.filter((path) => path.endsWith("optim_step"))).toHaveLength(3);
  expect(warnings).toEqual([`the server at ${client.url}, optim_step: answers 503: busy; trying again`]);
});

test("a fault on the way to a sample is tried again; with a step that trains it is not", async () => {
  const fault = () => new Response("Internal Server Error", { status: 500 });
  const sample = stage([fault, queued, fault, done]);
  expect(await sample.client.result("asample", {}, Value, true)).toEqual({ value: 5 });
  const step = stage([fault]);
  expect(await lines(step.client.result("forward_backward", {}, Value, false))).toContain(
    "forward_backward: answers 500: Internal Server Error; the answer is lost, and forward_backward cannot",
  );
});

test("a server that is away is asked until the deadline", async () => {
  const { client, server, clock } = stage([]);
  await server.stop(true);
  expect(await lines(client.result("optim_step", {}, Value, false))).toBe(
    `the server at ${client.url}, optim_step: cannot be reached; no result in 60 s (engine.deadlineMs)`,
  );
  expect(clock.waits.slice(0, 6)).toEqual([250, 500, 1000, 2000, 4000, 5000]);
  expect(clock.now()).toBeLessThan(60_000);
  figure("training server away", { "gave up after": ms(clock.now()) });
});

test("a lost answer: a step that trains is not repeated, a sample is", async () => {
  const loses = (name: string) => {
    let lost = false;
    return (url: string) => {
      if (lost || !url.endsWith(name)) return;
      lost = true;
      throw Object.assign(new Error("reset"), { code: "ECONNRESET" });
    };
  };
  const step = stage([queued], loses("optim_step"));
  expect(await lines(step.client.result("optim_step", {}, Value, false))).toContain(
    "optim_step: the connection broke (ECONNRESET); the answer is lost, and optim_step cannot be sent twice",
  );
  expect(step.paths).toHaveLength(1);
  figure("answer to a training step lost", { "steps sent twice": step.paths.length - 1 });
  const sample = stage([queued, queued, done], loses("asample"));
  expect(await sample.client.result("asample", {}, Value, true)).toEqual({ value: 5 });
  expect(sample.paths.filter((path) => path.endsWith("asample"))).toHaveLength(2);
});

test("a lost result is fetched again, and the step is not", async () => {
  let lost = false;
  const { client, paths } = stage([queued, done, done], (url) => {
    if (lost || !url.endsWith("retrieve_future")) return;
    lost = true;
    throw Object.assign(new Error("reset"), { code: "ECONNRESET" });
  });
  expect(await client.result("optim_step", {}, Value, false)).toEqual({ value: 5 });
  expect(paths.filter((path) => path.endsWith("optim_step"))).toHaveLength(1);
});

test.each([
  ["a model that is gone", failing("Model model_1 not loaded", 400), "forward: answers 400: Model model_1 not loaded"],
  ["an error of the server", failing("Unknown error", 500), "forward: answers 500: Unknown error"],
  ["another format", json({ value: "five" }), "forward: answers in another format (value: "],
  ["no JSON", () => new Response("<html>"), "forward: its answer is not JSON ("],
  [
    "a redirect",
    () => Response.redirect("http://127.0.0.1:1/"),
    "forward: answers with a redirect, and Bunraku follows none",
  ],
])("%s is one line", async (_, answer, text) => {
  const { client } = stage([queued, ...new Array(99).fill(answer)]);
  const line = await lines(client.result("forward", {}, Value, true));
  expect(line).toContain(`the server at ${client.url}, ${text}`);
  expect(line).not.toContain("\n");
});

test("close ends open requests", async () => {
  const asked = Promise.withResolvers<void>();
  const never = Promise.withResolvers<Response>();
  const { client } = stage([
    () => {
      asked.resolve();
      return never.promise as never;
    },
  ]);
  const answer = lines(client.ask("create_session", {}, Value));
  await asked.promise;
  client.close();
  expect(await answer).toBe(`the server at ${client.url}, create_session: stopped`);
});
