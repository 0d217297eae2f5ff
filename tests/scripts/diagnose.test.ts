/** `bun run diagnose` as a process, over runs as a metrics sink leaves them. */

import { Database } from "bun:sqlite";
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Store } from "../../actors/metrics-sink/store.ts";
import { recordIn } from "../actors/metrics-sink/recorded.ts";
import { commandHere, expectRefusal } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

setDefaultTimeout(60_000);

const folder = temporaryFolder();

/** A run of 40 updates, whose groups differ as much as `left` says. */
function record(
  name: string,
  left: (update: number) => number,
  { config, validated = {} }: { config?: object; validated?: Record<string, number> } = {},
): string {
  const path = join(folder, name);
  const store = recordIn(path, {}, { env: "Bandit+Ice", updates: 40 });
  if (config !== undefined) writeFileSync(join(path, "config.json"), JSON.stringify(config));
  const points = Array.from({ length: 40 }, (_, i) => i + 1).flatMap((step) => [
    { name: "train/success", actor: "learner", step, value: 0.3 * Math.min(1, left(step - 10)) },
    { name: "train/in_group_std", actor: "learner", step, value: 2 * left(step) },
    { name: "train/kept_groups", actor: "learner", step, value: 1 },
  ]);
  for (const [metric, value] of Object.entries(validated)) {
    for (let step = 0; step < 40; step += 4) points.push({ name: metric, actor: "learner", step, value });
  }
  store.write({ points, events: [], episodes: [] });
  store.close();
  return path;
}

const trapped = record("trapped", (update) => Math.max(0, 1 - update / 30), {
  config: { health: { ladder: ["stop"] } },
});
const healthy = record("healthy", () => 1);

test("says when a run fell, why, and what would have been done about it", async () => {
  const { code, out } = await commandHere(["diagnose", trapped, healthy, "--json"]);
  expect(code).toBe(0);
  expect(out).toContain(`${trapped}: collapsed after 40 updates`);
  expect(out).toMatch(/update \d+: warning: in-group reward std is \d\.\d+; at the start it was \d\.\d+/);
  expect(out).toMatch(/update \d+: intervention: stop \(rung 1 of 1\): the run ends here; collapsed: /);
  expect(out).toMatch(/RAGEN-2 would have stopped the run at update \d+: reward_variance_collapse: /);
  expect(out.match(/at update \d+: reward_variance_collapse/g)).toHaveLength(1);
  expect(out).toContain(`${healthy}: healthy after 40 updates\n  healthy all the time`);
  const { runs } = JSON.parse(out.trimEnd().split("\n").at(-1)!);
  expect(runs.map(({ verdict, updates }: { verdict: string; updates: number }) => [verdict, updates])).toEqual([
    ["collapsed", 40],
    ["healthy", 40],
  ]);
});

test("judges a validation over a mix by the env that is solved least, as the run itself did", async () => {
  const validated = (low: number) => ({
    "validate/success": (0.6 + low) / 2,
    "validate/success{env=Bandit}": 0.6,
    "validate/success{env=Ice}": low,
  });
  const lame = record("lame", () => 1, { validated: validated(0) });
  const sound = record("sound", () => 1, { validated: validated(0.2) });
  const { out } = await commandHere(["diagnose", lame, sound]);
  expect(out).toMatch(/RAGEN-2 would have stopped the run at update \d+: low_validation_success: /);
  expect(out.split(sound)[1]).toStartWith(": healthy after 40 updates\n");
  expect(out.split(sound)[1]).not.toContain("low_validation_success");
});

test("judges a validation after its update, also where the next one measured nothing, as the run itself does", async () => {
  const stale = record("stale", () => 1, { validated: { "validate/success": 0 } });
  using db = new Database(join(stale, "run.sqlite"));
  db.run("DELETE FROM metrics WHERE name = 'train/success' AND step % 4 = 1");
  const { out } = await commandHere(["diagnose", stale]);
  expect(out).toMatch(/RAGEN-2 would have stopped the run at update 16: low_validation_success: /);
});

