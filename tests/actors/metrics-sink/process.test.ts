/** The metrics sink as a real process: killed, resumed, and a port in use. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { join } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import { RunConfig } from "../../../actors/config/config.ts";
import { Store } from "../../../actors/metrics-sink/store.ts";
import type { RunActorSettings } from "../../../actors/process/boot.ts";
import { processSpawner, type SpawnedChild } from "../../../actors/supervisor/spawner.ts";
import { type Hello, sayHello, welcoming } from "../../../actors/transport/handshake.ts";
import { SocketTransport } from "../../../actors/transport/socket.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { playedRow } from "./fake-run.ts";

const limits = { frameBytesMax: 1 << 24, queuedBytesMax: 1 << 26 };
const token = "a-secret-of-this-test";
const children: SpawnedChild[] = [];
let directory: string;

beforeEach(() => {
  directory = temporaryFolder();
});
afterEach(async () => {
  for (const child of children.splice(0)) {
    child.kill("SIGKILL");
    await child.exited;
  }
});

/** A supervisor that only listens, and one sink under it. */
async function startSink(page: { port: number } = { port: 0 }) {
  const transport = new SocketTransport({ clock: realClock, token, ...limits });
  const hello = Promise.withResolvers<Hello>();
  const address = Promise.withResolvers<string>();
  const lines: Record<string, string>[] = [];
  const supervisor = await transport.listen(
    "ws://127.0.0.1:0",
    welcoming("run-1", {
      joined: (_, who) => who.url !== null && hello.resolve(who),
      told() {},
      asked: () => ({ type: "failed", code: "protocol", detail: "not asked" }),
    }),
  );
  const config = RunConfig.parse({ seed: 7, learner: { updates: 100 }, metrics: page });
  const settings: RunActorSettings = { config, folder: directory };
  const actorSettings = { run: "run-1", actor: "metrics-sink", supervisor: supervisor.address, token, settings };
  const child = processSpawner.spawn(
    join(import.meta.dir, "../../../actors/metrics-sink/main.ts"),
    JSON.stringify({ ...actorSettings, heartbeatMs: 100, logLevel: "info", ...limits }),
    (line) => {
      lines.push(JSON.parse(line));
      if (lines.at(-1)!["kind"] === "page") address.resolve(lines.at(-1)!["text"]!);
    },
  );
  children.push(child);
  const connect = async () => {
    const { url } = await hello.promise;
    const peer = await transport.connect(url!, { told() {}, asked: () => Promise.reject(new Error("asked")) });
    await sayHello(peer, { actor: "learner", role: "learner", url: null }, 5000, "run-1");
    return peer;
  };
  return { child, lines, connect, page: address.promise };
}

test("acknowledged rows are there after SIGKILL, and the page continues after a restart", async () => {
  const first = await startSink();
  const peer = await first.connect();
  const rows = Array.from({ length: 100 }, (_, i) => playedRow({ episode: `e${i}` }));
  expect(await peer.ask({ type: "episodes", rows }, 5000)).toEqual({ type: "episodes.stored", count: 100 });
  first.child.kill("SIGKILL");
  await first.child.exited;

  const second = await startSink();
  const again = await second.connect();
  // The learner cannot know whether its last ask was taken, so it asks again.
  await again.ask({ type: "episodes", rows: [...rows.slice(90), playedRow({ episode: "e100" })] }, 5000);
  const answer = await fetch(`${await second.page}api/episodes?limit=200`);
  const { rows: listed } = (await answer.json()) as { rows: { episode: string }[] };
  expect(listed.map(({ episode }) => episode).sort()).toEqual(Array.from({ length: 101 }, (_, i) => `e${i}`).sort());
}, 300_000);

test("SIGTERM writes what still waits and leaves with 0", async () => {
  const { child, connect } = await startSink();
  const peer = await connect();
  peer.tell({ type: "metrics", actor: "learner", step: 1, values: { "train/success": 0.5 } });
  // An answer proves that what was told before has arrived.
  await peer.ask({ type: "env.open", episode: "e", env: "Bandit", layoutSeed: 1, dynamicsSeed: 1 }, 5000);
  child.kill("SIGTERM");
  expect(await child.exited).toEqual({ code: 0, signal: null });
  const store = new Store({ path: join(directory, "run.sqlite"), durability: "normal", wallClock: () => 0 });
  expect(store.latest()).toEqual([{ name: "train/success", actor: "learner", step: 1, value: 0.5 }]);
  store.close();
}, 300_000);

test("a port in use is one line that says which port and what to do", async () => {
  const taken = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("mine") });
  const { child, lines } = await startSink({ port: taken.port! });
  expect(await child.exited).toEqual({ code: 1, signal: null });
  expect(lines.filter(({ level }) => level === "error").map(({ text }) => text)).toEqual([
    expect.stringContaining(
      `cannot serve the page on 127.0.0.1:${taken.port}: the port is in use. ` +
        "Stop the other program, or choose --port N (--port 0 for any free port).",
    ),
  ]);
  await taken.stop();
}, 300_000);
