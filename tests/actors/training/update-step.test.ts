/** When gradients are measured, and on which episodes: the update's own, or groups played for the analysis alone. */

import { describe, expect, test } from "bun:test";
import type { Outcome, Ticket } from "../../../actors/protocol.ts";
import { CONTROL_START } from "../../../actors/training/interventions.ts";
import { updateSettings } from "../../../actors/training/update-settings.ts";
import { measureGradients } from "../../../actors/training/update-step.ts";
import type { TrainingEpisode } from "../../../model/learn/update/types.ts";
import { aConfig } from "../../fixtures.ts";

/** Update 5 (from 0) of a run of 2 groups of 4, whose groups may be replaced once. */
const moment = { update: 5, version: 9, control: CONTROL_START, envs: ["Firm", "Slippery"] };
const trajectory = { turns: [] } as unknown as TrainingEpisode["trajectory"];

function stage(analysis: object, outcome: (ticket: Ticket) => Outcome = scored) {
  const learner = { resampleRoundsMax: 1, filter: { strategy: "all" }, gradientAnalysis: analysis };
  const rollout = { groups: 2, groupSize: 4, firstSeed: 500 };
  const config = aConfig({ rollout, learner });
  const seen = { tickets: [] as Ticket[], measured: [] as (readonly TrainingEpisode[])[], warnings: [] as string[] };
  const context = {
    config,
    dispatcher: {
      play: async (tickets: readonly Ticket[]) => {
        seen.tickets.push(...tickets);
        return tickets.map((ticket) => ({ ticket, sampler: "s", outcome: outcome(ticket) }));
      },
    },
    trainer: {
      analyzeGradients: async (played: readonly TrainingEpisode[]) => {
        seen.measured.push(played);
        return { "gradient.task.all": 0.5, "gradient.groups.6": 1 };
      },
    },
    log: { event: (_level: string, _kind: string, text: string) => void seen.warnings.push(text) },
  } as unknown as Parameters<typeof measureGradients>[0];
  const own = [{ trajectory, group: 0, tag: "Firm", anchors: [], success: true }];
  const adapted = { klCoefficient: 0, entropyCoefficient: 0.001, covariance: "none" } as const;
  const settings = updateSettings(config, 5, adapted, { messageStart: -1, system: [], beforeReplies: false });
  return { seen, own, measure: (at = moment) => measureGradients(context, at, own, settings) };
}

const scored = () => ({ status: "scored", trajectory, turns: [] }) as unknown as Outcome;

describe("gradients are measured", () => {
  test("every so many updates, on the update's own episodes", async () => {
    const { measure, seen, own } = stage({ everyUpdates: 5 });
    expect(await measure()).toEqual({ "gradient/task_all": 0.5, "gradient/groups_6": 1 });
    expect(await measure({ ...moment, update: 6 })).toEqual({});
    expect(seen.measured).toEqual([own]);
    expect(seen.tickets).toEqual([]);
  });

  test("or on groups that are played for it, by the policy of now, of each env in turn", async () => {
    const { measure, seen } = stage({ everyUpdates: 5, groups: 3 });
    await measure();
    // Each update has 2 boards and 2 to replace them: update 5 begins at 520, and these come behind.
    const groups = seen.tickets.filter(({ member }) => member === 0);
    expect(groups.map(({ episode, env, layoutSeed }) => [episode, env, layoutSeed])).toEqual([
      ["u5.g4.m0", "Firm", 524],
      ["u5.g5.m0", "Slippery", 525],
      ["u5.g6.m0", "Firm", 526],
    ]);
    expect(seen.tickets.every(({ version, purpose }) => version === 9 && purpose === "train")).toBe(true);
    expect(seen.measured[0]!.map(({ group }) => group)).toEqual([4, 5, 6].flatMap((group) => Array(4).fill(group)));
  });

  test("without episodes that could not be played; a warning counts them", async () => {
    const broken = ({ member }: Ticket): Outcome =>
      member === 1 ? { status: "envError", detail: "it fell" } : scored();
    const { measure, seen } = stage({ everyUpdates: 1, groups: 1 }, broken);
    await measure();
    expect(seen.measured[0]!.length).toBe(3);
    expect(seen.warnings).toEqual(["update 6: 1 of 4 episodes could not be played; u5.g4.m1: it fell"]);
  });

  test("never unless asked for, and then nothing of it may be set", () => {
    for (const keys of [{ groups: 3 }, { split: "fixed" }]) {
      expect(() => stage(keys)).toThrow("is not read while learner.gradientAnalysis.everyUpdates is 0");
    }
  });
});
