/** What only sockets can do wrong: other processes and threads, HTTP on the port, who may bind where. */

import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import type { Messages } from "../../../actors/protocol.ts";
import { watchSilence } from "../../../actors/transport/silence.ts";
import { SocketTransport } from "../../../actors/transport/socket.ts";
import type { Handler, Problem } from "../../../actors/transport/transport.ts";
import { endsOfTests } from "../../ends.ts";
import { figure } from "../../figure.ts";
import { FakeClock } from "../fake-clock.ts";
import { TOKEN } from "./stage.ts";

const limits = { clock: realClock, token: TOKEN, frameBytesMax: 1 << 20, queuedBytesMax: 4 << 20 };
const idle: Handler = { told() {}, asked: () => ({ type: "failed", code: "protocol", detail: "nothing to ask here" }) };
const open: Messages["env.open"] = { type: "env.open", episode: "e1", env: "bandit", layoutSeed: 1, dynamicsSeed: 2 };
const step: Messages["env.step"] = { type: "env.step", episode: "e1", turn: 0, reply: "left" };

const ends = endsOfTests();

async function echoProcess() {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "echo.ts")], {
    stdin: "pipe",
    stdout: "pipe",
  });
  ends.push(() => child.kill("SIGKILL"));
  for await (const line of child.stdout.pipeThrough(new TextDecoderStream())) return { child, address: line.trim() };
  throw new Error("the echo process said nothing");
}

/** A handler whose `closed` can be awaited. */
function closing(): Handler & { readonly reason: Promise<string> } {
  const { promise, resolve } = Promise.withResolvers<string>();
  return { ...idle, closed: (_, reason) => resolve(reason), reason: promise };
}

