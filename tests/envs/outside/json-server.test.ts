/** The client of JSON servers, against a local server that misbehaves. */

import { afterAll, describe, expect, test } from "bun:test";
import { z } from "zod";
import { JsonServer, type ServerOptions, serverOptions } from "../../../envs/outside/json-server.ts";
import { behindProxy } from "../../behind-proxy.ts";

const Answer = z.object({ n: z.number() });
const requests: Request[] = [];
const bodies: string[] = [];
let answers: ((request: Request) => Response | Promise<Response>)[] = [];

/** Answers with the next of `answers`, and repeats the last one. */
const local = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    requests.push(request);
    bodies.push(await request.text());
    return (answers.length > 1 ? answers.shift()! : answers[0]!)(request);
  },
});
afterAll(() => local.stop(true));

const url = `http://127.0.0.1:${local.port}`;
const json =
  (value: unknown, status = 200) =>
  () =>
    Response.json(value, { status });

function ask(given: typeof answers, options: Partial<ServerOptions> = {}, signal?: AbortSignal) {
  answers = [...given];
  requests.length = 0;
  bodies.length = 0;
  const standard = z.object(serverOptions).parse({ retryMs: 1 });
  const server = new JsonServer({ ...standard, name: "the oracle", help: "Start it.", url, ...options });
  return server.ask("/ask", { question: 6 }, Answer, signal);
}

/** Fires the signal when the server has the request. @returns the error */
async function askAndLeave(answer: (typeof answers)[0], options: Partial<ServerOptions> = {}): Promise<unknown> {
  const leaving = new AbortController();
  const asked = Promise.withResolvers<void>();
  const answering = (request: Request) => {
    asked.resolve();
    return answer(request);
  };
  const error = ask([answering], options, leaving.signal).catch(String);
  await asked.promise;
  leaving.abort(new Error("closed"));
  return error;
}

describe("a server", () => {
  test("gets requests with POST and JSON", async () => {
    expect(await ask([json({ n: 42 })], { url: `${url}/` })).toEqual({ n: 42 });
    expect([requests[0]!.method, new URL(requests[0]!.url).pathname, bodies[0]!]).toEqual([
      "POST",
      "/ask",
      '{"question":6}',
    ]);
    expect(requests[0]!.headers.get("content-type")).toBe("application/json");
    expect(requests[0]!.headers.get("authorization")).toBeNull();
  });

  test.each([408, 429, 500, 502, 503])("gets the same request again after %p", async (status) => {
    const busy = json({ error: "busy" }, status);
    expect(await ask([busy, busy, json({ n: 1 })])).toEqual({ n: 1 });
    expect(bodies).toEqual(Array(3).fill('{"question":6}'));
  });

  test("is given up after its tries; the error has its last answer and what to do", async () => {
    expect(await ask([json({ error: "out of\n  REPLs" }, 503)]).catch(String)).toBe(
      `Error: the oracle at ${url}/ask after 3 tries: answers 503: out of REPLs. Start it.`,
    );
  });

  test.each([
    [400, { error: "no such env" }, "answers 400: no such env"],
    [422, { detail: [{ loc: ["body"] }] }, 'answers 422: [{"loc":["body"]}]'],
    [404, "not here", "answers 404: not here"],
    [401, "", "answers 401: nothing"],
  ] as const)("is not asked again after it refused with %p", async (status, body, said) => {
    const refuse = () => (typeof body === "string" ? new Response(body, { status }) : Response.json(body, { status }));
    expect(await ask([refuse]).catch(String)).toBe(`Error: the oracle at ${url}/ask: ${said}.`);
    expect(requests.length).toBe(1);
  });

  test("cannot redirect to another address", async () => {
    const away = () => new Response(null, { status: 307, headers: { location: "http://example.com/" } });
    expect(await ask([away]).catch(String)).toContain("redirects to http://example.com/, which is not followed");
    expect(requests.length).toBe(1);
  });

  test("may not answer endlessly", async () => {
    const endless = () =>
      new Response(
        new ReadableStream({
          pull(controller) {
            controller.enqueue(new TextEncoder().encode("0".repeat(1000)));
          },
        }),
      );
    const error = await ask([endless], { answerBytesMax: 5000 }).catch(String);
    expect(error).toContain("answers more than 5000 bytes (options.answerBytesMax)");
    expect(requests.length).toBe(1);
  });

  test("must answer in the schema's format", async () => {
    expect(await ask([() => new Response("<html>")]).catch(String)).toContain('answers "<html>", which is not JSON');
    expect(await ask([() => new Response('{"n": NaN}')]).catch(String)).toContain("which is not JSON");
    const latin1 = (status: number) => () =>
      new Response(Buffer.from('{"n": 1, "error": "café"}', "latin1"), { status });
    expect(await ask([latin1(200)]).catch(String)).toContain("answers bytes that are not UTF-8");
    // The reason of a failure is only shown.
    expect(await ask([latin1(503), json({ n: 1 })])).toEqual({ n: 1 });
    expect(await ask([json({ n: "1" })]).catch(String)).toContain(
      "answers in another format (n: Invalid input: expected number, received string)",
    );
  });

  test("must answer in time, and may be late once", async () => {
    const never = () => new Promise<Response>(() => {});
    expect(await ask([never, json({ n: 7 })], { timeoutMs: 40 })).toEqual({ n: 7 });
    expect(await ask([never], { timeoutMs: 20, retriesMax: 1 }).catch(String)).toContain(
      "after 2 tries: no answer in 20 ms. Start it.",
    );
  });

  test("that does not exist is an error that says so", async () => {
    const gone = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response() });
    const address = `http://127.0.0.1:${gone.port}`;
    await gone.stop(true);
    expect(await ask([json({})], { url: address, retriesMax: 0 }).catch(String)).toBe(
      `Error: the oracle at ${address}/ask: cannot be reached (ECONNREFUSED). Start it.`,
    );
  });

  test("is not asked again once the signal has fired", async () => {
    expect(await askAndLeave(() => new Promise<Response>(() => {}))).toBe("Error: closed");
    expect(requests.length).toBe(1);
  });
});

test("the signal also ends the delay between two tries", async () => {
  const busy = () => new Response(null, { status: 503 });
  expect(await askAndLeave(busy, { retryMs: 600_000 })).toBe("Error: closed");
});

test("requests to a server on this machine go direct, whatever proxy the environment names", async () => {
  await behindProxy(async () => {
    expect(await ask([json({ n: 1 })])).toEqual({ n: 1 });
    // The control: without the server's care the proxy would have been asked.
    expect(await (await fetch(url)).text()).toBe("asked the proxy");
  });
});

describe("a token", () => {
  const variable = "BUNRAKU_TEST_ORACLE_TOKEN";

  test("comes from the environment and goes into the header", async () => {
    process.env[variable] = "s3cret";
    await ask([json({ n: 1 })], { tokenVariable: variable });
    delete process.env[variable];
    expect(requests[0]!.headers.get("authorization")).toBe("Bearer s3cret");
  });

  test("that is not set is an error before anything is sent", async () => {
    expect(await ask([json({ n: 1 })], { tokenVariable: variable }).catch(String)).toBe(
      `Error: the oracle needs a token: set the environment variable ${variable}`,
    );
    expect(requests.length).toBe(0);
  });

  test("is not sent in the clear to another machine", async () => {
    process.env[variable] = "s3cret";
    const error = await ask([json({ n: 1 })], { tokenVariable: variable, url: "http://192.0.2.1:7100" }).catch(String);
    delete process.env[variable];
    expect(error).toContain("use https for 192.0.2.1");
    expect(error).not.toContain("s3cret");
  });
});
