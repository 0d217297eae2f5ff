/** Joining at an address where no run answers, or another program does: one line, without waiting where that is of no use. */
import { expect, test } from "bun:test";
import { envServer } from "../../../actors/env-server/start.ts";
import { join } from "../../../actors/process/join.ts";

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
