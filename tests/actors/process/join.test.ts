/** Joining at an address where nothing answers, or another program than a run. The error is one line, and comes at once if waiting is of no use. */
import { expect, test } from "bun:test";
import type { RunConfig } from "../../../actors/config/config.ts";
import { envServer } from "../../../actors/env-server/start.ts";
import { join } from "../../../actors/process/join.ts";
import { behindProxy } from "../../behind-proxy.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { certificates } from "../transport/certificates.ts";

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
    `cannot join ws://127.0.0.1:${server.port}: the answer is not from a Bunraku run`,
  );
  expect(said).toEqual([]);
});

test("a run on this machine is asked past the proxy that the environment names", async () => {
  using server = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("a page") });
  const address = `ws://127.0.0.1:${server.port}`;
  const patience = { patienceMs: 0, adapt: (config: RunConfig) => config, say() {} };
  await behindProxy(async () => {
    const joined = join(envServer, { address, token: "a token of this test", tls: {}, ...patience });
    await expect(joined).rejects.toThrow("the answer is not from a Bunraku run");
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

test("a gate with TLS, or with a certificate that does not fit, is refused with what to do", async () => {
  const pem = certificates(temporaryFolder());
  const tls = { cert: pem.text("server.crt"), key: pem.text("server.key") };
  const fetch = () => new Response("a page");
  using secure = Bun.serve({ hostname: "127.0.0.2", port: 0, fetch, tls });
  using plain = Bun.serve({ hostname: "127.0.0.2", port: 0, fetch });
  const ca = pem.text("ca.crt");
  const fault = async (address: string, authority?: string) => {
    const certs = authority === undefined ? {} : { ca: authority };
    const options = { patienceMs: 0, adapt: (config: RunConfig) => config, say() {} };
    const joined = join(envServer, { address, token: "a token of this test", tls: certs, ...options });
    const { message } = await joined.then(
      () => new Error("joined"),
      (error: Error) => error,
    );
    return message.slice(`cannot join ${address}: `.length);
  };
  const [there, noTls] = [`127.0.0.2:${secure.port}`, `127.0.0.2:${plain.port}`];
  expect(await fault(`wss://${there}`, ca)).toBe(
    "the gate's certificate is not for 127.0.0.2; give --join a name or an address that the certificate names",
  );
  expect(await fault(`wss://${there}`, pem.text("stranger.crt"))).toEndWith(
    "(--ca names the certificate of another CA)",
  );
  expect(await fault(`ws://${there}`)).toEndWith(` closed unexpectedly. If the gate uses TLS, write wss://${there}`);
  expect(await fault(`wss://${noTls}`, ca)).toEndWith(` If the gate does not use TLS, write ws://${noTls}`);
});