test("a validation after the last update ends nothing, as the run itself was over", async () => {
  const path = record("late", () => 1, { validated: { "validate/success": 0 } });
  using db = new Database(join(path, "run.sqlite"));
  // The fifth of five validations that solve nothing is at update 36.
  db.run("DELETE FROM metrics WHERE name = 'validate/success' AND step < 20");
  const stops = async () => (await commandHere(["diagnose", path])).out.match(/at update \d+: low_validation_success/);
  expect(await stops()).toEqual(["at update 36: low_validation_success"]);
  for (const by of [100, -96]) db.run(`UPDATE metrics SET step = step + ${by} WHERE name = 'validate/success'`);
  expect(await stops()).toBeNull();
});

test("shows no verdict after the rung that would have ended the run, and all before it", async () => {
  const path = record("back-again", (update) => (update > 10 && update < 25 ? 0 : 1));
  const told = async (ladder: string) =>
    (await commandHere(["diagnose", path, `--health.ladder=${ladder}`, "--health.settleUpdates=2"])).out
      .split("\n")
      .slice(1);
  const full = await told("[]");
  expect(full.filter((line) => /: (warning|collapsed|health)/.test(line)).at(-1)).toMatch(
    /update \d+: health: healthy/,
  );
  const cut = (await told('["lower-step-size","stop"]')).filter((line) => !line.startsWith("  RAGEN-2"));
  expect(cut.some((line) => line.includes("(rung 1 of 2)"))).toBe(true);
  expect(cut.filter((line) => line !== "").at(-1)).toContain("stop (rung 2 of 2): the run ends here");
});

test("an early stop that comes twice is shown where it came first", async () => {
  const path = record("twice", (update) => ((update > 10 && update < 22) || update > 25 ? 0 : 1));
  const { out } = await commandHere(["diagnose", path]);
  // Ten updates without a spread: 11 to 20, and 26 to 35.
  expect(out.match(/at update \d+: reward_variance_collapse/g)).toEqual(["at update 20: reward_variance_collapse"]);
});

test("an early stop is shown where it alone would have come, also right after another one", async () => {
  const path = record("both", (update) => (update > 10 ? 0 : 1));
  using db = new Database(join(path, "run.sqlite"));
  db.run("UPDATE metrics SET value = 0 WHERE name = 'train/kept_groups' AND step > 17");
  const { out } = await commandHere(["diagnose", path]);
  expect(out.match(/at update \d+: \w+/g)).toEqual([
    "at update 20: reward_variance_collapse",
    "at update 22: empty_filtered_steps",
  ]);
});

test("the early stops of the run's own config are shown once, as those of RAGEN-2", async () => {
  const asked = ["diagnose", trapped, "--health.ladder=[]"];
  const without = await commandHere(asked);
  const own = await commandHere([...asked, '--health.stopEarly=["reward_variance_collapse"]']);
  expect(own.out).toBe(without.out);
});

test("reads the config of an older version, and says of a run without updates that it cannot be judged", async () => {
  const former = record("former", () => 1, { config: { health: { ladder: ["stop"], filterFactor: 0.5 } } });
  const asleep = join(folder, "asleep");
  mkdirSync(asleep);
  new Store({ path: join(asleep, "run.sqlite"), durability: "normal", wallClock: () => 1000 }).close();
  const { code, out } = await commandHere(["diagnose", former, asleep]);
  expect(code).toBe(0);
  expect(out).toEndWith(`  healthy all the time\n\n${asleep}: the record has no update that diagnose can judge\n`);
});

test("takes a share of kept groups that was not recorded for unknown, not for 0", async () => {
  const path = record("unkept", () => 1);
  using db = new Database(join(path, "run.sqlite"));
  db.run("DELETE FROM metrics WHERE name = 'train/kept_groups'");
  const { out } = await commandHere(["diagnose", path]);
  expect(out).toBe(`${path}: healthy after 40 updates\n  healthy all the time\n`);
});

