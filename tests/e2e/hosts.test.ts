/**
 * Several hosts: network namespaces with addresses of their own, joined to a run, cut off and healed. Everything that is said goes
 * over a virtual cable; nothing is shared but the disk that the program is on.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { figure, ms } from "../figure.ts";
import { removeTemporaryFolders } from "../scripts/temporary.ts";
import { Guest } from "./guest.ts";
import { expectNothingLeft, expectSameLearnt, LONG, RunProcess, Runs } from "./run-process.ts";

const runs = new Runs();
const TOKEN = "a-token-that-nobody-guesses";
const ID = process.pid;
const BRIDGE = `bun${ID}`;
/** The learner's host and two others, on one bridge. */
const HOSTS = [1, 2, 3].map((host) => ({
  name: `bunraku-${ID}-${host}`,
  address: `10.177.${ID % 256}.${host}`,
  port: `v${ID}-${host}`,
}));

function ip(...args: string[]): boolean {
  return Bun.spawnSync(["ip", ...args], { stderr: "ignore" }).success;
}

function build(): boolean {
  if (!ip("link", "add", BRIDGE, "type", "bridge") || !ip("link", "set", BRIDGE, "up")) return false;
  return HOSTS.every(
    ({ name, address, port }) =>
      ip("netns", "add", name) &&
      ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name) &&
      ip("link", "set", port, "master", BRIDGE, "up") &&
      ip("-n", name, "addr", "add", `${address}/24`, "dev", "eth0") &&
      ip("-n", name, "link", "set", "eth0", "up") &&
      ip("-n", name, "link", "set", "lo", "up"),
  );
}

function tearDown(): void {
  for (const { name } of HOSTS) ip("netns", "del", name);
  ip("link", "del", BRIDGE);
}

const permitted = process.platform === "linux" && build();
if (!permitted) {
  tearDown();
  console.log("skipped: this account may not make network namespaces (ip netns), so there is one host only");
}
afterAll(() => {
  tearDown();
  removeTemporaryFolders();
});

const on = (host: number) => ["ip", "netns", "exec", HOSTS[host]!.name];

describe.skipIf(!permitted)("two other hosts", () => {
  const learner = { updates: 16, filter: { strategy: "all" } };
  const supervisor = { heartbeatMs: 200, heartbeatDeadlineMs: 2000 };
  let run: RunProcess;
  let guests: Guest[];
  let names: string[];
  let alone: string;

  beforeAll(async () => {
    alone = await runs.undisturbed({ learner });
    const { folder, args } = runs.fresh({ learner, supervisor });
    const listen = `--join.listen=ws://${HOSTS[0]!.address}:7000`;
    run = new RunProcess(folder, [...args, listen], { BUNRAKU_TOKEN: TOKEN }, on(0));
    await run.entry(({ kind }) => kind === "open");
    const join_ = ["--join", `ws://${HOSTS[0]!.address}:7000`];
    guests = [
      new Guest("sampler", join_, { BUNRAKU_TOKEN: TOKEN }, on(1)),
      new Guest("env-server", join_, { BUNRAKU_TOKEN: TOKEN }, on(2)),
    ];
    names = await Promise.all(guests.map((guest) => guest.joined()));
  }, LONG);

  test(
    "join by one address, are cut off and healed, and nothing that is learnt depends on it",
    async () => {
      await run.updated(2);
      const began = performance.now();
      for (const host of [1, 2]) ip("link", "set", HOSTS[host]!.port, "down");
      await Promise.all(names.map((name) => run.entry(({ kind, child }) => kind === "left" && child === name)));
      const noticed = performance.now() - began;
      // The run goes on without them.
      const now = run.log.filter(({ kind }) => kind === "update").length;
      await run.updated(now + 1);
      for (const host of [1, 2]) ip("link", "set", HOSTS[host]!.port, "up");
      const healing = performance.now();
      await Promise.all(names.map((name) => run.entry(({ kind, child }) => kind === "joined" && child === name, 1)));
      figure("network cut and healed", { noticed: ms(noticed), "joined again": ms(performance.now() - healing) });
      const { code, err } = await run.ended;
      expect({ code, err: code === 0 ? "" : err }).toEqual({ code: 0, err: "" });
      for (const guest of guests) expect((await guest.ended).code).toBe(0);
      await expectSameLearnt(run.folder, alone);
      expectNothingLeft(run, guests);
    },
    LONG,
  );

  test("cannot join where nobody may be reached but from the same host", async () => {
    const { folder, args } = runs.fresh({ learner });
    const { code, err } = await new RunProcess(
      folder,
      [...args, `--join.listen=ws://${HOSTS[0]!.address}:7001`],
      {},
      on(0),
    ).ended;
    expect([code, err]).toEqual([2, expect.stringContaining("can be reached by others, so join.token")]);
  });
});
