/** What play, validations and a roll-back change of the progress, and what they keep. */
import { describe, expect, test } from "bun:test";
import { afterPlay, afterRollBack, afterValidation, startOfRun } from "../../../actors/training/progress.ts";
import { configOf } from "./stage.ts";

const start = startOfRun(configOf());
const played = { episodes: 4, tokens: 9, actions: 3 };
const solved = (success: number) => ({ success, envs: { Bandit: success } });

test("play and validations change a copy, never the progress that they are applied to", () => {
  const before = structuredClone(start);
  afterValidation(afterPlay(start, played), solved(1));
  expect(start).toEqual(before);
});

test("counts episodes, tokens and actions", () => {
  expect(afterPlay(afterPlay(start, played), played)).toEqual({ ...start, episodes: 8, tokens: 18, actions: 6 });
});

describe("validations", () => {
  test("the first one is the success before reinforcement", () => {
    const progress = afterValidation({ ...afterValidation(start, solved(0.4)), update: 1 }, solved(0.7));
    expect(progress).toMatchObject({ before: 0.4, beforeOf: { Bandit: 0.4 } });
  });

  test("the best one is kept with its update; an equal later one does not replace it", () => {
    const first = afterValidation(start, solved(0.4));
    const second = afterValidation({ ...first, update: 1 }, solved(0.7));
    const progress = afterValidation({ ...second, update: 2 }, solved(0.7));
    expect(progress.best).toEqual({ success: 0.7, envs: { Bandit: 0.7 }, update: 1 });
    expect(progress.validated).toEqual({ success: 0.7, envs: { Bandit: 0.7 }, update: 2 });
  });
});

test("a roll-back restores the policy's state; versions, totals and rungs taken do not go back", () => {
  const validated = afterValidation({ ...start, version: 1 }, solved(0.4));
  const saved = { ...validated, update: 1, health: { ...start.health, healthyCheckpoint: 1 } };
  const control = { ...start.health.control, stepSize: 0.5 };
  const health = { ...saved.health, verdict: "collapsed", taken: 2, settling: 3, control } as const;
  const later = { ...afterPlay(saved, played), version: 2, skipped: 1, update: 2, health };
  const progress = afterRollBack(saved, afterValidation(later, solved(0.1)));
  expect(progress).toMatchObject({ update: 1, version: 2, episodes: 4, tokens: 9, skipped: 1 });
  expect(progress.validated).toEqual(saved.validated);
  expect(progress.health).toMatchObject({ verdict: "healthy", taken: 2, settling: 3, healthyCheckpoint: 1 });
  expect(progress.health.control).toEqual({ ...control, round: 1 });
});
