/**
 * A person ends a run in a shell: Ctrl-C, a signal to the whole process group, a closed terminal. And a run whose standard error fails.
 * None of them loses an update.
 */
import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { latestCheckpoint } from "../../actors/checkpoint/checkpoint.ts";
import { isAlive } from "../../scripts/chaos/watch.ts";
import { expectNothingLeft, LONG, RunProcess, Runs, updated } from "../e2e/run-process.ts";
import { figure } from "../figure.ts";
import { CommandProcess, type StartOptions } from "../scripts/command.ts";

setDefaultTimeout(LONG);

const runs = new Runs("shared");

/** Little to play: what counts is how the run ends. */
const small = { validate: { episodes: 8 } };

/** A run that saves only when it is stopped. */
async function learning(options: StartOptions): Promise<RunProcess> {
  const learner = { updates: 1000, filter: { strategy: "all" } };
  const { folder, args } = runs.fresh({ ...small, learner, checkpoint: { everyUpdates: 1_000_000 } });
  const run = new RunProcess(folder, [...args, "--samplers", "1"], options);
  await run.updated(2);
  return run;
}

/** Waits until every process of the run is gone: `bun run` may end before them. */
async function expectSaved(run: RunProcess): Promise<void> {
  const { folder } = run;
  while (run.pids.some(isAlive)) await Bun.sleep(10);
  // The supervisor removes the token last.
  for (let waitMs = 0; existsSync(join(folder, "join.token")) && waitMs < 2000; waitMs += 10) await Bun.sleep(10);
  const { found } = await latestCheckpoint(join(folder, "checkpoints"));
  expect(Number(/u(\d+)$/.exec(found!)![1])).toBeGreaterThanOrEqual(2);
  expect(existsSync(join(folder, "join.token"))).toBe(false);
  expect(run.log.filter(({ kind }) => kind === "restarted")).toEqual([]);
  expectNothingLeft(run);
}

test("Ctrl-C on a terminal saves and stops", async () => {
  const run = await learning({ shell: "terminal" });
  run.process.type("\u0003");
  const { code, out } = await run.ended;
  expect([code, out]).toEqual([0, expect.stringContaining("stopped (SIGINT); go on with: ")]);
  await expectSaved(run);
});

test("SIGTERM to the whole process group saves and stops", async () => {
  const run = await learning({ shell: "pipes" });
  run.process.killGroup("SIGTERM");
  const { out } = await run.ended;
  expect(out).toContain("stopped (SIGTERM); go on with: ");
  await expectSaved(run);
});

test("a closed terminal saves and stops", async () => {
  const run = await learning({ shell: "terminal" });
  run.process.closeTerminal();
  await run.ended;
  await expectSaved(run);
  figure("Ctrl-C, SIGTERM to the group, SIGHUP", { "updates lost": 0 });
});

test("Ctrl-C while a sampler is lent lets it leave in order", async () => {
  const { folder, args } = runs.fresh({ ...small, learner: { updates: 1000, filter: { strategy: "all" } } });
  const run = new RunProcess(folder, [...args, "--samplers", "0"]);
  const { address } = (await run.entry(({ kind }) => kind === "open")) as unknown as { address: string };
  const lend = ["sampler", "--join", address, "--token-file", join(run.folder, "join.token")];
  const sampler = new CommandProcess(lend, { shell: "terminal" });
  await run.entry(({ kind, child }) => kind === "joined" && child !== undefined);
  await run.updated(1);
  sampler.type("\u0003");
  expect((await sampler.ended).code).toBe(0);
  await run.entry(({ kind, child }) => kind === "left" && child !== undefined);
  run.kill("SIGTERM");
  await run.ended;
});

/** A run to its end, on one thread: its actors do not have the command's standard error. */
function whole(options: StartOptions): RunProcess {
  const { folder, args } = runs.fresh({ ...small, learner: { updates: 3, filter: { strategy: "all" } } });
  return new RunProcess(folder, [...args, "--samplers", "1", "--actors=one-thread"], options);
}

test.skipIf(!existsSync("/dev/full"))("a standard error that is full (ENOSPC) does not end a run", async () => {
  const run = whole({ errorsTo: "/dev/full" });
  expect((await run.ended).code).toBe(0);
  expect(statSync(join(run.folder, "report.json")).isFile()).toBe(true);
});

test("a standard error that is closed (EPIPE) does not end a run", async () => {
  const run = whole({
    // The reader of standard error ends after its first line.
    wrap: ["sh", "-c", 'exec 3>&1; { "$@" 2>&1 >&3; echo "$?" >&3; } | head -n 1 >/dev/null', "sh"],
  });
  const { out } = await run.ended;
  expect(out.trimEnd().split("\n").at(-1)).toBe("0");
  expect(statSync(join(run.folder, "report.json")).isFile()).toBe(true);
});

test("a run that is stopped while its metrics sink hangs saves, and does not end with 0: episodes are lost", async () => {
  const run = await learning({ shell: "pipes" });
  process.kill(run.pid("metrics-sink"), "SIGSTOP");
  await run.next(updated);
  run.process.killGroup("SIGTERM");
  const { code, err } = await run.ended;
  expect([code, err]).toEqual([1, expect.stringMatching(/[1-9]\d* episodes are lost/)]);
  await expectSaved(run);
});

test("a run whose files may not grow (ulimit -f) saves its policy, and does not end with 0: episodes are lost", async () => {
  const learner = { updates: 3, filter: { strategy: "all" } };
  const { folder, args } = runs.fresh({ learner, supervisor: { heartbeatDeadlineMs: 4000 } });
  // In KiB: enough for a checkpoint, too little for the log of episodes.
  const wrap = ["bash", "-c", 'ulimit -f 250 && exec "$@"', "bash"];
  const { code, err } = await new RunProcess(folder, [...args, "--actors=one-thread"], { wrap }).ended;
  expect([code, err]).toEqual([1, expect.stringMatching(/[1-9]\d* episodes are lost/)]);
  expect(readdirSync(join(folder, "checkpoints"))).toContain("u000003");
});
