/** `bun run sweep`: the runs that a file plans, refused files, the table of the runs, and runs that are killed and go on. */
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { asyncBufferFromFile, parquetReadObjects } from "hyparquet";
import { Store } from "../../actors/metrics-sink/store.ts";
import { lockRun } from "../../actors/supervisor/run-lock.ts";
import { NO_PROJECT } from "../../library/project.ts";
import { newRun } from "../../library/run-folder.ts";
import { meanOf, shareOf, studentT } from "../../model/interval.ts";
import { inProject } from "../../scripts/cli/presets.ts";
import { planSweep } from "../../scripts/sweep/plan.ts";
import { checkFolder } from "../../scripts/sweep/play.ts";
import { LONG } from "../e2e/run-process.ts";
import { CommandProcess, command, commandHere, expectRefusal, root } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

setDefaultTimeout(LONG);

const folder = temporaryFolder();
let files = 0;
function sweepFile(content: object): string {
  const file = join(folder, `sweep-${++files}.yaml`);
  writeFileSync(file, JSON.stringify(content));
  return file;
}

describe("the interval of a mean", () => {
  // Source: the table of Student's distribution, two-sided 95 %.
  test.each([
    [1, 12.706],
    [2, 4.303],
    [4, 2.776],
    [9, 2.262],
    [30, 2.042],
    [120, 1.98],
  ])("has t of %p degrees of freedom = %p", (degrees, t) => {
    expect(studentT(degrees)).toBeCloseTo(t, 3);
  });

  test("is mean ± t · std / √n", () => {
    // std of 1, 2, 3, 4, 5 is √2.5; 2.776445 · √2.5 / √5 = 1.963243.
    const { n, mean, std, low, high } = meanOf([1, 2, 3, 4, 5]);
    expect([n, mean]).toEqual([5, 3]);
    expect(std).toBeCloseTo(1.5811388, 6);
    expect([low, high]).toEqual([expect.closeTo(1.036757, 5), expect.closeTo(4.963243, 5)]);
    expect(meanOf([7])).toEqual({ n: 1, mean: 7, std: null, low: null, high: null });
  });
});

describe("the exact interval of a share", () => {
  // binomtest(k, n).proportion_ci(method="exact") of scipy 1.16.
  test.each([
    [8, 10, 0.443905, 0.974789],
    [1, 30, 0.000844, 0.172169],
    [0, 30, 0, 0.11570331],
    [59, 59, 0.939391, 1],
  ])("of %p in %p is %p to %p", (hits, tries, low, high) => {
    const { low: ours, high: above } = shareOf(hits, tries);
    expect([ours, above]).toEqual([expect.closeTo(low, 5), expect.closeTo(high, 5)]);
  });

  test("needs tries", () => {
    expect(() => shareOf(0, 0)).toThrow("cannot compute a share of 0 hits in 0 tries");
    expect(() => shareOf(3, 2)).toThrow("cannot compute a share of 3 hits in 2 tries");
  });
});

test("a file is presets × variants × seeds, each as `bun run cluster` with flags", async () => {
  const file = sweepFile({
    presets: ["bandit", "quickstart"],
    seeds: [3, 1],
    set: { learner: { updates: 7, filter: { strategy: "top_ratio" } }, validate: { firstSeed: 5000 } },
    variants: { half: { learner: { filter: { value: 0.5 } } }, all: { learner: { filter: { value: 1 } } } },
  });
  const over = [{ path: "learner.updates", text: "9", source: "--learner.updates=9" }];
  const { runs, groups } = await planSweep(file, "out", over);
  expect(groups).toEqual(["bandit.half", "bandit.all", "quickstart.half", "quickstart.all"]);
  expect(runs.map((run) => run.folder)).toEqual(
    [3, 1].flatMap((seed) => groups.map((group) => join("out", `${group}-s${seed}`))),
  );
  const half = runs[0]!;
  expect(half.config).toMatchObject({ seed: 3, env: { tag: "Bandit" }, validate: { firstSeed: 5000 } });
  expect(half.config.learner).toMatchObject({ updates: 9, filter: { strategy: "top_ratio", value: 0.5 } });
  expect(half.flags).toEqual([
    "--preset",
    "bandit",
    "--learner.updates=7",
    "--learner.filter.strategy=top_ratio",
    "--learner.filter.value=0.5",
    "--validate.firstSeed=5000",
    "--learner.updates=9",
    "--metrics.port=0",
    "--seed=3",
  ]);
});