describe("a socket to another process", () => {
  test("answers what waits with a failure when that process is killed", async () => {
    const { child, address } = await echoProcess();
    const handler = closing();
    const peer = await new SocketTransport(limits).connect(address, handler);
    expect(await peer.ask(open, 10_000)).toMatchObject({ observation: "from another process" });
    const waiting = peer.ask(step, 60_000);
    child.kill("SIGKILL");
    expect(await waiting).toMatchObject({ type: "failed", code: "closed" });
    expect(await handler.reason).toContain("the connection was lost");
  });

  test("is given up when that process is stopped, and says how long it was silent", async () => {
    const { child, address } = await echoProcess();
    const handler = closing();
    const peer = await new SocketTransport({ ...limits, silenceMsMax: 200 }).connect(address, handler);
    const waiting = peer.ask(step, 60_000);
    child.kill("SIGSTOP");
    expect(await waiting).toMatchObject({ type: "failed", code: "closed" });
    expect(await handler.reason).toMatch(/^nothing was heard for \d+ ms \(limit 200 ms\)$/);
  });

  test("holds no more than queuedBytesMax for a process that does not read", async () => {
    const { child, address } = await echoProcess();
    const peer = await new SocketTransport(limits).connect(address, idle);
    child.kill("SIGSTOP");
    let most = 0;
    while (!peer.closed) {
      peer.tell({ type: "stop", reason: "x".repeat(100_000) });
      most = Math.max(most, peer.queuedBytes);
      // The kernel takes what it can between the turns of the loop.
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(most).toBeGreaterThan(3 << 20);
    expect(most).toBeLessThanOrEqual(4 << 20);
    figure("slow consumer", { "given up at": `${most} bytes`, allowed: `${limits.queuedBytesMax} bytes` });
  });
});

test("what is sent while the other end closes the connection fails with its reason, and is no overflow", async () => {
  const problems: Problem[] = [];
  const listener = await new SocketTransport(limits).listen("ws://127.0.0.1:0", idle);
  const handler = closing();
  const report = (problem: Problem) => void problems.push(problem);
  const peer = await new SocketTransport({ ...limits, report }).connect(listener.address, handler);
  void listener.close();
  const answers: Promise<unknown>[] = [];
  // The client's thread is the listener's, so its socket closes in several turns of the event loop.
  while (!peer.closed) {
    answers.push(peer.ask(open, 10_000));
    await new Promise(setImmediate);
  }
  expect(await handler.reason).toBe("the listener closed");
  for (const answer of await Promise.all(answers)) expect(answer).toMatchObject({ type: "failed", code: "closed" });
  expect(problems).toEqual([]);
});

describe("a listening socket", () => {
  const listen = async (address: string, overrides = {}, fetch?: (request: Request) => Response) => {
    const transport = new SocketTransport({ ...limits, ...overrides });
    const listener = await transport.listen(address, idle, fetch === undefined ? {} : { fetch });
    ends.push(() => listener.close());
    return listener;
  };

  test("serves plain HTTP on the same port to requests with the token only", async () => {
    const problems: Problem[] = [];
    const listener = await listen(
      "ws://127.0.0.1:0",
      { report: (problem: Problem) => problems.push(problem) },
      (request) => new Response(`weights at ${new URL(request.url).pathname}`),
    );
    const url = `${listener.address.replace("ws:", "http:")}/weights/1`;
    const good = await fetch(url, { headers: { Authorization: `Bearer ${TOKEN}` } });
    expect(await good.text()).toBe("weights at /weights/1");
    expect((await fetch(url)).status).toBe(401);
    expect((await fetch(url, { headers: { Authorization: `Bearer ${TOKEN}x` } })).status).toBe(401);
    // The second came within a second of the first, so that it is only counted.
    expect(problems.map(({ detail }) => detail)).toEqual(["wrong token"]);
  });

  test("refuses a page in a browser, token or not", async () => {
    const listener = await listen("ws://127.0.0.1:0");
    const socket = new WebSocket(listener.address, {
      headers: { Authorization: `Bearer ${TOKEN}`, Origin: "https://example.org" },
    });
    const { promise, resolve } = Promise.withResolvers<string>();
    socket.onerror = (event) => resolve("message" in event ? String(event.message) : "");
    expect(await promise).toContain("403");
  });

  test("refuses to be reached from other hosts without a token", () => {
    expect(listen("ws://0.0.0.0:0", { token: "" })).rejects.toThrow(
      "cannot listen on ws://0.0.0.0:0: anyone could join. Set a token, or listen on 127.0.0.1.",
    );
  });

  test("names the port that is taken", async () => {
    const { address } = await listen("ws://127.0.0.1:0");
    expect(listen(address)).rejects.toThrow(`cannot listen on ${address}: `);
  });

  test.each(["tcp://127.0.0.1:1", "127.0.0.1:1", "ws:"])("refuses the address %s", (address) => {
    expect(listen(address)).rejects.toThrow(`cannot use ${address}: expected ws://HOST:PORT`);
  });
});

describe("watchSilence", () => {
  const SILENT = "nothing was heard for 1250 ms (limit 1000 ms)";

  function watch() {
    const clock = new FakeClock();
    const seen: string[] = [];
    const ping = () => seen.push(`ping at ${clock.now()}`);
    const made = watchSilence(clock, 1000, ping, (reason) => seen.push(reason));
    return { clock, seen, ...made };
  }

  test("pings four times per limit, and gives up after it", () => {
    const { clock, seen } = watch();
    clock.advance(5000);
    expect(seen).toEqual(["ping at 250", "ping at 500", "ping at 750", "ping at 1000", SILENT]);
  });

  test("never gives up while something is heard", () => {
    const { clock, seen, heard } = watch();
    for (let i = 0; i < 10; i++) {
      clock.advance(900);
      heard();
    }
    expect(seen.filter((line) => !line.startsWith("ping"))).toEqual([]);
  });

  test("does not blame the other end for our own sleep", () => {
    const { clock, seen } = watch();
    clock.jump(60_000);
    expect(seen).toEqual(["ping at 60000"]);
    clock.advance(1250);
    expect(seen.at(-1)).toBe(SILENT);
  });
});

test("a worker answers from its own thread, and everything that waits fails when it ends", async () => {
  const worker = new Worker(join(import.meta.dir, "echo.ts"));
  const address = await new Promise<string>((resolve) => {
    worker.onmessage = ({ data }) => resolve(data);
  });
  const handler = closing();
  const peer = await new SocketTransport(limits).connect(address, handler);
  expect(await peer.ask(open, 10_000)).toMatchObject({ observation: "from another thread" });
  const waiting = peer.ask(step, 60_000);
  worker.terminate();
  expect(await waiting).toMatchObject({ type: "failed", code: "closed" });
  expect(await handler.reason).toBe("Server closed");
  await expect(new SocketTransport(limits).connect(address, idle)).rejects.toThrow("nothing answers there");
});