test("leaves out updates before a roll-back that were not repeated yet", async () => {
  const back = record("back", (update) => Math.max(0, 1 - update / 30));
  const store = new Store({ path: join(back, "run.sqlite"), durability: "normal", wallClock: () => 2000 });
  const again = { "train/success": 0.3, "train/in_group_std": 2, "train/kept_groups": 1, "total/updates": 0 };
  for (let step = 1; step <= 20; step++) {
    const points = Object.entries(again).map(([name, value]) => ({ name, actor: "learner", step, value }));
    store.write({ points, events: [], episodes: [] });
  }
  store.close();
  const { out } = await commandHere(["diagnose", back]);
  expect(out).toBe(`${back}: healthy after 20 updates\n  healthy all the time\n`);
});

test("starts again after a roll-back, as the run itself did", async () => {
  // A fourth of the spread is a sign, but not where the spread was as small right after the roll-back.
  const path = record("back-once", (update) => (update > 20 ? 1 : 4));
  const store = new Store({ path: join(path, "run.sqlite"), durability: "normal", wallClock: () => 2000 });
  const points = [20, 21].map((step) => ({ name: "health/rollbacks", actor: "learner", step, value: 1 }));
  const last = { name: "total/updates", actor: "learner", step: 40, value: 40 };
  store.write({ points: [...points, last], events: [], episodes: [] });
  store.close();
  const { out } = await commandHere(["diagnose", path]);
  const line = "  update 20: the run was rolled back to this update; the detectors start again\n";
  expect(out).toBe(`${path}: healthy after 40 updates\n${line}`);
});

test("names a config that is damaged", async () => {
  const path = record("damaged", () => 1);
  writeFileSync(join(path, "config.json"), '{"health": {');
  const { code, err } = await commandHere(["diagnose", path]);
  expect([code, err]).toEqual([
    2,
    `error: cannot use the config of ${path}, ${path}/config.json: it is not a JSON object\n`,
  ]);
});

test("leaves a record of an older version as it is", async () => {
  const old = record("old", () => 1);
  const version = (sql: string) => {
    using db = new Database(join(old, "run.sqlite"));
    return db.query(sql).values();
  };
  version("PRAGMA user_version = 5");
  const { out } = await commandHere(["diagnose", old]);
  expect(out).toContain("healthy after 40 updates");
  expect(version("PRAGMA user_version")).toEqual([[5]]);
});

test("tries other thresholds", async () => {
  const { out } = await commandHere(["diagnose", trapped, "--health.trap.patience=40", "--health.ladder=[]"]);
  expect(out).toContain(`${trapped}: healthy after 40 updates`);
});

