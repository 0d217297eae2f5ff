/** Joining at an address where no run answers, or another program does: one line, without waiting where that is of no use. */
import { expect, test } from "bun:test";
import type { RunConfig } from "../../../actors/config/config.ts";
import { envServer } from "../../../actors/env-server/start.ts";
import { join } from "../../../actors/process/join.ts";
import { behindProxy } from "../../behind-proxy.ts";

test.each([
  ["a page", () => new Response("<!doctype html><p>hello")],
  ["other JSON", () => Response.json({ hello: "there" })],
])("a program that answers with %s is no run", async (_, fetch) => {
  using server = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch });
  const said: string[] = [];
  const joined = join(envServer, {
    address: `ws://127.0.0.1:${server.port}`,
    token: "a token of this test",
    tls: {},
    patienceMs: 60_000,
    adapt: (config) => config,
    say: (_, text) => void said.push(text),
  });
  await expect(joined).rejects.toThrow(
    `cannot join ws://127.0.0.1:${server.port}: the answer is not that of a Bunraku run`,
  );
  expect(said).toEqual([]);
});

test("a run on this machine is asked past the proxy that the environment names", async () => {
  using server = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("a page") });
  const address = `ws://127.0.0.1:${server.port}`;
  const patience = { patienceMs: 0, adapt: (config: RunConfig) => config, say() {} };
  await behindProxy(async () => {
    const joined = join(envServer, { address, token: "a token of this test", tls: {}, ...patience });
    await expect(joined).rejects.toThrow("the answer is not that of a Bunraku run");
  });
});

test.each([
  ["an empty answer", "", "(HTTP 502)"],
  ["a long page", "<p>\n".repeat(1000), `${"<p> ".repeat(50)}(HTTP 502)`],
])("a proxy without a run behind it that gives %s is named in a short line", async (_, text, reason) => {
  using server = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response(text, { status: 502 }) });
  const address = `ws://127.0.0.1:${server.port}`;
  const patience = { patienceMs: 0, adapt: (config: RunConfig) => config, say() {} };
  const joined = join(envServer, { address, token: "a token of this test", tls: {}, ...patience });
  await expect(joined).rejects.toThrow(new Error(`cannot join ${address}: ${reason}`));
});