describe("what it refuses, in one line", () => {
  test.each<[string, object, RegExp]>([
    [
      "unknown keys",
      { seeds: [1], seed: 7, learner: {} },
      /yaml: the sweep: unknown key seed; did you mean seeds\?; unknown key learner; the keys are presets, seeds, set, variants, metrics$/m,
    ],
    ["no seeds", { presets: ["bandit"] }, /yaml: seeds: the file has none; write seeds: \[1, 2, 3\]$/m],
    ["a seed twice", { seeds: [1, 1] }, /seeds: names the seed 1 twice; leave one out/],
    [
      "a preset twice",
      { seeds: [1], presets: ["bandit", "bandit"] },
      /presets: names the preset bandit twice; leave one out/,
    ],
    [
      "a metric twice",
      { seeds: [1], metrics: ["train/turns", "train/turns"] },
      /metrics: names the metric train\/turns twice; leave one out/,
    ],
    ["no variant", { seeds: [1], variants: {} }, /variants: has no variant; leave it out/],
    ["a name of 49 characters", { seeds: [1], variants: { ["x".repeat(49)]: {} } }, /variants\.x{49}: /],
    ["an env for pretrained models", { seeds: [1], set: { env: { tag: "SimpleSudoku" } } }, /pretrained/],
    ["an unknown preset", { seeds: [1], presets: ["bandits"] }, /no preset "bandits"; did you mean bandit\?/],
    [
      "an unknown metric",
      { seeds: [1], metrics: ["train/entropi"] },
      /metrics: no metric named "train\/entropi"; did you mean train\/e/,
    ],
    ["a metric of actors", { seeds: [1], metrics: ["process/rss_bytes"] }, /has a value for each actor/],
    ["a name for a folder", { seeds: [1], variants: { "../x": {} } }, /variants\.\.\.\/x: /],
    [
      "an unknown setting",
      { seeds: [1], variants: { a: { learner: { gama: 1 } } } },
      /sweep-\d+\.yaml, a: learner\.gama: unknown key learner\.gama; did you mean learner\.gamma\?/,
    ],
    [
      "a seed among the settings",
      { seeds: [1], variants: { a: { seed: 7 } } },
      /sweep-\d+\.yaml, a: seed: a run of a sweep has one of the file's seeds; leave it out/,
    ],
    ["a port", { seeds: [1], set: { metrics: { port: 7005 } } }, /metrics\.port: each run .* on a free port; leave it/],
    ["a rule of the config", { seeds: [1], set: { learner: { learningRate: -1 } } }, /learner\.learningRate/],
  ])("%s", async (_, content, message) => {
    expectRefusal(await commandHere(["sweep", sweepFile(content), "--out", join(folder, "never")]), message);
    expect(existsSync(join(folder, "never"))).toBe(false);
  });

  test("two groups of one name, which would share their folders", async () => {
    const settings = { env: { tag: "Bandit" } };
    inProject({ ...NO_PROJECT, presets: { own: settings, "own.a": settings } });
    try {
      const file = sweepFile({ presets: ["own", "own.a"], seeds: [1], variants: { b: null, "a.b": null } });
      await expect(planSweep(file, "out", [])).rejects.toThrow(
        /: two groups have the name own\.a\.b; rename a variant$/,
      );
    } finally {
      inProject(NO_PROJECT);
    }
  });

  test("no run at once", async () => {
    const { code, err } = await commandHere(["sweep", sweepFile({ seeds: [1] }), "--at-once", "0"]);
    expect([code, err]).toEqual([2, 'error: --at-once takes a whole number, 1 or more, got "0"\n']);
  });

  test("a number of runs at once for a table, which starts none", async () => {
    const { code, err } = await commandHere(["sweep", sweepFile({ seeds: [1] }), "--table", "--at-once", "2"]);
    expect([code, err]).toEqual([2, "error: --table starts no run, and --at-once counts runs; leave one out\n"]);
  });

  test("a folder that cannot be made", async () => {
    const file = sweepFile({ presets: ["bandit"], seeds: [1] });
    const { code, err } = await commandHere(["sweep", file, "--out", join(file, "inside"), "--table"]);
    expect([code, err]).toEqual([
      2,
      expect.stringMatching(/^error: cannot make the folder .*inside: ENOTDIR: .*; name another one\n$/),
    ]);
  });

  test("a folder that holds a run with other settings", async () => {
    const out = join(folder, "other");
    const before = await planSweep(sweepFile({ presets: ["bandit"], seeds: [1] }), out, []);
    record(before.runs[0]!, 0.5, {});
    const { code, err } = await commandHere([
      "sweep",
      sweepFile({ presets: ["bandit"], seeds: [1], set: { learner: { updates: 2 } } }),
      "--out",
      out,
    ]);
    expect(code).toBe(2);
    expect(err).toMatch(
      /^error: .*bandit-s1 holds a run with other settings of learner; choose another --out, or .*\n$/,
    );
  });
});

