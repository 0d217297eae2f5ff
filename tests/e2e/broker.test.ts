/**
 * A real run whose messages go through a real NATS broker, which asks for a token and is killed in between; samplers and env
 * servers join it as guests. It learns the same as over sockets, to the bit.
 */

import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { natsServer, startBroker } from "../../bench/broker.ts";
import { describeWhere } from "../needs.ts";
import { expectSuccess } from "../scripts/command.ts";
import { Guest } from "./guest.ts";
import { LONG, learnt, RunProcess, Runs, timeIndependentMetrics } from "./run-process.ts";

setDefaultTimeout(LONG);

const runs = new Runs("shared");

const TOKEN = "a-token-of-this-test";
const learner = { updates: 12, filter: { strategy: "all" } };

describeWhere(natsServer === null ? "no nats-server" : null, "a run at a broker", () => {
  test("learns the same to the bit, with guests, and with the broker killed in between", async () => {
    const alone = await runs.undisturbed({ learner });

    const broker = await startBroker(["--auth", TOKEN]);
    try {
      const { folder, args } = runs.fresh({ learner });
      const run = new RunProcess(folder, [...args, "--transport", broker.address], {
        env: { BUNRAKU_BROKER_TOKEN: TOKEN },
      });
      const { address } = (await run.entry(({ kind }) => kind === "open")) as unknown as { address: string };
      const tokenFile = join(folder, "join.token");
      const guests = (["sampler", "env-server"] as const).map(
        (command) => new Guest(command, ["--join", address, "--token-file", tokenFile, "--json"]),
      );
      const names = await Promise.all(guests.map((guest) => guest.joined()));
      await run.updated(5);
      await broker.kill();
      await broker.restart();
      expectSuccess(await run.ended);
      for (const guest of guests) {
        const end = await guest.ended;
        expect({ code: end.code, err: end.code === 0 ? "" : end.err }).toEqual({ code: 0, err: "" });
      }
      expect(names).toHaveLength(2);
      // Metrics are sent without an answer: those of the moment in which the broker died may be missing, none may differ.
      expect(timeIndependentMetrics(alone)).toEqual(expect.arrayContaining(timeIndependentMetrics(folder)));
      expect(await learnt(folder)).toEqual(await learnt(alone));
    } finally {
      await broker.end();
    }
  });

  test("with another token than the broker's ends with one line", async () => {
    const broker = await startBroker(["--auth", TOKEN]);
    try {
      const { folder, args } = runs.fresh({ learner });
      const { code, err } = await new RunProcess(folder, [...args, "--transport", broker.address]).ended;
      expect(code).toBe(1);
      expect(err).toContain(`cannot listen on ${broker.address}`);
      expect(err).toContain("the token was refused");
    } finally {
      await broker.end();
    }
  });
});