describe("the log of another trainer", () => {
  const written = (name: string, text: string) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const points = Array.from({ length: 40 }, (_, i) => i + 1);
  const left = (point: number) => Math.max(0, 1 - point / 30);

  test("TRL's trainer_state.json: success by its accuracy reward, spread, constant groups, entropy, form", async () => {
    const log_history = points.flatMap((point) => [
      {
        step: 10 * point,
        loss: 0.01,
        reward: 0.3 + left(point),
        reward_std: 0.4 * left(point),
        frac_reward_zero_std: 1 - left(point),
        "rewards/accuracy_reward/mean": 0.5 * Math.min(1, left(point - 10)),
        "rewards/format_reward/mean": 0.9,
        entropy: 0.5,
        grad_norm: point === 3 ? "NaN" : 1,
        completion: 'it says "NaN": NaN, Infinity',
      },
      { step: 10 * point, eval_loss: 0.2 },
    ]);
    mkdirSync(join(folder, "checkpoint-400"));
    // Of the model.
    writeFileSync(join(folder, "checkpoint-400/config.json"), "{}");
    // Python writes NaN without quotes.
    const state = JSON.stringify({ global_step: 400, log_history }).replace('"NaN"', "NaN");
    const path = written("checkpoint-400/trainer_state.json", state);
    const { code, out } = await commandHere(["diagnose", path, join(folder, "checkpoint-400"), "--json"]);
    expect(code).toBe(0);
    expect(out).toContain(`${path}: collapsed after 40 points of TRL's trainer_state.json\n`);
    expect(out).toMatch(/update \d+0: warning: in-group reward std is 0\.\d+; at the start it was 0\.\d+/);
    expect(out).toContain("  1 values are NaN or infinite; they are left out");
    const { runs } = JSON.parse(out.trimEnd().split("\n").at(-1)!);
    expect(runs[0].log.columns).toEqual({
      success: "rewards/accuracy_reward/mean",
      spread: "reward_std",
      constant: "frac_reward_zero_std",
      entropy: "entropy",
      gradient: "grad_norm",
      form: "rewards/format_reward/mean",
    });
    expect(runs[0].log.unseen.map((text: string) => text.match(/\((\w+)\)$/)![1])).toEqual([
      "repetition",
      "information",
      "likelihood",
      "kept",
    ]);
    expect({ ...runs[1], run: path }).toEqual(runs[0]);
  });

  test("TensorBoard event files of a run of ours: what the run itself gives", async () => {
    const board = join(folder, "board");
    await commandHere(["export", "--run", trapped, "--to", "tensorboard", "--out", board]);
    const { out } = await commandHere(["diagnose", trapped, board, "--health.ladder=[]", "--json"]);
    const { runs } = JSON.parse(out.trimEnd().split("\n").at(-1)!);
    expect(runs[0].notices.length).toBeGreaterThan(1);
    const when = ({
      notices,
      earlyStops,
    }: {
      notices: { update: number; kind: string }[];
      earlyStops: { update: number }[];
    }) => [notices.map(({ update, kind }) => [update, kind]), earlyStops.map(({ update }) => update)];
    expect(when(runs[1])).toEqual(when(runs[0]));
  });

  const VERL = ["critic/score/mean", "actor/entropy", "actor/grad_norm"] as const;
  const values = (point: number) => [0.6 * Math.min(1, left(point - 12)), point < 12 ? 1 : 0.1, 1];
  const expectVerl = (out: string, path: string, kind: string) => {
    expect(out).toContain(`${path}: collapsed after 40 points of ${kind}\n`);
    expect(out).toContain(`  read: success = ${VERL[0]}, entropy = ${VERL[1]}, gradient = ${VERL[2]}\n`);
    expect(out).toMatch(
      /not in the log, so the signs that need these quantities are missing: in-group std of the reward \(spread\), share of groups/,
    );
  };

  test("a CSV from W&B's page with verl's names", async () => {
    const head = `"Step",${VERL.map((name) => `"run-7 - ${name}","run-7 - ${name}__MIN","run-7 - ${name}__MAX"`)}`;
    const rows = points.map((point) => `"${point}",${values(point).map((value) => `"${value}","${value}",""`)}`);
    const path = written("wandb.csv", [head, ...rows].join("\r\n"));
    expectVerl((await commandHere(["diagnose", path])).out, path, "CSV");
  });

  test("verl's file logger, JSON Lines", async () => {
    const rows = points.map((step) => ({
      step,
      data: Object.fromEntries(VERL.map((name, i) => [name, values(step)[i]])),
    }));
    const path = written("verl.jsonl", `${rows.map((row) => JSON.stringify(row)).join("\n")}\n`);
    expectVerl((await commandHere(["diagnose", path])).out, path, "JSON Lines");
  });

  test.each<[string, string, RegExp]>([
    [
      "cut.jsonl",
      '{"step": 1, "entropy": 2}\n{"step": 2, "entropy": 2}\n{"step": 3, "entr',
      /after 2 points of JSON Lines/,
    ],
    ["cut.csv", "step,entropy,success\n1,2,0.5\n2,2,0.5\n3,0.", /after 2 points of CSV/],
    ["whole.csv", "step,entropy,success\n1,2,0.5\n2,2,0.5\n3,2,0.5", /after 3 points of CSV/],
  ])("%s: a line that is cut at the end is left out", async (name, text, points) => {
    const { code, out } = await commandHere(["diagnose", written(name, text)]);
    expect(code).toBe(0);
    expect(out).toMatch(points);
  });

  test("a score that is no share counts as success only if the flag says so; without success it says what that means", async () => {
    const rows = points.map((step) => `${step},${(3 * left(step - 12)).toFixed(4)},0.5`);
    const path = written("own.csv", `step,critic/score/mean,entropy\n${rows.join("\n")}\n`);
    const { out } = await commandHere(["diagnose", path]);
    expect(out).toContain("  read: entropy = entropy\n");
    expect(out).toContain("without the success, diagnose cannot distinguish a solved task from a collapse");
    const chosen = await commandHere(["diagnose", path, "--column", "success=critic/score/mean"]);
    expect(chosen.out).toContain("  read: success = critic/score/mean, entropy = entropy\n");
  });

  test.each<[string, string, string[], RegExp]>([
    [
      "two.csv",
      "step,a - x,b - x\n1,2,3\n",
      [],
      /cannot read the log .*two\.csv: it has several columns of x; export one run/,
    ],
    ["stepless.csv", "entropy\n1\n", [], /stepless\.csv: it has no column of steps \(step, _step, /],
    ["broken.jsonl", '{"step": 1}\n{"st\n', [], /broken\.jsonl: line 2 is not JSON/],
    ["other.json", '{"a": 1}', [], /other\.json: it has no log_history/],
    [
      "x.tfevents.1",
      "no event file, but long enough",
      [],
      /no TensorBoard event file, or a damaged one: record at byte 0/,
    ],
    ["notes.txt", "hello", [], /notes\.txt is not a log that diagnose can read: trainer_state\.json, \.csv/],
    [
      "poor.csv",
      "step,loss\n1,2\n",
      [],
      /poor\.csv has no column for success, for the spread .* --column entropy=NAME\. The log has loss/,
    ],
    [
      "near.csv",
      "step,entropie\n1,2\n",
      ["--column", "entropy=entropi"],
      /near\.csv has no "entropi"; did you mean entropie\?/,
    ],
    [
      "twice.csv",
      "step,entropy,loss\n1,2,3\n",
      ["--column", "entropy=entropy", "--column", "entropy=loss"],
      /--column names two columns for entropy, "entropy" and "loss"; leave one out/,
    ],
    [
      "what.csv",
      "step,x\n1,2\n",
      ["--column", "entrop=x"],
      /--column takes QUANTITY=NAME with one of success, spread, /,
    ],
  ])("%s is refused in one line", async (name, text, flags, message) => {
    expectRefusal(await commandHere(["diagnose", written(name, text), ...flags]), message);
  });
});

test.each([
  [[], /name folders of runs, or logs/],
  [["nowhere"], /no run and no log at nowhere/],
  [[healthy, "--learner.gamma=1"], /diagnose takes keys of health only; leave it out/],
  [[healthy, "--health.trap.patiense=1"], /unknown key health\.trap\.patiense/],
  [[healthy, "--health.trap.patience=0"], /expected number to be >0/],
  [[healthy, "--held-out", "Bandit"], /--held-out is read with --rates only; add --rates, or leave it out/],
  [[healthy, "--column", "success=x"], /--column names columns of a log, and a run of Bunraku has none; leave it out/],
  [["--rates", folder, "--column", "success=x"], /--column is not read with --rates; leave it out/],
  [["--rates", folder, "--health.trap.patience=3"], /--health\.trap\.patience=3: --rates takes no settings/],
])("%p is refused with exit code 2 and one line", async (args, told) => {
  expectRefusal(await commandHere(["diagnose", ...args]), told);
});
