/** `bun run replay` and `bun run compare` on a run that was really played: replays equal the record to the byte, unless the record was altered. */
import { Database } from "bun:sqlite";
import { beforeAll, describe, expect, test } from "bun:test";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { firstDifference, weightsDifference } from "../../actors/evaluate/replay.ts";
import { playRun, tinyConfig } from "../actors/supervisor/tiny-run.ts";
import { commandHere } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

const home = temporaryFolder();
const folder = join(home, "run");

beforeAll(async () => {
  await playRun(folder, tinyConfig(folder, { samplers: 1 }));
}, 300_000);

async function replay(episode: string, run = folder, ...flags: string[]) {
  const { code, out, err } = await commandHere(["replay", episode, "--run", run, "--json", ...flags]);
  return { code, err, out, told: out === "" ? null : JSON.parse(out.trimEnd().split("\n").at(-1)!) };
}

type Cell = string | number | Uint8Array;

/** A copy of the run with one cell of its last episode changed. */
function altered<T extends Cell>(table: "episodes" | "bodies", column: string, change: (value: T) => Cell): string {
  const copy = join(home, `${table}-${column}`);
  cpSync(folder, copy, { recursive: true });
  const db = new Database(join(copy, "run.sqlite"));
  const [row] = db.query(`SELECT id, ${column} AS value FROM ${table} ORDER BY id DESC LIMIT 1`).all() as [
    { id: number; value: T },
  ];
  db.run(`UPDATE ${table} SET ${column} = ? WHERE id = ?`, [change(row.value), row.id]);
  db.close();
  return copy;
}

