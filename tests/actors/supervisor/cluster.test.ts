import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { RunConfig } from "../../../actors/config/config.ts";
import { startCluster } from "../../../actors/supervisor/cluster.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

test("a run whose supervisor cannot listen leaves no gate open, and no token", async () => {
  using busy = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
  const folder = temporaryFolder();
  let gate = "";
  const started = startCluster({
    run: "run",
    folder,
    config: RunConfig.parse({ transport: { listen: `ws://127.0.0.1:${busy.port}` } }),
    event(event) {
      if (event.kind === "open") gate = event.address.replace(/^ws/, "http");
    },
    output() {},
  });
  await expect(started).rejects.toThrow(`cannot listen on ws://127.0.0.1:${busy.port}: `);
  await expect(fetch(gate)).rejects.toThrow(/connect/i);
  expect(existsSync(join(folder, "join.token"))).toBe(false);
});
