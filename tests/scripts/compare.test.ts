/** `bun run compare` over records with known numbers. tests/scripts/replay.test.ts compares real runs. */

import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { recordIn } from "../actors/metrics-sink/recorded.ts";
import { configOf } from "../actors/training/stage.ts";
import { commandHere } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

const folder = temporaryFolder();

function record(name: string, values: Readonly<Record<string, readonly number[]>>, changes = {}): string {
  const path = join(folder, name);
  const byUpdate = Object.entries(values).map(([metric, all]) => [metric, [...all.entries()]]);
  recordIn(path, Object.fromEntries(byUpdate)).close();
  writeFileSync(join(path, "config.json"), JSON.stringify(configOf(changes)));
  return path;
}

const learns = record("learns", {
  "validate/success": [0.25, 0.75, 0.75, 0.5],
  "baseline/before": [0.25],
  "total/updates": [0, 1, 2, 3],
  "total/tokens": [1000, 1100, 1200, 1300],
  "process/cpu_seconds": [100, 101, 102, 104.25],
});
const idle = record(
  "idle",
  { "total/updates": [0] },
  {
    learner: { betas: [0.9, 0.95] },
    env: { options: { hiArmHiscore: 2 } },
  },
);

test("the highest success is that of its first update, and costs are those after the warm start", async () => {
  const { out } = await commandHere(["compare", learns, idle, "--json"]);
  const rows = new Map(out.split("\n").map((line) => line.trim().split(/ {2,}/)).map(([title, ...cells]) => [title, cells])); // biome-ignore format: a row a line
  expect(rows.get("success")).toEqual(["50.0 %", "–"]);
  expect(rows.get("highest")).toEqual(["75.0 % (u1)", "–"]);
  expect(rows.get("points")).toEqual(["25.0", "–"]);
  expect([rows.get("tokens"), rows.get("CPU seconds")]).toEqual([
    ["300", "–"],
    ["4.3", "–"],
  ]);
  // 300 tokens for 25 points.
  expect(out).toMatch(/^tokens .*\n {2}per point +12 +–$/m);
  expect(rows.get("env actions")).toEqual(["–", "–"]);
  // Neither run measured energy, or has an expert.
  expect(["joules", "expert"].filter((title) => rows.has(title))).toEqual([]);
  const { runs, differences } = JSON.parse(out.trimEnd().split("\n").at(-1)!);
  expect(runs[0].highest).toEqual({ success: 0.75, update: 1 });
  expect(Object.keys(differences).toSorted()).toEqual(["env.options.hiArmHiscore", "learner.betas"]);
  expect(rows.get("env.options.hiArmHiscore")).toEqual(["–", "2"]);
});

test("energy has a row where one run measured it", async () => {
  const measured = record("measured", { "machine/energy_joules": [10, 30], "total/updates": [0, 1] });
  expect((await commandHere(["compare", measured, idle])).out).toMatch(/^joules +20 +–$/m);
});

test("runs of equal settings are said to be so; a run that is named twice is refused", async () => {
  const twin = record("twin", {});
  expect((await commandHere(["compare", learns, twin])).out).toEndWith("\nall settings are equal, the seed included\n");
  const { code, err } = await commandHere(["compare", learns, `${learns}/.`]);
  expect([code, err]).toEqual([2, `error: ${learns}/. is named twice; leave one out\n`]);
});
