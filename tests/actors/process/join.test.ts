/** Joining at an address where nothing answers, or another program than a run. The error is one line, and comes at once if waiting is of no use. */
import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join as joinPath } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import { RunConfig } from "../../../actors/config/config.ts";
import { envServer } from "../../../actors/env-server/start.ts";
import type { JoinSettings } from "../../../actors/process/join.ts";
import { join } from "../../../actors/process/join.ts";
import { PROTOCOL_VERSION } from "../../../actors/protocol.ts";
import { welcoming } from "../../../actors/transport/handshake.ts";
import { SocketTransport } from "../../../actors/transport/socket.ts";
import { TRANSPORT_LIMITS } from "../../../actors/transport/transport.ts";
import { behindProxy } from "../../behind-proxy.ts";
import { CommandProcess } from "../../scripts/command.ts";
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

test("a guest ends when its token is refused, and not when another refusal speaks of the token", async () => {
  const token = "a-token-of-this-test";
  const settings: JoinSettings = {
    run: "run-1",
    protocol: PROTOCOL_VERSION,
    heartbeatMs: 1000,
    logLevel: "info",
    ...TRANSPORT_LIMITS,
    config: RunConfig.parse({}),
    broker: null,
  };
  const gate = (token: string) => new SocketTransport({ clock: realClock, token, ...TRANSPORT_LIMITS });
  const greeter = welcoming("the token", {
    told() {},
    asked: () => ({ type: "failed", code: "protocol", detail: "" }),
  });
  const again = Promise.withResolvers<void>();
  let hellos = 0;
  const counting: typeof greeter = {
    ...greeter,
    asked(peer, ask) {
      if (++hellos === 2) again.resolve();
      return greeter.asked(peer, ask);
    },
  };
  const listener = await gate(token).listen("ws://127.0.0.1:0", counting, { fetch: () => Response.json(settings) });
  const file = joinPath(temporaryFolder(), "token");
  writeFileSync(file, token);
  const guest = new CommandProcess(["env-server", "--join", listener.address, "--token-file", file]);
  await Promise.race([again.promise, guest.ended]);
  await listener.close();
  const other = await gate("another-token-of-this-test").listen(listener.address, greeter);
  const { code, err } = await guest.ended;
  await other.close();
  expect([hellos >= 2, code]).toEqual([true, 1]);
  expect(err).toContain("belongs to run the token, and");
  expect(err).toMatch(/the token was refused; given up after \d+ s\n/);
}, 60_000);