test("an env's options keep the types that the file gives them", async () => {
  const set = { env: { options: { loArmName: "7", hiArmName: "true", hiArmHiscore: 2 } } };
  const { runs } = await planSweep(sweepFile({ presets: ["bandit"], seeds: [1], set }), "out", []);
  expect(runs[0]!.config.env.options).toMatchObject(set.env.options);
  expect(runs[0]!.flags).toContain('--env.options.loArmName="7"');
});

test("a run that was killed before it had written its config is played", async () => {
  const out = join(folder, "early");
  const { runs } = await planSweep(sweepFile({ presets: ["bandit"], seeds: [1] }), out, []);
  mkdirSync(runs[0]!.folder, { recursive: true });
  checkFolder(runs[0]!);
  expect(existsSync(runs[0]!.folder)).toBe(false);
});

/** A finished run as `bun run cluster` leaves it, with this success at its end. */
function record(
  run: { folder: string; config: object },
  after: number,
  metrics: Readonly<Record<string, number>>,
): void {
  mkdirSync(run.folder, { recursive: true });
  writeFileSync(join(run.folder, "config.json"), JSON.stringify(run.config));
  const success = { random: 0.2, taught: 0.25, before: 0.3, after, best: 1, expert: null };
  const report = { success, successAtOne: { taught: 0.15, after: after - 0.1 }, updates: 4 };
  writeFileSync(join(run.folder, "report.json"), JSON.stringify(report));
  let now = 0;
  const store = new Store({ path: join(run.folder, "run.sqlite"), durability: "normal", wallClock: () => now });
  store.startSession({ name: "run", env: "Bandit", updates: 4, seed: 1 });
  // A session of 60 s, and a later one of 30 s.
  now = 60_000;
  store.write({ points: [], events: [], episodes: [] });
  now = 100_000;
  store.startSession({ name: "run", env: "Bandit", updates: 4, seed: 1 });
  now = 130_000;
  const points = Object.entries({ "validate/success": after, ...metrics }).map(([name, value]) => {
    return { name, actor: "learner", step: 4, value };
  });
  points.unshift({ name: "validate/success", actor: "learner", step: 2, value: 0.75 });
  store.write({ points, events: [], episodes: [] });
  store.close();
}

test("the table has the mean, the interval and n of every group and figure, as text, CSV and Parquet", async () => {
  const out = join(folder, "table");
  const file = sweepFile({
    presets: ["bandit"],
    seeds: [1, 2, 3],
    set: { learner: { betas: [0.8, 0.9] } },
    variants: { slow: {}, fast: { learner: { learningRate: 0.01 } } },
    metrics: ["train/entropy"],
  });
  const { runs } = await planSweep(file, out, []);
  const slow = runs.filter(({ group }) => group === "slow");
  slow.forEach((run, i) => {
    record(run, [0.5, 0.6, 0.7][i]!, { "train/entropy": i + 1, "validate/format_errors": 0.25 });
  });
  record(runs.find(({ group }) => group === "fast")!, 0.8, {});
  const { code, out: text } = await commandHere(["sweep", file, "--out", out, "--table", "--json"]);
  expect(code).toBe(0);
  const cells = text.split("\n").map((line) => line.trim().split(/ {2,}/));
  const column = (head: string) => cells[0]!.indexOf(head) + 1;
  const cell = (row: number, head: string) => cells[row]![column(head)];
  // std .1: 4.302653 · .1 / √3 = .248414.
  expect(["n", "after", "after T 1", "highest"].map((head) => cell(1, head))).toEqual([
    "3/3",
    "60.0 ± 24.8 %",
    "50.0 ± 24.8 %",
    "75.0 %",
  ]);
  expect(["random", "taught", "taught T 1", "before", "best possible"].map((head) => cell(1, head))).toEqual([
    "20.0 %",
    "25.0 %",
    "15.0 %",
    "30.0 %",
    "100.0 %",
  ]);
  expect(cell(1, "after minus slow")).toBe("–");
  expect(["well-formed", "minutes", "train/entropy"].map((head) => cell(1, head))).toEqual([
    "75.0 %",
    "1.5",
    "2 ± 2.48",
  ]);
  expect(["n", "after", "highest", "train/entropy"].map((head) => cell(2, head))).toEqual([
    "1/3",
    "80.0 %",
    "80.0 %",
    "–",
  ]);
  const { groups, failed } = JSON.parse(text.trimEnd().split("\n").at(-1)!);
  expect(failed).toEqual([]);
  const rows = await parquetReadObjects({ file: await asyncBufferFromFile(join(out, "table.parquet")) });
  expect(rows).toEqual(groups);
  const none = { low: null, high: null, std: null };
  const alone = { group: "fast", figure: "after", n: 1, mean: 0.8, ...none };
  // Of seed 1 alone: .8 - .5.
  expect(rows).toContainEqual({ ...alone, change: expect.closeTo(0.3, 9), change_low: null, change_high: null });
  expect(cell(2, "after minus slow")).toBe("30.0 %");
  const csv = readFileSync(join(out, "table.csv"), "utf8");
  expect(csv).toMatch(/\r\nfast,after,1,0\.8,,,,0\.3\d*,,\r\n/);
  expect(readFileSync(join(out, "runs.csv"), "utf8").split("\r\n").length).toBe(1 + 4 + 1);
  const page = readFileSync(join(out, "index.html"), "utf8");
  expect(page).toContain("4 of 6 runs have finished; seeds 1, 2, 3");
  expect(page).toContain("<td>60.0 ± 24.8 %</td>");
  expect(page).toContain("slow (3 seeds)");
  expect(page).toMatch(/<td>learner.learningRate<\/td><td>[\d.e-]+<\/td><td>0.01<\/td>/);
  expect(page).toContain(
    "bun run cluster --preset bandit &#39;--learner.betas=[0.8,0.9]&#39; --learner.learningRate=0.01 --metrics.port=0 --seed=1",
  );
});

