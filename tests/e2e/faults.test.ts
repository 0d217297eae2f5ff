/** A run whose processes are killed, stopped and resumed learns bit for bit what an undisturbed run learns. */
import { Database } from "bun:sqlite";
import { beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { latestCheckpoint } from "../../actors/checkpoint/checkpoint.ts";
import { isAlive } from "../../scripts/chaos/watch.ts";
import { figure, ms } from "../figure.ts";
import type { Ended } from "../scripts/command.ts";
import { exited, expectNothingLeft, expectSameLearnt, LONG, RunProcess, Runs, ready, updated } from "./run-process.ts";

setDefaultTimeout(LONG);

const runs = new Runs("shared");

/** A run that is killed after its fifth has at least 20 to make after it was resumed. */
const UPDATES = 28;
// A KL term needs a policy that no checkpoint of the middle holds, and a critic has an optimiser of its own.
const learner = { updates: UPDATES, algorithm: "ppo", filter: { strategy: "all" }, kl: { coefficient: 0.01 } };
const config = { learner, validate: { episodes: 8 } };
const fresh = (samplers: number) => runs.fresh({ ...config, sampler: { count: samplers } });

let undisturbed: string;
beforeAll(async () => {
  undisturbed = await runs.undisturbed(config);
});

/** Episodes that failed and have a reward all the same. */
function rewardsOfErrors(folder: string): number {
  using db = new Database(join(folder, "run.sqlite"), { readonly: true });
  const sql = "SELECT count(*) FROM episodes WHERE status IN ('envError', 'aborted') AND reward IS NOT NULL";
  return Number(db.query(sql).values()[0]![0]);
}

describe("SIGKILL in the middle", () => {
  const { folder, args } = fresh(2);
  let run: RunProcess;
  let ended: Ended;
  let [noticed, serving, noticedLearner, learning] = [0, 0, 0, 0];

  beforeAll(async () => {
    run = new RunProcess(folder, args);
    await run.updated(2);
    process.kill(run.pid("sampler-1"), "SIGKILL");
    await run.updated(4);
    const next = run.next(exited("env-server-0"), ready("env-server-0"));
    process.kill(run.pid("env-server-0"), "SIGKILL");
    [noticed, serving] = (await next) as [number, number];
    // A checkpoint holds what was played without the env server: the next learner does not play it again.
    await run.updated(8);
    const after = run.next(exited("learner"), updated);
    process.kill(run.pid("learner"), "SIGKILL");
    [noticedLearner, learning] = (await after) as [number, number];
    ended = await run.ended;
  });

  test("of a sampler and an env server changes nothing but lines in the log", async () => {
    expect(ended.code).toBe(0);
    for (const actor of ["sampler-1", "env-server-0"]) {
      expect(ended.err).toContain(`${actor} died (SIGKILL)\n`);
      expect(ended.err).toContain(`${actor} was started again\n`);
    }
    await expectSameLearnt(folder, undisturbed);
    const zeros = rewardsOfErrors(folder);
    expect(zeros).toBe(0);
    figure("env server SIGKILL", {
      noticed: ms(noticed),
      "serving again": ms(serving),
      "errors with a reward": zeros,
    });
    expectNothingLeft(run);
  });

  test("of the learner loses what came after its last checkpoint, and makes it again", async () => {
    expect(ended.code).toBe(0);
    expect(ended.err).toContain("learner was started again\n");
    await expectSameLearnt(folder, undisturbed);
    figure("learner SIGKILL", {
      noticed: ms(noticedLearner),
      "next update": ms(learning),
      "bits that differ at the end": 0,
    });
    expectNothingLeft(run);
  });
});

describe("a run that is resumed twice", () => {
  const { folder, args } = fresh(1);

  test("SIGTERM saves and ends within 10 s with exit code 0", async () => {
    const run = new RunProcess(folder, args);
    await run.updated(3);
    const began = performance.now();
    run.kill("SIGTERM");
    const { code, out, err } = await run.ended;
    const took = performance.now() - began;
    figure("SIGTERM", { "exit code 0": ms(took) });
    expect(took).toBeLessThan(10_000);
    expect({ code, out }).toEqual({
      code: 0,
      out: `stopped (SIGTERM); go on with: bun run cluster --resume ${folder}\n`,
    });
    // Samplers leave on request, so their leaving is no warning.
    expect(err).not.toContain("warning");
    expectNothingLeft(run);
    const update = Number(/u(\d+)$/.exec((await latestCheckpoint(join(folder, "checkpoints"))).found!)![1]);
    expect(update).toBeGreaterThanOrEqual(3);
  });

  test("SIGKILL of the supervisor ends every actor within 1 s; --resume takes the newest checkpoint that is whole, and says which is not", async () => {
    const run = new RunProcess(folder, ["--resume", folder]);
    await run.updated(5);
    const began = performance.now();
    run.kill("SIGKILL");
    await run.ended;
    // They are not our children, so there is no event for their end.
    while (run.pids.some(isAlive)) await Bun.sleep(2);
    const took = performance.now() - began;
    figure("supervisor SIGKILL", { "no actor left": ms(took) });
    expect(took).toBeLessThan(1000);
    expectNothingLeft(run);
    const { found } = await latestCheckpoint(join(folder, "checkpoints"));
    expect(Number(/u(\d+)$/.exec(found!)![1])).toBeLessThanOrEqual(UPDATES - 20);
    const file = join(found!, "optimizer.safetensors");
    const bytes = readFileSync(file);
    bytes[bytes.length - 100]! ^= 1;
    writeFileSync(file, bytes);
    const resumed = new RunProcess(folder, ["--resume", folder]);
    const [learning] = (await resumed.next(updated)) as [number];
    const { code, err } = await resumed.ended;
    expect(code).toBe(0);
    expect(err).toContain(`warning: learner: ${found} is not used: optimizer.safetensors is corrupt`);
    const again = UPDATES - Number(/u(\d+)$/.exec(found!)![1]);
    figure("run killed and resumed", { "first update": ms(learning), "updates equal to the bit": again });
    expectNothingLeft(resumed);
  });

  test("learns bit for bit what an undisturbed one learns", () => expectSameLearnt(folder, undisturbed));
});

test("SIGKILL of all processes at once leaves no shared memory", async () => {
  const { folder, args } = runs.fresh({ learner: { filter: { strategy: "all" } } });
  const run = new RunProcess(folder, args);
  await run.updated(1);
  run.kill("SIGKILL");
  for (const pid of run.pids) if (isAlive(pid)) process.kill(pid, "SIGKILL");
  await run.ended;
  while (run.pids.some(isAlive)) await Bun.sleep(2);
  expectNothingLeft(run);
});

describe("SIGTERM", () => {
  test("to every process at once, as from timeout or systemd, is one orderly stop", async () => {
    const { folder, args } = fresh(1);
    const run = new RunProcess(folder, args);
    await run.updated(3);
    for (const pid of run.pids) process.kill(pid, "SIGTERM");
    run.kill("SIGTERM");
    const { code, out, err } = await run.ended;
    expect([code, out]).toEqual([0, `stopped (SIGTERM); go on with: bun run cluster --resume ${folder}\n`]);
    expect(err).not.toMatch(/started again|^error:/m);
    expectNothingLeft(run);
  });

  test("in the warm start leaves a run that --resume starts over", async () => {
    const { folder, args } = runs.fresh({
      learner: { updates: 1 },
      validate: { episodes: 8 },
      warmStart: { cacheDir: join(runs.folder, "new") },
    });
    const run = new RunProcess(folder, args);
    await run.entry(({ kind }) => kind === "warm");
    run.kill("SIGTERM");
    expect((await run.ended).code).toBe(0);
    expect(run.log.filter(updated)).toEqual([]);
    expectNothingLeft(run);
    expect((await new RunProcess(folder, ["--resume", folder]).ended).code).toBe(0);
  });
});
