/** The tokens of a gate, the file of the token that the gate makes, and what stays open afterwards. */
import { expect, test } from "bun:test";
import { existsSync, lstatSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import { RunConfig } from "../../../actors/config/config.ts";
import { openGate } from "../../../actors/gate/open.ts";
import { bearer } from "../../../actors/transport/address.ts";
import { RoutedTransport } from "../../../actors/transport/routed.ts";
import { TRANSPORT_LIMITS } from "../../../actors/transport/transport.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

const token = "the-actors-own-token";
const open = (folder: string, join: object = {}, listen = "ws://127.0.0.1:0") =>
  openGate(listen, {
    run: "run",
    folder,
    config: RunConfig.parse({ join }),
    transport: new RoutedTransport({ clock: realClock, token, ...TRANSPORT_LIMITS }),
    actorsToken: token,
    find: () => null,
    firstMessages: () => [],
    envServersChanged() {},
    event() {},
    report() {},
  });

test.each(["a link to another file", "a file of an earlier run that others may read"])(
  "replaces %s, and only its owner can read the token",
  async (before) => {
    const folder = temporaryFolder();
    const file = join(folder, "join.token");
    const other = join(folder, "other");
    writeFileSync(other, "precious");
    if (before.startsWith("a link")) symlinkSync(other, file);
    else writeFileSync(file, "old", { mode: 0o644 });
    const gate = await open(folder);
    expect(gate.tokenFile).toBe(file);
    const stat = lstatSync(file);
    expect([stat.isFile(), stat.mode & 0o777]).toEqual([true, 0o600]);
    expect(readFileSync(file, "utf8")).toMatch(/^[\w-]{32}\n$/);
    expect(readFileSync(other, "utf8")).toBe("precious");
    await gate.close("enough");
    expect(existsSync(file)).toBe(false);
  },
);

test("tokens of the config open the roles that they are for, no file has them, and no guest gets them", async () => {
  const folder = temporaryFolder();
  const [samplerToken, envServerToken] = ["a-token-for-samplers", "a-token-for-env-servers"];
  const gate = await open(folder, { samplerToken, envServerToken });
  const ask = async (given: string, role: string) => {
    const headers = { Authorization: bearer(given) };
    return fetch(`${gate.address.replace("ws", "http")}/join?role=${role}`, { headers });
  };
  const statuses = [samplerToken, envServerToken].map(async (given) => [
    (await ask(given, "sampler")).status,
    (await ask(given, "env-server")).status,
  ]);
  expect(await Promise.all(statuses)).toEqual([
    [200, 403],
    [403, 200],
  ]);
  const settings = await (await ask(samplerToken, "sampler")).text();
  expect(settings).toContain('"run":"run"');
  for (const secret of [samplerToken, envServerToken, token]) expect(settings).not.toContain(secret);
  expect([gate.tokenFile, existsSync(join(folder, "join.token"))]).toEqual([null, false]);
  await gate.close("enough");
});

test.each(["does not open", "cannot write its token", "is closed"])(
  "a gate that %s keeps no process alive",
  async (what) => {
    const taken = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
    const port = what === "does not open" ? taken.port : 0;
    const folder = temporaryFolder();
    const given = what === "cannot write its token" ? join(folder, "missing") : folder;
    const child = Bun.spawn([process.execPath, "-e", OPENS_A_GATE, given, `ws://127.0.0.1:${port}`], {
      cwd: join(import.meta.dir, "../../.."),
      stdout: "pipe",
      timeout: 20_000,
    });
    expect(await new Response(child.stdout).text()).toBe(what === "is closed" ? "closed\n" : "not open\n");
    expect(await child.exited).toBe(0);
    expect(readdirSync(folder)).toEqual([]);
    await taken.stop(true);
  },
);

const OPENS_A_GATE = `
  import { realClock } from "./actors/clock.ts";
  import { RunConfig } from "./actors/config/config.ts";
  import { openGate } from "./actors/gate/open.ts";
  import { RoutedTransport } from "./actors/transport/routed.ts";
  import { TRANSPORT_LIMITS } from "./actors/transport/transport.ts";
  const [folder, listen] = process.argv.slice(1);
  const nothing = () => {};
  try {
    const gate = await openGate(listen, {
      run: "run",
      folder,
      config: RunConfig.parse({}),
      transport: new RoutedTransport({ clock: realClock, token: "${token}", ...TRANSPORT_LIMITS }),
      actorsToken: "${token}",
      find: () => null,
      firstMessages: () => [],
      envServersChanged: nothing,
      event: nothing,
      report: nothing,
    });
    await gate.close("enough");
    console.log("closed");
  } catch {
    console.log("not open");
  }`;
