import { expect, test } from "bun:test";
import { CheckpointError } from "../../../actors/checkpoint/checkpoint.ts";
import { RunError } from "../../../actors/errors.ts";
import { type Solved, startOfRun } from "../../../actors/training/progress.ts";
import { judgeValidation } from "../../../actors/training/training.ts";
import { configOf, outcomeOf, rollingBack, Stage } from "./stage.ts";

const config = configOf({ health: { stopEarly: ["solved"], stops: { solvedValidations: 1 } } });
const context = { config, log: { line: () => {}, event: () => {} } };
const judged = (solved: Solved, isLast = false) => judgeValidation(context, startOfRun(config), solved, isLast);

test("of a mix, the env that is solved least is judged", () => {
  expect(judged({ success: 0.5, envs: { Bandit: 1, Sokoban: 0 } }).state.stops.failed).toBe(1);
  expect(judged({ success: 0.75, envs: { Bandit: 1, Sokoban: 0.5 } }).state.stops.failed).toBe(0);
});

test("the last validation of a run ends nothing, and counts if the run is prolonged", () => {
  const solved = { success: 1, envs: {} };
  expect(judged(solved).due).toMatchObject({ kind: "early-stop" });
  const last = judged(solved, true);
  expect([last.due, last.metrics, last.state.stops.solved]).toEqual([null, {}, 1]);
});

test("the last checkpoint waits for the episodes as long as the supervisor may take to replace the sink", async () => {
  const stage = new Stage();
  const storing = new Map<string, boolean>();
  stage.saving = ({ update }) => void storing.set(`save ${update}`, stage.storing);
  const { outcome } = stage;
  stage.outcome = (ticket) => {
    // From the last validation on, the sink hangs for 12 s.
    if (ticket.episode.startsWith("v6.") && stage.storing) {
      stage.storing = false;
      stage.clock.after(12_000, () => {
        stage.storing = true;
      });
    }
    return outcome(ticket);
  };
  await stage.runWithClock();
  expect(storing.get("save 6")).toBe(true);
});

test("a run that was stopped in its last validation, and resumed, saves this validation for a prolonged run", async () => {
  const undisturbed = new Stage();
  await undisturbed.training.run();
  const stage = new Stage();
  stage.outcome = (ticket) => {
    if (ticket.episode.startsWith("v6.")) stage.training.stop("SIGTERM");
    return outcomeOf(ticket);
  };
  expect(await stage.training.run()).toBe(null);
  const resumed = new Stage({}, stage.saved.at(-1)!);
  await resumed.training.run();
  const saved = ({ saved }: Stage) => ({ ...saved.at(-1), version: 0, minutes: 0, minutesInAll: 0 });
  expect(saved(resumed)).toEqual(saved(undisturbed));

  // If the disk is full, only this validation is missing in the checkpoint: no update is lost.
  const full = new Stage({}, stage.saved.at(-1)!);
  full.saving = () => {
    throw new CheckpointError("the disk is full");
  };
  expect(await full.training.run()).toMatchObject({ updates: 6 });
  expect(full.warnings).toEqual(["checkpoint: the disk is full"]);
});

test("a run whose disk is full from its roll-back on loses only the updates after the roll-back", async () => {
  const stage = rollingBack();
  stage.saving = ({ health }) => {
    if (health.control.round > 0) throw new CheckpointError("the disk is full");
  };
  const message = "the updates after 3 are lost: the disk is full";
  await expect(stage.training.run()).rejects.toThrow(new RunError(message));
  // The roll-back went to this update, and its checkpoint is intact.
  expect(stage.calls).toContain("restore 3");
});
