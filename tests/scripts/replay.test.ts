/** `bun run replay` and `bun run compare` on a run that was really played: equal to the byte, and not so where the record was altered. */
import { Database } from "bun:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { firstDifference } from "../../actors/evaluate/replay.ts";
import { playRun, tinyConfig } from "../actors/supervisor/tiny-run.ts";
import { command } from "./command.ts";
import { removeTemporaryFolders, temporaryFolder } from "./temporary.ts";

afterAll(removeTemporaryFolders);
const home = temporaryFolder();
const folder = join(home, "run");

beforeAll(async () => {
  await playRun(folder, tinyConfig(folder, { samplers: 1 }));
}, 60_000);

async function replay(episode: string, run = folder, ...flags: string[]) {
  const { code, out, err } = await command(["replay", episode, "--run", run, "--json", ...flags]);
  return { code, err, out, told: out === "" ? null : JSON.parse(out.trimEnd().split("\n").at(-1)!) };
}

/** A copy of the run with one cell of an episode's body changed. */
function altered(name: string, column: string, change: (text: string) => string): string {
  const copy = join(home, name);
  cpSync(folder, copy, { recursive: true });
  const db = new Database(join(copy, "run.sqlite"));
  const [row] = db.query(`SELECT id, ${column} AS value FROM bodies ORDER BY id DESC LIMIT 1`).all() as [
    { id: number; value: string },
  ];
  db.run(`UPDATE bodies SET ${column} = ? WHERE id = ?`, [change(row.value), row.id]);
  db.close();
  return copy;
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
    const { code, told } = await replay("u1.g0.m0");
    expect([code, told.env, told.equal]).toEqual([0, "equal", true]);
    expect(told.policy.skipped).toMatch(/^no checkpoint holds policy version \d+; its checkpoints are u\d+/);
  });

  test("names the first thing that differs, with exit code 1", async () => {
    const reward = altered("reward", "turns", (text) => text.replace(/"reward":[-\d.]+/, '"reward":0.625'));
    expect(await replay(LAST, reward)).toMatchObject({
      code: 1,
      err: "",
      told: { env: { where: "turns.0.reward", recorded: 0.625 }, policy: { where: "turns.0.reward" }, equal: false },
    });
    const final = altered("final", "final_observation", (text) => `${text} altered`);
    expect((await replay(LAST, final, "--env-only")).told).toMatchObject({
      env: { where: "finalObservation" },
      policy: { skipped: "--env-only" },
      equal: false,
    });
  });

  test("suggests the nearest episode, and refuses what is no run", async () => {
    const missing = await replay("end.t1.b99");
    expect([missing.code, missing.err.slice(0, -1)]).toEqual([
      2,
      `error: ${folder} has recorded no episode end.t1.b99; did you mean end.t1.b9?`,
    ]);
    expect((await replay("1", join(home, "none"))).err).toStartWith(
      `error: no run in ${join(home, "none")}: there is no config.json`,
    );
    expect((await command(["replay", "1"])).err).toBe("error: say whose episode: --run RUN\n");
  });
});

test("a difference is the first in the record's order; arrays of numbers are looked into", () => {
  expect(firstDifference({ a: [1, { b: 2 }] }, { a: [1, { b: 2 }] })).toBeNull();
  expect(firstDifference({ a: Float32Array.of(1, 2) }, { a: Float32Array.of(1, 3) })).toEqual({
    where: "a.1",
    recorded: 2,
    replayed: 3,
  });
  expect(firstDifference({ a: [1] }, { a: [1, 2] })).toEqual({ where: "a.1", recorded: undefined, replayed: 2 });
});

test("compare: last values, the highest success, and the settings that differ", async () => {
  const other = join(home, "other");
  cpSync(folder, other, { recursive: true });
  const config = JSON.parse(readFileSync(join(other, "config.json"), "utf8"));
  writeFileSync(
    join(other, "config.json"),
    JSON.stringify({ ...config, seed: 9, learner: { ...config.learner, learningRate: 0.5 } }),
  );
  const { code, out } = await command(["compare", folder, other, "--json"]);
  expect(code).toBe(0);
  const told = JSON.parse(out.trimEnd().split("\n").at(-1)!);
  const point = new Database(join(folder, "run.sqlite"))
    .query("SELECT value FROM metrics WHERE name = 'validate/success' ORDER BY step DESC LIMIT 1")
    .get() as { value: number };
  expect(told.runs.map(({ success }: { success: number }) => success)).toEqual([point.value, point.value]);
  expect(told.runs[0]).toMatchObject({ run: folder, env: "Bandit", updates: 3 });
  expect(told.runs[0].highest.success).toBeGreaterThanOrEqual(point.value);
  expect(told.differences).toEqual({
    seed: [config.seed, 9],
    "learner.learningRate": [config.learner.learningRate, 0.5],
  });
  expect(out).toContain("set differently:");
  expect((await command(["compare", folder])).err).toBe("error: name two runs or more, got 1\n");
});
