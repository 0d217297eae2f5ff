/** Progress is a function of its events: what each event changes, and what a roll-back keeps. */
import { describe, expect, test } from "bun:test";
import { advance, type Progress, type ProgressEvent, startOfRun } from "../../../actors/training/progress.ts";
import { configOf } from "./stage.ts";

const start = startOfRun(configOf());
const after = (...events: readonly ProgressEvent[]): Progress => events.reduce(advance, start);
const solved = (success: number) => ({ kind: "validated", solved: { success, envs: { Bandit: success } } }) as const;

describe("an event", () => {
  test("changes a copy, never the progress that it is applied to", () => {
    const before = structuredClone(start);
    after({ kind: "published" }, { kind: "played", episodes: 4, tokens: 9, actions: 3 }, solved(1), {
      kind: "updated",
    });
    expect(start).toEqual(before);
  });

  test("counts versions, updates, skipped updates, episodes, tokens and actions", () => {
    const played = { kind: "played", episodes: 4, tokens: 9, actions: 3 } as const;
    const progress = after({ kind: "published" }, played, played, { kind: "skipped" }, { kind: "updated" });
    expect(progress).toMatchObject({ version: 1, update: 1, skipped: 1, episodes: 8, tokens: 18, actions: 6 });
  });

  test("of training sets the KL coefficient and the curriculum", () => {
    const trained = { klCoefficient: 0.3, entropyCoefficient: 0.002, curriculum: { Bandit: 0.5 } };
    expect(after({ kind: "trained", ...trained })).toEqual({ ...start, ...trained });
  });

  test("of the clock sets the minutes of reinforcement and of the run", () => {
    expect(after({ kind: "clock", minutes: 2.5, minutesInAll: 3 })).toMatchObject({ minutes: 2.5, minutesInAll: 3 });
  });
});

describe("validations", () => {
  test("the first one is the success before reinforcement", () => {
    const progress = after(solved(0.4), { kind: "updated" }, solved(0.7));
    expect(progress).toMatchObject({ before: 0.4, beforeOf: { Bandit: 0.4 } });
  });

  test("the best one is kept with its update; an equal later one does not replace it", () => {
    const progress = after(solved(0.4), { kind: "updated" }, solved(0.7), { kind: "updated" }, solved(0.7));
    expect(progress.best).toEqual({ success: 0.7, envs: { Bandit: 0.7 }, update: 1 });
    expect(progress.validated).toEqual({ success: 0.7, envs: { Bandit: 0.7 }, update: 2 });
  });
});

test("a healthy checkpoint is remembered by its update", () => {
  expect(after({ kind: "updated" }, { kind: "updated" }, { kind: "saved healthy" }).health.healthyCheckpoint).toBe(2);
});

test("a roll-back restores the policy's state; versions, totals and rungs taken do not go back", () => {
  const saved = after({ kind: "published" }, solved(0.4), { kind: "updated" }, { kind: "saved healthy" });
  const control = { ...start.health.control, stepSize: 0.5 };
  const now = [
    { kind: "played", episodes: 4, tokens: 9, actions: 3 },
    { kind: "published" },
    { kind: "skipped" },
    { kind: "updated" },
    { kind: "judged", health: { ...saved.health, verdict: "collapsed", taken: 2, settling: 3, control }, due: null },
    solved(0.1),
  ] as const satisfies readonly ProgressEvent[];
  const progress = advance(now.reduce<Progress>(advance, saved), { kind: "rolled back", saved });
  expect(progress).toMatchObject({ update: 1, version: 2, episodes: 4, tokens: 9, skipped: 1 });
  expect(progress.validated).toEqual(saved.validated);
  expect(progress.health).toMatchObject({ verdict: "healthy", taken: 2, settling: 3, healthyCheckpoint: 1 });
  expect(progress.health.control).toEqual({ ...control, round: 1 });
});
