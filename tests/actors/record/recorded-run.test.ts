import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { overviewOf } from "../../../actors/dashboard/overview.ts";
import { Store } from "../../../actors/metrics-sink/store.ts";
import { readRunConfig } from "../../../actors/policy/saved-policy.ts";
import { latestOf, seriesOf } from "../../../actors/record/newest-update.ts";
import { RecordedRun } from "../../../actors/record/recorded-run.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { playedRow } from "../metrics-sink/fake-run.ts";
import { openFilesIn } from "../metrics-sink/open-files.ts";
import { recordIn } from "../metrics-sink/recorded.ts";

test("a run that never started is refused, and its file is closed", () => {
  const folder = temporaryFolder();
  new Store({ path: join(folder, "run.sqlite"), durability: "normal", wallClock: () => 0 }).close();
  expect(() => new RecordedRun(folder)).toThrow("its run.sqlite is of a run that never started");
  expect(openFilesIn(folder)).toEqual([]);
});

test("curves and latest values have no updates that a roll-back gave up, and the whole warm start", () => {
  const folder = temporaryFolder();
  const store = recordIn(folder);
  const write = (step: number, values: Readonly<Record<string, number>>) => {
    const points = Object.entries(values).map(([name, value]) => ({ name, actor: "learner", step, value }));
    store.write({ points, events: [], episodes: [] });
  };
  write(0, { "validate/success": 0.5 });
  write(40, { "warm/loss": 0.25 });
  for (const step of [1, 2, 3, 4]) write(step, { "total/updates": step, "validate/success": step / 4 });
  // Back to update 1, and update 2 again.
  write(2, { "total/updates": 2, "validate/success": 0.75 });
  using run = new RecordedRun(folder);
  expect(run.curve("validate/success")).toMatchObject({ steps: [0, 1, 2], values: [0.5, 0.25, 0.75] });
  expect(run.curve("warm/loss")).toMatchObject({ steps: [40], values: [0.25] });
  // Back to update 1 again; no update followed yet.
  write(1, { "health/rollbacks": 2 });
  expect(run.curve("validate/success")).toMatchObject({ steps: [0, 1], values: [0.5, 0.25] });
  const values = { "health/rollbacks": 2, "total/updates": 1, "validate/success": 0.25, "warm/loss": 0.25 };
  expect(Object.fromEntries(run.latest())).toEqual(values);
  expect(overviewOf(store)).toMatchObject({ update: 1, success: { now: 0.25, nowUpdate: 1 } });
  // Back to the start.
  write(0, { "health/rollbacks": 3 });
  expect(overviewOf(store)).toMatchObject({ update: null, success: { now: 0.5, nowUpdate: 0 } });
  store.close();
});

test("a record of more rows than are read at once is read whole, oldest first", () => {
  const folder = temporaryFolder();
  const store = recordIn(folder);
  const counts = Array.from({ length: 2000 }, (_, i) => i + 1);
  const failed = { status: "aborted", detail: "x" } as const;
  store.write({
    points: counts.map((step) => ({ name: "train/success", actor: "learner", step, value: 0.5 })),
    events: counts.map((i) => ({ actor: "learner", level: "info", kind: "phase", text: `${i}` })),
    episodes: counts.map((i) => ({ ...playedRow({ episode: `e${i}` }), outcome: failed })),
  });
  store.close();
  using run = new RecordedRun(folder);
  expect([...run.store.pointsAfter(0)].map(({ step }) => step)).toEqual(counts);
  expect(run.events().map(({ text }) => Number(text))).toEqual(counts);
  expect([...run.episodes({})].map(({ row }) => Number(row.ticket.episode.slice(1)))).toEqual(counts);
});

test("the latest value of an actor is its own, kept after a roll-back; of the run, none is left where none was before", () => {
  const folder = temporaryFolder();
  const store = recordIn(folder);
  const write = (name: string, actor: string, step: number, value: number) =>
    store.write({ points: [{ name, actor, step, value }], events: [], episodes: [] });
  write("validate/success", "other", 1, 0.125);
  write("validate/success", "learner", 1, 0.25);
  write("validate/success", "learner", 3, 0.75);
  write("train/entropy", "learner", 3, 2);
  write("process/rss_bytes", "sampler-0", 3, 7);
  write("total/updates", "learner", 3, 3);
  write("health/rollbacks", "learner", 1, 1);
  expect(latestOf(store).map(({ name, actor, step, value }) => [name, actor, step, value])).toEqual([
    ["health/rollbacks", "learner", 1, 1],
    ["process/rss_bytes", "sampler-0", 3, 7],
    ["validate/success", "learner", 1, 0.25],
    ["validate/success", "other", 1, 0.125],
  ]);
  expect(seriesOf(store, ["train/entropy"])).toEqual([]);
  store.close();
});

test("a file in place of a run's folder is refused by name", () => {
  const file = join(temporaryFolder(), "report.json");
  writeFileSync(file, "{}");
  expect(() => new RecordedRun(file)).toThrow(`no run in ${file}: there is no run.sqlite`);
  expect(() => readRunConfig(file)).toThrow(`no run in ${file}: there is no config.json`);
});

test("a folder of runs in place of a run is refused with the name of one of its runs", () => {
  const sweep = temporaryFolder();
  for (const name of ["b-s1", "a-s1", "notes"]) mkdirSync(join(sweep, name));
  for (const name of ["b-s1", "a-s1"]) writeFileSync(join(sweep, name, "config.json"), "{}");
  const runs = `the folder holds runs: name one, such as ${join(sweep, "a-s1")}`;
  expect(() => new RecordedRun(sweep)).toThrow(`no run in ${sweep}: there is no run.sqlite; ${runs}`);
  expect(() => readRunConfig(sweep)).toThrow(`no run in ${sweep}: there is no config.json; ${runs}`);
});