test("the page names the group that did not record a metric", async () => {
  const out = join(folder, "unmeasured");
  const file = sweepFile({
    presets: ["bandit"],
    seeds: [1, 2],
    variants: { a: {}, b: { learner: { updates: 60 } } },
    metrics: ["train/entropy"],
  });
  const { runs } = await planSweep(file, out, []);
  for (const run of runs) record(run, 0.5, run.group === "a" ? {} : { "train/entropy": 1 });
  await commandHere(["sweep", file, "--out", out, "--table"]);
  expect(readFileSync(join(out, "index.html"), "utf8")).toContain(">not recorded by a<");
});

test("differences are paired by seed", async () => {
  const out = join(folder, "paired");
  const file = sweepFile({
    presets: ["bandit"],
    seeds: [1, 2, 3],
    variants: { a: {}, b: { learner: { updates: 60 } } },
  });
  const { runs } = await planSweep(file, out, []);
  // b is better by .1, .2 and .3 on the seeds 1, 2 and 3, although the groups overlap.
  for (const run of runs) record(run, (run.group === "a" ? [0.1, 0.4, 0.6] : [0.2, 0.6, 0.9])[run.seed - 1]!, {});
  const { out: text } = await commandHere(["sweep", file, "--out", out, "--table"]);
  expect(text).toMatch(/^b .* 20\.0 ± 24\.8 %$/m);
  // No run measured it.
  expect(text).not.toContain("well-formed");
});

test("of seeds that the first group lacks there is no difference", async () => {
  const out = join(folder, "unpaired");
  const file = sweepFile({ presets: ["bandit"], seeds: [1, 2], variants: { a: {}, b: { learner: { updates: 60 } } } });
  const { runs } = await planSweep(file, out, []);
  for (const run of runs) if (run.group === "b" || run.seed === 1) record(run, run.group === "a" ? 0.3 : 0.5, {});
  const { out: text } = await commandHere(["sweep", file, "--out", out, "--table"]);
  expect(text).toMatch(/^b .* 20\.0 %$/m);
});

test("more groups than colors have several pictures; a group without finished runs has no line", async () => {
  const out = join(folder, "many");
  const variants = Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`v${i}`, { learner: { updates: i + 1 } }]));
  const file = sweepFile({ presets: ["bandit"], seeds: [1], variants });
  const { runs } = await planSweep(file, out, []);
  for (const run of runs.slice(0, 9)) record(run, 0.5, {});
  await commandHere(["sweep", file, "--out", out, "--table"]);
  const page = readFileSync(join(out, "index.html"), "utf8");
  const pictures = [...page.matchAll(/<svg .*?<\/svg>/gs)].map(([svg]) => svg.match(/v\d \(1 seed\)/g)?.length);
  expect(pictures).toEqual([8, 1]);
  expect(page).not.toContain("(0 seeds)");
});

