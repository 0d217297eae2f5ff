/**
 * Rows of the table of faults (docs/faults.md) that need a real run, each with the figure that it prints. A test asserts a limit where the
 * promise has a limit. How fast a process starts again depends on the machine, so a test only prints that time.
 */

import { Database } from "bun:sqlite";
import { beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { figure, ms } from "../figure.ts";
import { expectSuccess } from "../scripts/command.ts";
import {
  exited,
  expectNothingLeft,
  joined,
  LONG,
  learnt,
  RunProcess,
  Runs,
  ready,
  silent,
  updated,
} from "./run-process.ts";

setDefaultTimeout(LONG);

const runs = new Runs("shared");

const learner = { updates: 14, filter: { strategy: "all" } };
const supervisor = { heartbeatDeadlineMs: 4000, restartsMax: 20 };
const sampler = { count: 2 };
const fresh = () => runs.fresh({ learner, supervisor, sampler });

let undisturbed: string;
beforeAll(async () => {
  undisturbed = await runs.undisturbed({ learner, supervisor, sampler });
});

/** How often each episode is in the trajectory log, but for those of the warm start: later runs find it in the cache. */
function storedEpisodes(folder: string): number[] {
  const db = new Database(join(folder, "run.sqlite"), { readonly: true });
  const rows = db.query("SELECT count(*) FROM episodes WHERE episode NOT LIKE 'taught%' GROUP BY episode").values();
  db.close();
  return rows.map(([count]) => Number(count));
}

test("a sampler, all samplers, the metrics sink killed, an env server frozen: training gives the same result, and every episode is stored once", async () => {
  const { folder, args } = fresh();
  const run = new RunProcess(folder, args);
  await run.updated(2);
  const one = run.next(exited("sampler-0"), joined("sampler-0"));
  process.kill(run.pid("sampler-0"), "SIGKILL");
  const [lost, back] = (await one) as [number, number];
  figure("sampler SIGKILL", { noticed: ms(lost), "serving again": ms(back) });

  await run.updated(4);
  const both = run.next(joined("sampler-0"), joined("sampler-1"), updated);
  for (const name of ["sampler-0", "sampler-1"]) process.kill(run.pid(name), "SIGKILL");
  const [first, second, update] = (await both) as [number, number, number];
  figure("all samplers SIGKILL at once", {
    "serving again": ms(Math.max(first, second)),
    "next update": ms(update),
  });

  await run.updated(7);
  const frozen = run.next(silent("env-server-0"), ready("env-server-0"));
  process.kill(run.pid("env-server-0"), "SIGSTOP");
  const [noticed, replaced] = (await frozen) as [number, number];
  figure("env server frozen (SIGSTOP)", { noticed: ms(noticed), "serving again": ms(replaced) });
  expect(noticed).toBeLessThan(supervisor.heartbeatDeadlineMs + 1000);

  await run.updated(9);
  const sink = run.next(ready("metrics-sink"));
  process.kill(run.pid("metrics-sink"), "SIGKILL");
  const [serving] = (await sink) as [number];

  expectSuccess(await run.ended);
  expect(await learnt(folder)).toEqual(await learnt(undisturbed));
  const stored = storedEpisodes(folder);
  expect([stored.length, new Set(stored)]).toEqual([storedEpisodes(undisturbed).length, new Set([1])]);
  const kept = { "episodes stored": stored.length, lost: 0, twice: 0 };
  figure("metrics sink SIGKILL", { "serving again": ms(serving), ...kept });
  expectNothingLeft(run);
});

test("a crash loop ends the run within 60 s of its first crash, and names its first cause", async () => {
  const { folder, args } = runs.fresh({
    learner,
    sampler,
    supervisor: { ...supervisor, restartsMax: 3 },
  });
  const run = new RunProcess(folder, args);
  await run.updated(1);
  const began = performance.now();
  for (let crash = 0; crash < 4; crash++) {
    await run.entry(({ kind, child }) => (kind === "started" || kind === "restarted") && child === "sampler-1", crash);
    process.kill(run.pid("sampler-1"), "SIGKILL");
  }
  const { code, err } = await run.ended;
  const took = performance.now() - began;
  figure("crash loop", { "the run ended": ms(took) });
  expect([code, took < 60_000]).toEqual([1, true]);
  expect(err).toMatch(/sampler-1 failed 4 times in [\d.]+ s, .*; first cause: killed by SIGKILL/);
  expectNothingLeft(run);
});
