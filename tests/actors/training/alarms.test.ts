/** The page and the terminal show a run's last event of kind "health" in this session: it agrees with the verdict. */
import { expect, spyOn, test } from "bun:test";
import { HEALTH_START } from "../../../actors/training/health.ts";
import { startOfRun } from "../../../actors/training/progress.ts";
import { configOf, outcomeOf, Stage } from "./stage.ts";

const healthOf = ({ warnings, told }: Stage) => [...warnings, ...told].filter((text) => text.startsWith("health: "));

test("a run that is resumed with a bad verdict tells it again, and one that is well does not", async () => {
  const resumedWith = async (verdict: "collapsed" | "solved") => {
    const health = { ...HEALTH_START, verdict };
    const stage = new Stage({}, { ...startOfRun(configOf()), update: 6, before: 0.5, health });
    await stage.training.run();
    return healthOf(stage);
  };
  expect(await resumedWith("collapsed")).toEqual(["health: update 6: collapsed: as before the run was resumed"]);
  expect(await resumedWith("solved")).toEqual([]);
});

test("a roll-back ends the alarm, and the record at its update", async () => {
  const trap = { startUpdates: 1, patience: 1, spreadShare: 0.95 };
  const stage = new Stage({
    learner: { updates: 5, filter: { strategy: "all" } },
    checkpoint: { everyUpdates: 1 },
    validate: { episodes: 3, everyUpdates: 100 },
    health: { trap, ladder: ["roll-back"], interveneAt: "warning", settleUpdates: 1 },
  });
  stage.outcome = (ticket) => outcomeOf(ticket, false);
  // The spread is halved in the third update, and not in the one that takes its place.
  stage.spreads = [2, 2, 1, 2, 2, 2, 2];
  const recorded = spyOn(stage.metrics, "set");
  await stage.training.run();
  expect(stage.calls.filter((call) => call.startsWith("restore"))).toEqual(["restore 2"]);
  expect(stage.warnings.filter((text) => text.startsWith("health: "))).toHaveLength(1);
  expect(stage.told.filter((text) => text.startsWith("health: "))).toEqual(["health: update 2: health: healthy"]);
  const ends = recorded.mock.calls.map(([name]) => /^(total.updates|health.rollbacks) (\d)$/.exec(name)?.[2] ?? "");
  expect(ends.join("")).toBe("1122332334455");
});
