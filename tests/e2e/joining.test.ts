/**
 * Samplers and env servers join a real run through its gate, over mutual TLS, and leave in order or are killed. The run learns the
 * same, to the bit.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { certificates } from "../actors/transport/certificates.ts";
import { Guest } from "./guest.ts";
import { expectNothingLeft, expectSameLearnt, LONG, RunProcess, Runs } from "./run-process.ts";

setDefaultTimeout(LONG);

const runs = new Runs("shared");

const TOKEN = "a-token-of-this-test";
const ACTORS_TOKEN = "what-the-actors-tell-each-other";
const PAGE_TOKEN = "what-the-page-asks-for";
const SECRETS = [TOKEN, ACTORS_TOKEN, PAGE_TOKEN];
/** Those of our secrets that stand in it. */
const secretsIn = (bytes: Uint8Array | string) => SECRETS.filter((secret) => Buffer.from(bytes).includes(secret));
let pem: ReturnType<typeof certificates>;
let tokenFile: string;
beforeAll(() => {
  const folder = join(runs.folder, "pem");
  mkdirSync(folder);
  pem = certificates(folder);
  tokenFile = join(folder, "token");
  writeFileSync(tokenFile, `${TOKEN}\n`);
});

const learner = { updates: 12, filter: { strategy: "all" } };

async function addressOf(run: RunProcess): Promise<string> {
  return ((await run.entry(({ kind }) => kind === "open")) as unknown as { address: string }).address;
}

/** Everything that a run's page answers with: its pages, what programs may ask, and what is for Prometheus. */
async function wholePage(run: RunProcess): Promise<Map<string, string>> {
  const { text: url } = await run.entry(({ kind }) => kind === "page");
  const headers = { Authorization: `Bearer ${PAGE_TOKEN}` };
  const get = async (path: string) => {
    const response = await fetch(new URL(path, url), { headers });
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return response.text();
    // It has no end; its first piece is the state as it is.
    const reader = response.body!.getReader();
    const { value } = await reader.read();
    await reader.cancel();
    return new TextDecoder().decode(value);
  };
  const { paths } = JSON.parse(await get("/api/openapi.json")) as { paths: Record<string, unknown> };
  const pages = [
    "/",
    "/metrics",
    "/api/openapi.json",
    ...Object.keys(paths).map((path) => path.replace(/\{.*?\}/g, "1")),
  ];
  return new Map(await Promise.all(pages.map(async (path) => [path, await get(path)] as const)));
}

describe("guests", () => {
  test("come and go, and nothing that is learnt depends on it", async () => {
    const alone = await runs.undisturbed({ learner });

    const secrets = { transport: { token: ACTORS_TOKEN }, metrics: { token: PAGE_TOKEN } };
    const { folder, args } = runs.fresh({ learner, ...secrets });
    const gate = {
      "join.listen": "wss://127.0.0.1:0",
      "join.certFile": pem.path("server.crt"),
      "join.keyFile": pem.path("server.key"),
      "join.clientCaFile": pem.path("ca.crt"),
    };
    const flags = Object.entries(gate).map(([key, value]) => `--${key}=${value}`);
    const run = new RunProcess(folder, [...args, ...flags], { env: { BUNRAKU_TOKEN: TOKEN } });
    const address = await addressOf(run);
    const us = ["--ca", pem.path("ca.crt"), "--cert", pem.path("client.crt"), "--key", pem.path("client.key")];
    const lend = (command: "sampler" | "env-server") =>
      new Guest(command, ["--join", address, "--token-file", tokenFile, ...us, "--json"]);
    const guests = [lend("sampler"), lend("sampler"), lend("env-server"), lend("env-server")] as const;
    const [killed, stopped, killedEnv, stoppedEnv] = guests;
    const names = await Promise.all(guests.map((guest) => guest.joined()));
    // Where other accounts, or a crash report, would look.
    for (const pid of [...run.pids, ...guests.map((guest) => guest.pid)]) {
      for (const file of ["cmdline", "environ"]) expect(secretsIn(readFileSync(`/proc/${pid}/${file}`))).toEqual([]);
    }
    const page = await wholePage(run);
    expect([...page].filter(([, text]) => secretsIn(text).length > 0)).toEqual([]);
    expect(page.get("/metrics")).toContain("bunraku_");
    expect(page.size).toBeGreaterThan(8);
    await run.updated(4);
    killed.kill("SIGKILL");
    await run.updated(5);
    killedEnv.kill("SIGKILL");
    await run.updated(6);
    stopped.kill("SIGTERM");
    stoppedEnv.kill("SIGTERM");
    expect(await stopped.ended).toMatchObject({ code: 0 });
    expect(JSON.parse((await stoppedEnv.ended).out)).toEqual({ run: basename(folder), actor: names[3], code: 0 });
    const last = lend("sampler");
    await last.joined();
    const { code, out, err } = await run.ended;
    expect({ code, err: code === 0 ? "" : err }).toEqual({ code: 0, err: "" });
    expect(secretsIn(out + err)).toEqual([]);
    // The run is over, and its guest leaves by itself.
    expect((await last.ended).code).toBe(0);

    await expectSameLearnt(folder, alone);
    const log = run.log.map(({ kind, text, child }) => `${kind} ${child ?? ""} ${text ?? ""}`);
    expect(log.filter((line) => line.startsWith("left") && line.includes(`${names[1]} leaves: SIGTERM`))).toHaveLength(
      1,
    );
    for (const name of names) expect(log).toContainEqual(expect.stringContaining(`joined ${name}`));
    expectNothingLeft(run, guests);
    for (const file of readdirSync(folder)) {
      if (statSync(join(folder, file)).isFile()) expect(secretsIn(readFileSync(join(folder, file)))).toEqual([]);
    }
  });
});

