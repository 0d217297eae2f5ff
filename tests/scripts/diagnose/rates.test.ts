import { describe, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { MetricValues } from "../../../actors/metrics/metrics.ts";
import { sequence } from "../../../model/rng.ts";
import { mean } from "../../../model/statistics.ts";
import {
  bunraku,
  type Detector,
  entropyFloor,
  gradientThreeSigma,
  loggedUpdate,
  outcomeOf,
  ragenStops,
} from "../../../scripts/diagnose/detectors.ts";
import { ratesReport, ratesText } from "../../../scripts/diagnose/rates.ts";
import { type RunLog, readLogs, writeLogs } from "../../../scripts/diagnose/run-logs.ts";
import { recordIn } from "../../actors/metrics-sink/recorded.ts";
import { temporaryFolder } from "../temporary.ts";

const repeat = <T>(count: number, value: T): T[] => Array.from({ length: count }, () => value);

describe("the outcome of a run", () => {
  test("is a collapse where success ends below half of its peak, from the update in which it fell", () => {
    // Around index 30 the mean of 21 updates has 10 of 1 and 11 of 0: .476, below .5; around index 29 it has 11 of 1: .524.
    const success = [...repeat(30, 1), ...repeat(30, 0)];
    expect(outcomeOf(success)).toEqual({ kind: "collapsed", onset: 30 });
  });

  test("is a collapse where the first update breaks the policy", () => {
    expect(outcomeOf([1, ...repeat(59, 0.1)])).toEqual({ kind: "collapsed", onset: 0 });
  });

  test("is healthy where success varies by chance, as that of eight boards does", () => {
    const kinds = Array.from({ length: 100 }, (_, seed) => {
      const draw = sequence(seed, "boards");
      // Eight episodes of each of eight boards, of which half are easy: success .4 on the mean, with a deviation of .12.
      const update = () => {
        const boards = Array.from({ length: 8 }, () => (draw() < 0.5 ? 0.1 : 0.7));
        return mean(boards.flatMap((chance) => Array.from({ length: 8 }, () => Number(draw() < chance))));
      };
      return outcomeOf(Array.from({ length: 150 }, update)).kind;
    });
    expect(kinds.filter((kind) => kind === "healthy").length).toBeGreaterThanOrEqual(85);
    expect(kinds).not.toContain("collapsed");
  });

  test("is unclear where success fell and came back, or ends between", () => {
    expect(outcomeOf([...repeat(20, 0.8), ...repeat(20, 0), ...repeat(20, 0.8)]).kind).toBe("unclear");
    // Of the peak these ends have .75 and .825; a healthy run has .8 or more.
    expect([0.6, 0.66].map((end) => outcomeOf([...repeat(20, 0.8), ...repeat(20, end)]).kind)).toEqual([
      "unclear",
      "healthy",
    ]);
    // Falls of .08 and of .13, both below half.
    expect(outcomeOf([...repeat(40, 0.15), ...repeat(40, 0.07)]).kind).toBe("unclear");
    expect(outcomeOf([...repeat(40, 0.25), ...repeat(40, 0.12)]).kind).toBe("collapsed");
  });

  test("is unclear without updates, as of a run that ended in its warm start", () => {
    expect(outcomeOf([])).toEqual({ kind: "unclear" });
  });

  test("is healthy at the ceiling, while it rises, and at chance", () => {
    for (const success of [
      repeat(40, 1),
      Array.from({ length: 40 }, (_, i) => i / 40),
      Array.from({ length: 40 }, (_, i) => 0.05 + 0.04 * (i % 2)),
    ]) {
      expect(outcomeOf(success).kind).toBe("healthy");
    }
  });
});

describe("the first alarm", () => {
  const alarmOf = (detector: Detector, updates: readonly MetricValues[]) =>
    detector({ updates: updates.map(loggedUpdate) });
  const learns = {
    "train/success": 0.5,
    "train/in_group_std": 1,
    "train/kept_groups": 1,
    "train/entropy": 0.5,
    "train/grad_norm": 1,
  };

  test("of a healthy run is none", () => {
    const updates = repeat(50, learns);
    for (const detector of [bunraku(["warning", "collapsed"]), ragenStops, entropyFloor(0.1), gradientThreeSigma]) {
      expect(alarmOf(detector, updates)).toBeNull();
    }
  });

  test("of the entropy floor is the third update in a row below it", () => {
    const low = { ...learns, "train/entropy": 0.05 };
    expect(alarmOf(entropyFloor(0.1), [...repeat(10, learns), low, low, learns, low, low, low])).toBe(15);
    expect(alarmOf(entropyFloor(0.05), repeat(10, low))).toBeNull();
  });

  test("of the gradient is the update above mean + 3 σ, from the twentieth on", () => {
    const updates = Array.from({ length: 30 }, (_, i) => ({ ...learns, "train/grad_norm": i % 2 === 0 ? 1 : 2 }));
    const alarmAt = (index: number, norm: number) =>
      alarmOf(gradientThreeSigma, updates.with(index, { ...learns, "train/grad_norm": norm }));
    expect([alarmAt(5, 9), alarmAt(19, 9), alarmAt(20, 9), alarmAt(25, 9)]).toEqual([null, null, 20, 25]);
    // Mean 1.48 and deviation .51 before it.
    expect([alarmAt(25, 2.9), alarmAt(25, 3.1)]).toEqual([null, 25]);
  });

  test("of Bunraku comes when success and form fall, and of RAGEN-2's stops when no group has a spread", () => {
    const malformed = { ...learns, "train/success": 0, "train/format_errors": 1, "train/in_group_std": 0 };
    const updates = [...repeat(20, { ...learns, "train/format_errors": 0 }), ...repeat(30, malformed)];
    const alarm = alarmOf(bunraku(["collapsed"]), updates)!;
    expect(alarm).toBeGreaterThanOrEqual(20);
    expect(alarm).toBeLessThan(30);
    // An update that trained on nothing is no point of the detector, and has an index.
    expect(alarmOf(bunraku(["collapsed"]), [{}, ...updates])).toBe(alarm + 1);
    // Ten updates in a row below a tenth of the baseline.
    expect(alarmOf(ragenStops, updates)).toBe(29);
  });
});

describe("the rates over many runs", () => {
  const folder = temporaryFolder();
  const update = (success: number, formErrors: number) => ({
    "train/success": success,
    "train/format_errors": formErrors,
    "train/in_group_std": 1,
    "train/kept_groups": 1,
    "train/entropy": 0.5,
    "train/grad_norm": 1,
  });
  const run = (name: string, env: string, seed: number, series: readonly MetricValues[]): RunLog => ({
    run: `${name}-s${seed}`,
    env,
    seed,
    updates: series.map((values, i) => ({ update: i + 1, values })),
  });
  const falls = [...repeat(20, update(0.8, 0)), ...repeat(20, update(0, 1))];
  const stays = repeat(40, update(0.8, 0));
  // The form is lost and success is not: an alarm in a healthy run.
  const rambles = [...repeat(20, update(0.8, 0)), ...repeat(20, update(0.8, 1))];
  const logs = [
    ...[1, 2, 3, 4].flatMap((seed) => [run("falls", "Bandit", seed, falls), run("stays", "Bandit", seed, stays)]),
    run("rambles", "FrozenLake", 2, rambles),
    run("falls-on-ice", "FrozenLake", 1, falls),
  ];

  test("count alarms in collapsed runs and in healthy ones, of seeds and envs that no threshold was chosen on", () => {
    const { runs, outcomes, chosen, parts } = ratesReport(logs, { heldOut: "FrozenLake", alarms: null });
    expect(runs.slice(0, 2)).toEqual([
      { run: "falls-s1", outcome: "collapsed", onset: 21 },
      { run: "stays-s1", outcome: "healthy", onset: null },
    ]);
    expect(outcomes).toEqual([
      { setting: "falls", healthy: 0, collapsed: 4, unclear: 0, onset: 21 },
      { setting: "stays", healthy: 4, collapsed: 0, unclear: 0, onset: null },
      { setting: "rambles", healthy: 1, collapsed: 0, unclear: 0, onset: null },
      { setting: "falls-on-ice", healthy: 0, collapsed: 1, unclear: 0, onset: 21 },
    ]);
    expect([chosen.runs, chosen.collapsed, chosen.warning]).toEqual([4, {}, {}]);
    expect(parts.map(({ of, runs }) => [of, runs])).toEqual([
      ["even seeds, other envs", 4],
      ["FrozenLake, held out", 2],
      ["both", 6],
      // All three of them fall at index 20.
      ["all of these except collapses in the first 20 updates", 6],
    ]);
    const counts = (part: number, alarm: string) => {
      const { collapsed, caught, healthy, falseAlarms } = parts[part]!.rates.find((rates) => rates.alarm === alarm)!;
      return [caught, collapsed, falseAlarms, healthy];
    };
    expect(counts(0, "warning or collapsed, default")).toEqual([2, 2, 0, 2]);
    expect(counts(1, "warning or collapsed, default")).toEqual([1, 1, 1, 1]);
    expect(counts(1, "collapsed, default thresholds")).toEqual([1, 1, 0, 1]);
    expect(counts(2, "gradient above 3 σ")).toEqual([0, 3, 0, 3]);
  });

  test("are of the thresholds that were chosen for each alarm, and of the chosen floor", () => {
    // Replies that lose .3 of their form: a sign below a threshold of .3, and none at the default of .4.
    const series = (success: number, entropy: number) =>
      [...repeat(20, update(0.8, 0)), ...repeat(20, update(success, 0.3))].map((one) => ({
        ...one,
        "train/entropy": entropy,
      }));
    const [slips, mumbles] = [series(0, 0.04), series(0.8, 0.07)];
    const logs = [1, 2].flatMap((seed) => [
      run("slips", "Bandit", seed, slips),
      run("mumbles", "Bandit", seed, mumbles),
    ]);
    // A floor of .1 catches this collapse too, and is a false alarm in the healthy run.
    const report = ratesReport([...logs, run("slips", "Bandit", 3, series(0, 0.07))], { heldOut: null, alarms: null });
    expect(report.chosen).toEqual({ runs: 3, collapsed: { validityFall: 0.1 }, warning: {}, floor: 0.05 });
    const counts = report.parts[0]!.rates.map(({ alarm, caught, falseAlarms }) => [alarm, caught, falseAlarms]);
    expect(counts.slice(0, 6)).toEqual([
      ["collapsed, default thresholds", 0, 0],
      ["warning or collapsed, default", 1, 0],
      ["collapsed, chosen thresholds", 1, 0],
      ["warning or collapsed, chosen", 1, 0],
      ["RAGEN-2's early stops", 0, 0],
      ["entropy below the chosen floor", 1, 0],
    ]);
    expect(ratesReport([run("slips", "Bandit", 12, slips)], { heldOut: null, alarms: null }).outcomes).toEqual([
      { setting: "slips", healthy: 0, collapsed: 1, unclear: 0, onset: 21 },
    ]);
    const lines = ratesText(report)
      .split("\n")
      .map((line) => line.trim().split(/ {2,}/));
    // Of one run: 0.025 to 1, and 0 to 0.975.
    expect(lines).toContainEqual(["collapsed, chosen thresholds", "1/1", "0.03 to 1.00", "0/1", "0.00 to 0.97", "-4"]);
    expect(lines).toContainEqual(["slips", "0", "3", "0", "21"]);
  });

  test("are also given without the runs that collapse before a detector can know their start", () => {
    const breaks = run("breaks", "Bandit", 2, [update(0.8, 0), ...repeat(39, update(0, 1))]);
    const { parts } = ratesReport([run("falls", "Bandit", 2, falls), breaks], { heldOut: null, alarms: null });
    expect(parts.map(({ runs, rates }) => [runs, rates[0]!.collapsed])).toEqual([
      [2, 2],
      [1, 1],
    ]);
  });

  test("are of the finished runs of a folder, by the updates that trained on something", () => {
    const home = temporaryFolder();
    const recorded = (name: string, isFinished: boolean) => {
      const values = { "train/success": [[1, 0.5], [3, 0.25]], "train/entropy": [[1, 2], [2, 1]] } as const; // biome-ignore format: a row
      recordIn(join(home, name), values, { seed: 7 }).close();
      if (isFinished) writeFileSync(join(home, name, "report.json"), "{}");
    };
    recorded("b-s7", true);
    recorded("a-s7", true);
    recorded("going-s7", false);
    // What a failed copy leaves.
    mkdirSync(join(home, "empty"));
    writeFileSync(join(home, "empty", "report.json"), "{}");
    const updates = [
      { update: 1, values: { "train/success": 0.5, "train/entropy": 2 } },
      { update: 3, values: { "train/success": 0.25 } },
    ];
    expect(readLogs(home)).toEqual(["a-s7", "b-s7"].map((run) => ({ run, env: "Bandit", seed: 7, updates })));
  });

  test("are the same of the Parquet file", async () => {
    const file = join(folder, "logs.parquet");
    await writeLogs(file, logs);
    expect(readLogs(file)).toEqual(logs);
    // As another program writes what was not measured.
    const values = { "train/success": 0.5, "train/entropy": Number.NaN };
    await writeLogs(file, [{ ...logs[0]!, updates: [{ update: 1, values }] }]);
    expect(readLogs(file)[0]!.updates).toEqual([{ update: 1, values: { "train/success": 0.5 } }]);
    // Sorted otherwise, and with an update that trained on nothing.
    const idle = { update: 61, values: { "train/success": Number.NaN, "train/entropy": 1 } };
    await writeLogs(
      file,
      logs.map((log) => ({ ...log, updates: [idle, ...log.updates.toReversed()] })),
    );
    expect(readLogs(file)).toEqual(logs);
  });

  test("are written whole or not at all: a run of the same name is refused, and a failure keeps the former file", async () => {
    const file = join(folder, "kept.parquet");
    const [first, other] = [run("falls", "Bandit", 1, falls), run("falls", "FrozenLake", 1, stays)];
    await writeLogs(file, [first]);
    await expect(writeLogs(file, [first, other])).rejects.toThrow(
      `two runs are named falls-s1, and ${file} tells runs apart`,
    );
    const broken = { ...first, updates: [{ update: 0.5, values: {} }] };
    await expect(writeLogs(file, [broken])).rejects.toThrow("expected integer");
    const inside = join(file, "inside");
    await expect(writeLogs(inside, [first])).rejects.toThrow(
      /^cannot write --logs-to .*inside: ENOTDIR: .*; make room, or name another file$/,
    );
    expect(readLogs(file)).toEqual([first]);
  });

  test("take alarms of other detectors, one for each run", async () => {
    const file = join(folder, "alarms.json");
    // Success falls below half at index 20; an alarm eleven updates later is no true one.
    const alarms = (onset: number) =>
      Object.fromEntries(logs.map(({ run }) => [run, /falls/.test(run) ? onset : null]));
    await Bun.write(file, JSON.stringify({ last: alarms(30), late: alarms(31), early: alarms(10) }));
    const { parts } = ratesReport(logs, { heldOut: null, alarms: file });
    const [last, late, early] = parts[0]!.rates.slice(-3);
    expect([last!.caught, last!.leads]).toEqual([2, [-10, -10]]);
    expect([late!.caught, late!.collapsed]).toEqual([0, 2]);
    expect([early!.caught, early!.leads]).toEqual([2, [10, 10]]);
    await Bun.write(file, JSON.stringify({ other: { elsewhere: 3 } }));
    expect(() => ratesReport(logs, { heldOut: null, alarms: file })).toThrow(
      "has no entry for the run falls-s2; make the file from the same logs",
    );
  });

  test("name a file that cannot be read", async () => {
    const [alarms, cut, text] = ["broken.json", "cut.parquet", "logs.csv"].map((name) => join(folder, name));
    for (const file of [alarms!, cut!, text!]) await Bun.write(file, '{"late": ');
    const report = (file: string) => () => ratesReport([], { heldOut: null, alarms: file });
    expect(report(alarms!)).toThrow(`${alarms} is not a file of alarms`);
    expect(report(join(folder, "none.json"))).toThrow(`cannot read the alarms ${join(folder, "none.json")}: ENOENT`);
    expect(() => readLogs(cut!)).toThrow(`cannot read the logs ${cut}: is not a parquet file`);
    expect(() => readLogs(text!)).toThrow(`${text} has no logs of runs; give a folder of runs, or a .parquet file`);
  });

  test("hold out an env that the runs have", () => {
    expect(() => ratesReport(logs, { heldOut: "Frozenlake", alarms: null })).toThrow(
      "--held-out Frozenlake: no run has this env; name one of Bandit, FrozenLake",
    );
  });

  test("need runs", () => {
    expect(() => readLogs(join(folder, "nowhere"))).toThrow("no folder of runs and no file at");
    expect(() => readLogs(folder)).toThrow("no finished run in");
  });
});
