/** Which validation an update is judged with. */
import { expect, test } from "bun:test";
import { HEALTH_START } from "../../../actors/training/health.ts";
import { judge } from "../../../actors/training/judge.ts";
import { type Progress, startOfRun } from "../../../actors/training/progress.ts";
import { configOf } from "./stage.ts";

const config = configOf({ health: { stopEarly: ["low_validation_success"] } });
const context = { config, log: { line: () => {}, event: () => {} } };
const after = (update: number, validatedAt: number, health = HEALTH_START): Progress => ({
  ...startOfRun(config),
  update,
  health,
  validated: { update: validatedAt, success: 0, envs: {} },
});
const measured = { "train/success": 0.5, "train/kept_groups": 1 };

test("a validation is judged once, if its update trained on nothing with the next that did", () => {
  const none = judge(context, after(3, 2), {});
  const still = judge(context, after(4, 2, none.health), {});
  expect(still.health.stops.failed).toBe(0);
  const next = judge(context, after(5, 2, still.health), measured);
  expect(next.health.stops.failed).toBe(1);
  expect(judge(context, after(6, 2, next.health), measured).health.stops.failed).toBe(1);
});

test("of a mix, the env that is solved least is judged", () => {
  const envs = { Bandit: 1, Sokoban: 0 };
  const failed = judge(context, { ...after(3, 2), validated: { update: 2, success: 0.5, envs } }, measured);
  expect(failed.health.stops.failed).toBe(1);
  const solved = { Bandit: 1, Sokoban: 0.5 };
  const passed = judge(context, { ...after(3, 2), validated: { update: 2, success: 0.75, envs: solved } }, measured);
  expect(passed.health.stops.failed).toBe(0);
});

test("a newer validation takes its place", () => {
  const { health } = judge(context, { ...after(3, 2), validated: { update: 2, success: 0.5, envs: {} } }, {});
  expect(health.unjudged).toBe(0.5);
  expect(judge(context, after(5, 4, health), measured).health.stops.failed).toBe(1);
});