test("a run may have no player of its own: everything is lent to it", async () => {
  const { folder, args } = runs.fresh({ learner: { updates: 2, filter: { strategy: "all" } } });
  const run = new RunProcess(folder, [...args, "--samplers", "0", "--env-servers", "0"]);
  const address = await addressOf(run);
  const made = ["--join", address, "--token-file", join(folder, "join.token")];
  const guests = [new Guest("env-server", made), new Guest("sampler", [...made, "--slots", "4"])];
  await Promise.all(guests.map((guest) => guest.joined()));
  expect(statSync(join(folder, "join.token")).mode & 0o777).toBe(0o600);
  expect((await run.ended).code).toBe(0);
  for (const guest of guests) expect((await guest.ended).code).toBe(0);
  expect(existsSync(join(folder, "join.token"))).toBe(false);
});

describe("a stranger", () => {
  let run: RunProcess;
  let address: string;
  beforeAll(async () => {
    const { folder, args } = runs.fresh({ learner: { updates: 1000, filter: { strategy: "all" } } });
    // It waits for players, which takes no CPU time.
    const alone = ["--samplers", "0", "--env-servers", "0"];
    const flags = [`--join.certFile=${pem.path("server.crt")}`, `--join.keyFile=${pem.path("server.key")}`, ...alone];
    const config = join(runs.folder, "tokens.yaml");
    const join_ = { listen: "wss://127.0.0.1:0", samplerToken: TOKEN };
    writeFileSync(config, JSON.stringify({ ...JSON.parse(readFileSync(args[1]!, "utf8")), join: join_ }));
    run = new RunProcess(folder, ["--config", config, ...args.slice(2), ...flags]);
    address = await addressOf(run);
  });
  afterAll(async () => {
    run.kill("SIGTERM");
    await run.ended;
  });

  test.each<["sampler" | "env-server", string, boolean, string]>([
    ["sampler", "another-token-than-the-run's", true, "wrong token (HTTP 401)"],
    ["env-server", TOKEN, true, "the token is not for the role env-server (HTTP 403)"],
    ["sampler", TOKEN, false, "unable to verify the first certificate (--ca FILE names the CA certificate)"],
  ])("is kept out: %s with %s", async (command, token, trusts, why) => {
    const ca = trusts ? ["--ca", pem.path("ca.crt")] : [];
    const { code, err } = await new Guest(command, ["--join", address, ...ca], { BUNRAKU_TOKEN: token }).ended;
    expect([code, err]).toEqual([1, expect.stringContaining(`error: cannot join ${address}: `)]);
    expect(err).toEndWith(`${why}\n`);
    expect(err).not.toContain(token);
  });

  test("cannot resume a run that is running", async () => {
    // The port of the page is taken too, as where the second command has the flags of the first.
    const flags = ["--resume", run.folder, "--port", new URL(address).port];
    const { code, err } = await new RunProcess(run.folder, flags, {
      env: { BUNRAKU_TOKEN: TOKEN },
    }).ended;
    expect([code, err]).toEqual([1, expect.stringMatching(/^error: \S+ is in use by process \d+ \(since /)]);
  });
});

test("a run that is not there is given up after the time one was patient for", async () => {
  const free = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
  const address = `ws://127.0.0.1:${free.port}`;
  await free.stop(true);
  const { code, err } = await new Guest("sampler", ["--join", address, "--patience", "0"], { BUNRAKU_TOKEN: TOKEN })
    .ended;
  expect(code).toBe(1);
  expect(err).toMatch(/^error: cannot join ws:\/\/127\.0\.0\.1:\d+: .*connect/i);
});
