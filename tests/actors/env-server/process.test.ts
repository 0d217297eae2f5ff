/** The env server as it runs: its own process under a supervisor, playing a real env over a socket. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import { RunConfig } from "../../../actors/config/config.ts";
import type { RunActorSettings } from "../../../actors/process/boot.ts";
import { sayHello } from "../../../actors/transport/handshake.ts";
import { SocketTransport } from "../../../actors/transport/socket.ts";
import { realSupervisor } from "../supervisor/stage-supervisor.ts";

const settings: RunActorSettings = {
  config: RunConfig.parse({ env: { tag: "FrozenLake", options: { successRate: 1 } }, envServer: { episodesMax: 4 } }),
  folder: "unused",
};

test("an env server process plays an episode, and a replacement of it plays the same one", async () => {
  const { supervisor, events } = await realSupervisor();
  supervisor.start({
    name: "env-server-1",
    role: "env-server",
    entry: join(import.meta.dir, "../../../actors/env-server/main.ts"),
    settings: () => settings,
  });
  const token = "a-token-for-tests";
  const transport = new SocketTransport({
    clock: realClock,
    token,
    frameBytesMax: 1 << 20,
    queuedBytesMax: 1 << 20,
  });
  async function play(url: string) {
    const peer = await transport.connect(url, { told() {}, asked: () => Promise.reject(new Error("unasked")) });
    await sayHello(peer, { actor: "sampler-1", role: "sampler", url: null }, 10_000, "test-run");
    const opened = await peer.ask(
      { type: "env.open", episode: "e", env: "FrozenLake", layoutSeed: 5, dynamicsSeed: 6 },
      10_000,
    );
    const reply = "<think>down</think><answer>Down</answer>";
    const stepped = await peer.ask({ type: "env.step", episode: "e", turn: 0, reply }, 10_000);
    return { opened, stepped };
  }
  const first = await play((await events.next("ready", "env-server-1")).url);
  expect(first.opened).toMatchObject({ type: "env.opened", actionsLeft: 10 });
  expect(first.stepped).toMatchObject({ type: "env.stepped", turn: 0, actions: ["Down"], wellFormed: true });
  process.kill(events.of("started", "env-server-1")[0]!.pid, "SIGKILL");
  expect(await play((await events.next("ready", "env-server-1", 2)).url)).toEqual(first);
  expect(await supervisor.stop("done")).toEqual({ ok: true, reason: "done" });
}, 300_000);
