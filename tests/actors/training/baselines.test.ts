import { expect, test } from "bun:test";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import { meanBaselines, measureBaselines } from "../../../actors/training/baselines.ts";
import { answersWithoutActions, jsonService } from "../../envs/outside/json-service.ts";

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

test("an env without a random player has no random success, and each opened episode is closed", async () => {
  await using server = jsonService(answersWithoutActions);
  const env = { tag: "Remote", options: { url: server.url } };
  const values = { env, validate: { episodes: 4 }, warmStart: { enabled: false } };
  const measured = await measureBaselines(composeRunConfig([{ source: "test", values }]));
  expect(meanBaselines(measured)).toEqual({ random: null, best: null, expert: null });
  const count = (wanted: string) => server.asked.filter(({ path }) => path === wanted).length;
  expect([count("/open") > 0, count("/close"), count("/step")]).toEqual([true, count("/open"), 0]);
});
