/**
 * Rows of the table of faults (docs/operations.md) that need a real run, each with the figure it prints. Limits are asserted where
 * the promise has one; how fast a process starts again is printed, as it depends on the machine.
 */
import { Database } from "bun:sqlite";
import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { removeTemporaryFolders } from "../scripts/temporary.ts";
import { expectNothingLeft, figure, LONG, learnt, RunProcess, Runs } from "./run-process.ts";

const runs = new Runs();
afterAll(removeTemporaryFolders);

const learner = { updates: 14, filter: { strategy: "all" } };
const supervisor = { heartbeatMs: 200, heartbeatDeadlineMs: 4000, restartsMax: 20 };
const fresh = () => runs.fresh({ learner, supervisor });

let undisturbed: string;
beforeAll(async () => {
  undisturbed = await runs.undisturbed({ learner, supervisor });
}, LONG);

/** How often each episode is in the trajectory log, but for those of the warm start: later runs find it in the cache. */
function storedEpisodes(folder: string): number[] {
  const db = new Database(join(folder, "run.sqlite"), { readonly: true });
  const rows = db.query("SELECT count(*) FROM episodes WHERE episode NOT LIKE 'taught%' GROUP BY episode").values();
  db.close();
  return rows.map(([count]) => Number(count));
}

/** Time from `began` until the run has logged one more line like this. */
async function timed(run: RunProcess, began: number, what: Parameters<RunProcess["entry"]>[0], skip: number) {
  await run.entry(what, skip);
  return performance.now() - began;
}

test(
  "a sampler, all samplers, the metrics sink killed, an env server frozen: the same is learnt, every episode is stored once",
  async () => {
    const { folder, args } = fresh();
    const run = new RunProcess(folder, args);
    const counted = (kind: string, who: string) => {
      const like = (entry: { kind: string; child?: string; text?: string }) =>
        entry.kind === kind && (entry.child === who || entry.text === `${who} joined`);
      return { like, before: run.log.filter(like).length };
    };
    const after = (began: number, { like, before }: ReturnType<typeof counted>) => timed(run, began, like, before);

    await run.updated(2);
    const [exited, joined] = [counted("exited", "sampler-0"), counted("joined", "sampler-0")];
    let began = performance.now();
    process.kill(run.pid("sampler-0"), "SIGKILL");
    figure("sampler SIGKILL", { seen: await after(began, exited), "serving again": await after(began, joined) });

    await run.updated(4);
    const both = [counted("joined", "sampler-0"), counted("joined", "sampler-1")];
    began = performance.now();
    for (const name of ["sampler-0", "sampler-1"]) process.kill(run.pid(name), "SIGKILL");
    figure("all samplers SIGKILL", {
      "serving again": Math.max(...(await Promise.all(both.map((one) => after(began, one))))),
    });

    await run.updated(7);
    const [wedged, ready] = [counted("wedged", "env-server-0"), counted("ready", "env-server-0")];
    began = performance.now();
    process.kill(run.pid("env-server-0"), "SIGSTOP");
    const seen = await after(began, wedged);
    figure("env server SIGSTOP", { seen, "serving again": await after(began, ready) });
    expect(seen).toBeLessThan(supervisor.heartbeatDeadlineMs + 1000);

    await run.updated(9);
    const sink = counted("ready", "metrics-sink");
    began = performance.now();
    process.kill(run.pid("metrics-sink"), "SIGKILL");
    figure("metrics sink SIGKILL", { "serving again": await after(began, sink) });

    const { code, err } = await run.ended;
    expect({ code, err: code === 0 ? "" : err }).toEqual({ code: 0, err: "" });
    expect(await learnt(folder)).toEqual(await learnt(undisturbed));
    const stored = storedEpisodes(folder);
    expect([stored.length, new Set(stored)]).toEqual([storedEpisodes(undisturbed).length, new Set([1])]);
    expectNothingLeft(run);
  },
  LONG,
);

test(
  "a crash loop ends the run within 60 s of its first crash, and names its first cause",
  async () => {
    const { folder, args } = runs.fresh({
      learner,
      supervisor: { ...supervisor, restartsMax: 3, restartWindowMs: 60_000 },
    });
    const run = new RunProcess(folder, args);
    await run.updated(1);
    const began = performance.now();
    for (let crash = 0; crash < 4; crash++) {
      await run.entry(
        ({ kind, child }) => (kind === "started" || kind === "restarted") && child === "sampler-1",
        crash,
      );
      process.kill(run.pid("sampler-1"), "SIGKILL");
    }
    const { code, err } = await run.ended;
    const ms = performance.now() - began;
    figure("crash loop", { "the run ended": ms });
    expect([code, ms < 60_000]).toEqual([1, true]);
    expect(err).toMatch(/sampler-1 failed 4 times in [\d.]+ s, .*; first cause: killed by SIGKILL/);
    expectNothingLeft(run);
  },
  LONG,
);
