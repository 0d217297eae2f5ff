/** A metrics sink that cannot start leaves nothing open: on one thread its process goes on. */
import { expect, test } from "bun:test";
import type { ActorContext } from "../../../actors/actor.ts";
import { RunConfig } from "../../../actors/config/config.ts";
import { metricsSink } from "../../../actors/metrics-sink/start.ts";
import { TRANSPORT_LIMITS } from "../../../actors/transport/transport.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { FakeClock } from "../fake-clock.ts";
import { MemoryNetwork, MemoryTransport } from "../transport/memory.ts";
import { openFilesIn } from "./open-files.ts";

function starting(port: number, transport: Partial<MemoryTransport>) {
  const clock = new FakeClock();
  const pages: string[] = [];
  const quiet = () => {};
  const log = { debug: quiet, info: (_: string, text: string) => void pages.push(text), warning: quiet, error: quiet };
  const folder = temporaryFolder();
  const context = { actor: "metrics-sink", run: "run-1", folder, clock, log, listen: "memory:sink", transport };
  const config = RunConfig.parse({ metrics: { port } });
  return { folder, pages, started: metricsSink.start(config, context as unknown as ActorContext) };
}

test("where the page's port is in use, the record is closed", async () => {
  using other = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
  const transport = new MemoryTransport(new MemoryNetwork(), {
    clock: new FakeClock(),
    token: "",
    ...TRANSPORT_LIMITS,
  });
  const { folder, started } = starting(other.port!, transport);
  await expect(started).rejects.toThrow("the port is in use");
  expect(openFilesIn(folder)).toEqual([]);
});

test("where the sink cannot listen for actors, the page and the record are closed", async () => {
  const transport = { listen: () => Promise.reject(new Error("no address")) };
  const { folder, pages, started } = starting(0, transport);
  await expect(started).rejects.toThrow("no address");
  expect(openFilesIn(folder)).toEqual([]);
  expect(await fetch(`${pages[0]}healthz`).then(String, () => "refused")).toBe("refused");
});