/** The bytes of an array of numbers whose last one is changed. */
function withLast<T extends Int32Array | Float32Array>(array: T, change: (value: number) => number): Uint8Array {
  array[array.length - 1] = change(array.at(-1)!);
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

const LAST = "end.t1.b15";

describe("replay", () => {
  test("env and policy give the record's bytes, by number and by name", async () => {
    const byName = await replay(LAST);
    expect(byName).toMatchObject({ code: 0, told: { episode: LAST, env: "equal", policy: "equal", equal: true } });
    const number = new Database(join(folder, "run.sqlite")).query("SELECT max(id) AS id FROM episodes").get();
    expect((await replay(String((number as { id: number }).id))).told).toEqual(byName.told);
  });

  test("says that the policy of long ago is gone, and replays the env", async () => {
    const { code, told, out } = await replay("u1.g0.m0", folder, "--show");
    expect([code, told.env, told.equal]).toEqual([0, "equal", true]);
    expect(out).toMatch(/^--- turn 1\n[\s\S]*\n> .*\n {2}executed .*; reward .*, penalty .*\n--- (not )?solved \(/);
    expect(told.policy.skipped).toMatch(/^no checkpoint holds policy version \d+; its checkpoints are u\d+/);
  });

  test("knows the version of weights that no checkpoint holds from the other episodes", async () => {
    const copy = join(home, "renumbered");
    cpSync(folder, copy, { recursive: true });
    using db = new Database(join(copy, "run.sqlite"));
    db.run("UPDATE episodes SET version = version + 50 WHERE episode = 'u1.g0.m0'");
    const { code, told } = await replay("u1.g0.m0", copy);
    expect([code, told.env, told.policy.where]).toEqual([1, "equal", "trajectory.version"]);
    expect(told.policy.recorded - told.policy.replayed).toBe(50);
  });

  test("does not replay the policy of turns that several versions wrote", async () => {
    const mixed = altered("bodies", "spans", (text: string) => text.replace(/}\]$/, ',"version":99}]'));
    const { code, told } = await replay(LAST, mixed);
    expect([code, told.env]).toEqual([0, "equal"]);
    expect(told.policy.skipped).toMatch(
      /^the episode began with policy version \d+, and versions (\d+, )*99 wrote its turns$/,
    );
  });

  test("names the first thing that differs, with exit code 1", async () => {
    const reward = altered("bodies", "turns", (text: string) => text.replace(/"reward":[-\d.]+/, '"reward":0.625'));
    expect(await replay(LAST, reward)).toMatchObject({
      code: 1,
      err: "",
      told: { env: { where: "turns.0.reward", recorded: 0.625 }, policy: { where: "turns.0.reward" }, equal: false },
    });
    const final = altered("bodies", "final_observation", (text: string) => `${text} altered`.padEnd(900, "!"));
    const { told, out } = await replay(LAST, final, "--env-only");
    // A long value is cut where a person reads it.
    const lines = out.split("\n").slice(0, 3);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(600);
    expect(told).toMatchObject({
      env: { where: "finalObservation" },
      policy: { skipped: "--env-only" },
      equal: false,
    });
  });

  /** [column, where the policy's replay differs, whether the env's replay differs too, a copy with the column changed] */
  const COLUMNS: [string, RegExp, boolean, () => string][] = [
    [
      "tokens",
      /^trajectory\.tokens\.\d+$|^turns\.0\.reply$/,
      true,
      () =>
        altered("bodies", "tokens", (bytes: Uint8Array) =>
          withLast(new Int32Array(bytes.slice().buffer), (t) => t ^ 1),
        ),
    ],
    [
      "written",
      /^trajectory\.written\.\d+$/,
      true,
      () =>
        altered("bodies", "written", (bytes: Uint8Array) => Uint8Array.from(bytes, (mark, i) => (i === 0 ? 1 : mark))),
    ],
    [
      "log_probs",
      /^trajectory\.logProbs\.\d+$/,
      // The recorded replies are given: nothing but the policy computes their log-probabilities.
      false,
      () =>
        altered("bodies", "log_probs", (bytes: Uint8Array) =>
          withLast(new Float32Array(bytes.slice().buffer), (p) => p - 1),
        ),
    ],
    [
      "spans",
      /^trajectory\.turns\.0\.reward$/,
      true,
      () => altered("bodies", "spans", (text: string) => text.replace(/"reward":[-\d.]+/, '"reward":0.625')),
    ],
    ["contexts", /^trajectory\.contexts\.1$/, true, () => altered("bodies", "contexts", () => "[0,1]")],
    ["version", /^trajectory\.version$/, false, () => altered("episodes", "version", (version: number) => version + 1)],
    [
      "digest",
      /^trajectory\.digest$/,
      false,
      () => altered("episodes", "digest", (digest: string) => digest.replace(/^./, (c) => (c === "0" ? "1" : "0"))),
    ],
  ];
  test.each(COLUMNS)("a changed %s is reported, with exit code 1", async (_, where, byEnv, change) => {
    const { code, err, told } = await replay(LAST, change());
    expect({ code, err, equal: told.equal }).toEqual({ code: 1, err: "", equal: false });
    expect(told.policy.where).toMatch(where);
    expect(told.env === "equal").toBe(!byEnv);
  });

  test("suggests the nearest episode, and refuses what is no run", async () => {
    const missing = await replay("end.t1.b99");
    expect([missing.code, missing.err.slice(0, -1)]).toEqual([
      2,
      `error: ${folder} has recorded no episode end.t1.b99; did you mean end.t1.b9?`,
    ]);
    expect((await replay("99999")).err).toBe(
      `error: ${folder} has recorded no episode 99999; the page lists the episodes: bun run page ${folder}\n`,
    );
    expect((await replay("1", join(home, "none"))).err).toStartWith(
      `error: no run in ${join(home, "none")}: there is no config.json`,
    );
    expect((await commandHere(["replay", "1"])).err).toBe("error: name the run that recorded the episode: --run RUN\n");
  });
});

test("a difference is the first in the record's order; arrays of numbers are looked into", () => {
  expect(firstDifference({ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] })).toBeNull();
  // An env's reward of -0 comes back from a message as 0.
  expect(firstDifference({ turns: [{ reward: 0 }] }, { turns: [{ reward: -0 }] })).toBeNull();
  expect(firstDifference([1], Int32Array.of(1))).toEqual({ where: "", recorded: [1], replayed: Int32Array.of(1) });
  expect(firstDifference({ a: Float32Array.of(1, 2) }, { a: Float32Array.of(1, 3) })).toEqual({
    where: "a.1",
    recorded: 2,
    replayed: 3,
  });
  expect(firstDifference({ a: [1] }, { a: [1, 2] })).toEqual({ where: "a.1", recorded: undefined, replayed: 2 });
});

