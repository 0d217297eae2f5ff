/** Several hosts with addresses of their own, joined to a run, cut off and healed. */

import { afterAll, beforeAll, expect, test } from "bun:test";
import { figure, ms } from "../figure.ts";
import { describeWhere } from "../needs.ts";
import { expectSuccess } from "../scripts/command.ts";
import { Guest } from "./guest.ts";
import { Hosts } from "./namespaces.ts";
import { expectNothingLeft, expectSameLearnt, LONG, RunProcess, Runs } from "./run-process.ts";

const runs = new Runs("shared");
const TOKEN = "a-token-of-this-test";
const hosts = Hosts.build(3);
afterAll(() => hosts?.remove());

describeWhere(hosts === null ? "this account may not make network namespaces" : null, "two other hosts", () => {
  const learner = { updates: 16, filter: { strategy: "all" } };
  const supervisor = { heartbeatDeadlineMs: 2000 };
  let run: RunProcess;
  let guests: Guest[];
  let names: string[];
  let alone: string;

  beforeAll(async () => {
    alone = await runs.undisturbed({ learner });
    const { folder, args } = runs.fresh({ learner, supervisor });
    const address = `ws://${hosts!.address(0)}:7000`;
    const env = { BUNRAKU_TOKEN: TOKEN };
    run = new RunProcess(folder, [...args, `--join.listen=${address}`], { env, wrap: hosts!.on(0) });
    await run.entry(({ kind }) => kind === "open");
    guests = (["sampler", "env-server"] as const).map(
      (command, i) => new Guest(command, ["--join", address], env, hosts!.on(i + 1)),
    );
    names = await Promise.all(guests.map((guest) => guest.joined()));
  }, LONG);

  test(
    "join by one address, are cut off and healed, and nothing that is learnt depends on it",
    async () => {
      await run.updated(2);
      const began = performance.now();
      for (const host of [1, 2]) hosts!.cut(host);
      await Promise.all(names.map((name) => run.entry(({ kind, child }) => kind === "left" && child === name)));
      const noticed = performance.now() - began;
      // The run continues without them.
      const now = run.log.filter(({ kind }) => kind === "update").length;
      await run.updated(now + 1);
      for (const host of [1, 2]) hosts!.heal(host);
      const healing = performance.now();
      await Promise.all(names.map((name) => run.entry(({ kind, child }) => kind === "joined" && child === name, 1)));
      figure("network cut and healed", { noticed: ms(noticed), "joined again": ms(performance.now() - healing) });
      expectSuccess(await run.ended);
      for (const guest of guests) expect((await guest.ended).code).toBe(0);
      await expectSameLearnt(run.folder, alone);
      expectNothingLeft(run, guests);
    },
    LONG,
  );

  test("a gate that other hosts can reach needs a token", async () => {
    const { folder, args } = runs.fresh({ learner });
    const { code, err } = await new RunProcess(folder, [...args, `--join.listen=ws://${hosts!.address(0)}:7001`], {
      wrap: hosts!.on(0),
    }).ended;
    expect([code, err]).toEqual([2, expect.stringContaining("can be reached from other machines; set join.token")]);
  });
});
