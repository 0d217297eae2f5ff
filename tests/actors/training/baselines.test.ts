import { expect, test } from "bun:test";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import { measureBaselines } from "../../../actors/training/baselines.ts";

test("baselines play as many actions as the turns of an episode hold", async () => {
  const best = async (turnsMax: number) => {
    const env = { tag: "SimpleSudoku", turnsMax, actionsMax: 20, actionsPerTurnMax: 2 };
    const values = { env, validate: { episodes: 4 }, warmStart: { enabled: false } };
    const measured = await measureBaselines(composeRunConfig([{ source: "test", values }]));
    return measured.get("SimpleSudoku")!.best;
  };
  // Each board has 6 blank cells.
  expect([await best(2), await best(3)]).toEqual([0, 1]);
});