test("the weights of an episode are those of other episodes and checkpoints, unless none knows either half of the pair", () => {
  const others = [
    { version: 3, digest: "a" },
    { version: 4, digest: "a" },
    { version: 5, digest: "b" },
  ];
  expect(weightsDifference({ version: 4, digest: "a" }, others)).toBeNull();
  expect(weightsDifference({ version: 7, digest: "c" }, others)).toBeNull();
  expect(weightsDifference({ version: 5, digest: "c" }, others)).toEqual({
    where: "trajectory.digest",
    recorded: "c",
    replayed: "b",
  });
  expect(weightsDifference({ version: 7, digest: "b" }, others)).toEqual({
    where: "trajectory.version",
    recorded: 7,
    replayed: 5,
  });
});

test("compare: last values, the highest success, and the settings that differ", async () => {
  const one = join(home, "one");
  cpSync(folder, one, { recursive: true });
  // A run as short as this one may end before the first heartbeat, which reports the processor time.
  new Database(join(one, "run.sqlite")).run(
    "INSERT OR REPLACE INTO metrics (name, actor, step, value, at_ms) VALUES ('process/cpu_seconds', 'learner', 3, 1.5, 0)",
  );
  const other = join(home, "other");
  cpSync(one, other, { recursive: true });
  const config = JSON.parse(readFileSync(join(other, "config.json"), "utf8"));
  writeFileSync(
    join(other, "config.json"),
    JSON.stringify({ ...config, seed: 9, learner: { ...config.learner, learningRate: 0.5, minutes: 90 } }),
  );
  const { code, out } = await commandHere(["compare", one, other, "--json"]);
  expect(code).toBe(0);
  const told = JSON.parse(out.trimEnd().split("\n").at(-1)!);
  const point = new Database(join(one, "run.sqlite"))
    .query("SELECT value FROM metrics WHERE name = 'validate/success' ORDER BY step DESC LIMIT 1")
    .get() as { value: number };
  expect(told.runs.map(({ success }: { success: number }) => success)).toEqual([point.value, point.value]);
  expect(told.runs[0]).toMatchObject({ run: one, env: "Bandit", updates: 3 });
  expect(told.runs[0].highest.success).toBeGreaterThanOrEqual(point.value);
  expect(told.runs[0].costs.total.cpuSeconds).toBeGreaterThan(0);
  expect(told.runs[0].costs.total.actions).toBeGreaterThan(0);
  expect(out).toContain("costs of reinforcement, in all and per point of success gained:");
  expect(told.differences).toEqual({
    seed: [config.seed, 9],
    "learner.learningRate": [config.learner.learningRate, 0.5],
    "learner.minutes": [null, 90],
  });
  // The runs are columns, with numbers for heads; what is not set is a dash.
  expect(out).toStartWith(`1  ${one} (Bandit, seed ${config.seed})\n2  ${other} (Bandit, seed `);
  expect(out).toMatch(/^updates +3 +3$/m);
  expect(out).toMatch(/^learner\.minutes +– +90$/m);
  expect(out).toContain("settings that differ:");
  // Eight runs and long settings fit a terminal of 80 characters too; values of runs that agree are there once.
  const stages = config.warmStart.stages.map((one: object) => ({
    ...one,
    name: "a name that is longer than a column",
  }));
  const many = [1, 2, 3, 4, 5, 6].map((seed) => {
    const copy = join(home, `seed-${seed}`);
    cpSync(one, copy, { recursive: true });
    const changed = { ...config, seed, ...(seed === 6 && { warmStart: { ...config.warmStart, stages } }) };
    writeFileSync(join(copy, "config.json"), JSON.stringify(changed));
    return copy;
  });
  const wide = (await commandHere(["compare", one, other, ...many])).out.trimEnd().split("\n");
  expect(Math.max(...wide.slice(8).map((line) => line.length))).toBeLessThanOrEqual(80);
  expect(
    wide
      .filter((line) => /^ +[1-8]( +[1-8])*$/.test(line))
      .flatMap((line) => line.trim().split(/ +/))
      .sort(),
  ).toEqual(["1", "2", "3", "4", "5", "6", "7", "8"].flatMap((run) => [run, run, run]));
  const stage = wide.indexOf("warmStart.stages");
  expect(wide.slice(stage).join("").replaceAll("    ", "")).toContain(
    `  1, 2, 3, 4, 5, 6, 7: ${JSON.stringify(config.warmStart.stages)}  8: ${JSON.stringify(stages)}`,
  );
  expect((await commandHere(["compare", one])).err).toBe("error: name two or more runs, got 1\n");
});
