import { expect, test } from "bun:test";
import { Meter } from "../../../actors/metrics/meter.ts";
import { live } from "../../../actors/process/life.ts";
import { welcoming } from "../../../actors/transport/handshake.ts";
import { TRANSPORT_LIMITS } from "../../../actors/transport/transport.ts";
import { FakeClock } from "../fake-clock.ts";
import { MemoryNetwork, MemoryTransport } from "../transport/memory.ts";

test("time in which the process was suspended is no time of its computation", async () => {
  const clock = new FakeClock();
  const transport = new MemoryTransport(new MemoryNetwork(), { clock, token: "", ...TRANSPORT_LIMITS });
  const workingMs: number[] = [];
  await transport.listen(
    "memory:supervisor",
    welcoming("run", {
      told: (_, message) => void (message.type === "heartbeat" && workingMs.push(message.workingMs)),
      asked: () => ({ type: "failed", code: "protocol", detail: "" }),
    }),
  );
  const limits = { heartbeatMs: 100, logLevel: "info", ...TRANSPORT_LIMITS } as const;
  const quiet = () => {};
  await live({
    actorSettings: { run: "run", actor: "sampler-0", supervisor: "memory:supervisor", token: "", ...limits },
    role: "sampler",
    log: { debug: quiet, info: quiet, warning: quiet, error: quiet },
    clock,
    uniform: () => 0.5,
    meter: new Meter(clock),
    transport,
    listen: "memory:sampler-0",
    rssBytes: () => 1,
    lastMessage: () => "",
    exit: quiet,
    // A computation that began with the process, and has no result yet.
    start: () => ({
      url: null,
      doing: () => "playing",
      workingMs: () => clock.now(),
      stop: async () => {},
      told: quiet,
    }),
  }).started;
  const settle = async () => {
    for (let i = 0; i < 10; i++) await new Promise((next) => setImmediate(next));
  };
  await settle();
  clock.advance(100);
  clock.jump(3_600_000);
  clock.advance(100);
  await settle();
  expect(workingMs).toEqual([100, 0, 100]);
});