describe("the files of configs/sweeps", async () => {
  const home = join(root, "configs/sweeps");
  const names = readdirSync(home);
  const plan = (name: string) => planSweep(join(home, name), "out", []);
  const online = await plan("online-k.yaml");
  const diverse = await plan("task-diversity.yaml");
  const actions = await plan("actions-per-turn.yaml");

  test.each(names)("%s: can be run on five seeds, and says what the paper found", async (name) => {
    const sweep = await plan(name);
    expect(sweep.seeds.length).toBe(5);
    expect(sweep.groups.length).toBeGreaterThan(1);
    expect(readFileSync(join(home, name), "utf8")).toMatch(/^# .*\n(#.*\n)*?# RAGEN/);
  });

  test("the number of boards changes at a fixed number of episodes", () => {
    expect(diverse.runs.map(({ config: { rollout } }) => rollout.groups * rollout.groupSize)).toEqual(
      Array(25).fill(64),
    );
  });

  test("Online-k takes as many steps for every k, each on as many episodes", () => {
    for (const { config } of online.runs) {
      const { rollout, learner } = config;
      expect([rollout.onlineK * learner.updates, rollout.groups * rollout.groupSize]).toEqual([100, 64]);
    }
  });

  test("five turns of n actions", () => {
    const envs = actions.runs.slice(0, 7).map(({ config }) => config.env);
    expect(
      envs.map(({ turnsMax, actionsMax, actionsPerTurnMax }) => [actionsPerTurnMax, turnsMax, actionsMax]),
    ).toEqual([1, 2, 3, 4, 5, 6, 7].map((n) => [n, 5, 5 * n]));
  });
});

const TINY = {
  presets: ["bandit"],
  set: {
    rollout: { groups: 2, groupSize: 2 },
    model: { width: 16, layers: 1, heads: 2, kvHeads: 1, hidden: 32 },
    warmStart: {
      boards: 20,
      cacheDir: join(folder, "warm-start"),
      stages: [{ name: "learn", babble: 0.5, noise: 0, steps: 4, batch: 4, learningRate: 1e-2, warmUpSteps: 0 }],
    },
    sampler: { count: 1 },
    validate: { episodes: 4 },
    checkpoint: { everyUpdates: 5 },
  },
};

test("after a kill the same command goes on: a finished run stays, a begun one is resumed", async () => {
  const out = join(folder, "killed");
  const file = sweepFile({ ...TINY, seeds: [1, 2], variants: { a: { learner: { updates: 20 } } } });
  const args = ["sweep", file, "--out", out];
  const [first, second] = ["a-s1", "a-s2"].map((name) => join(out, name)) as [string, string];
  const killed = new CommandProcess(args, { shell: "pipes" });
  // Another process makes these files.
  while (!existsSync(join(second, "checkpoints/u000005"))) await Bun.sleep(10);
  killed.killGroup("SIGKILL");
  await killed.ended;
  expect(existsSync(join(second, "report.json"))).toBe(false);
  const finishedMs = statSync(join(first, "report.json")).mtimeMs;
  const { code, out: text, err } = await command(args);
  expect([code, err]).toEqual([
    0,
    expect.stringMatching(/^1 of 2 runs had finished before\n(a-s2.*\n)*a-s2 has finished \(2 of 2 runs\)\n$/),
  ]);
  expect(text).toMatch(/^a +2\/2 /m);
  expect(statSync(join(first, "report.json")).mtimeMs).toBe(finishedMs);
  // Two learners, and one warm start: the second learner began at the checkpoint.
  const log = readFileSync(join(second, "log.jsonl"), "utf8");
  const count = (line: RegExp) => log.match(line)?.length;
  expect([count(/"kind":"started","child":"learner"/g), count(/"kind":"taught"/g)]).toEqual([2, 1]);
});

test("a run that fails is named with its reason, and the next one is tried", async () => {
  const out = join(folder, "failing");
  const file = sweepFile({ ...TINY, seeds: [1, 2] });
  const { runs } = await planSweep(file, out, []);
  const locks = runs.map((run) => lockRun(newRun(run.config, run.folder).folder));
  const { code, out: text, err } = await command(["sweep", file, "--out", out]);
  for (const lock of locks) lock.release();
  expect(code).toBe(1);
  for (const seed of [1, 2]) {
    expect(err).toMatch(new RegExp(`bandit-s${seed} failed: exit code 1: error: .* is in use by process`));
  }
  expect(text).toMatch(/^bandit +0\/2$/m);
});
