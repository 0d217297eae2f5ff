import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { RunError } from "../../../actors/errors.ts";
import { meanBaselines, measureBaselines } from "../../../actors/training/baselines.ts";
import { answersWithoutActions, jsonService } from "../../envs/outside/json-service.ts";
import { aConfig } from "../../fixtures.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

test("baselines play as many actions as the turns of an episode hold", async () => {
  const best = async (turnsMax: number) => {
    const env = { tag: "SimpleSudoku", turnsMax, actionsMax: 20, actionsPerTurnMax: 2 };
    const values = { env, validate: { episodes: 4 }, warmStart: { enabled: false } };
    const measured = await measureBaselines(aConfig(values));
    return measured.get("SimpleSudoku")!.best;
  };
  // Each board has 6 blank cells.
  expect([await best(2), await best(3)]).toEqual([0, 1]);
});

test("an env without a random player has no random success, and its episodes are opened once", async () => {
  await using server = jsonService(answersWithoutActions);
  const env = { tag: "Remote", options: { url: server.url } };
  const values = { env, validate: { episodes: 4 }, warmStart: { enabled: false } };
  const measured = await measureBaselines(aConfig(values));
  expect(meanBaselines(measured)).toEqual({ random: null, best: null, expert: null });
  const opened = server.asked.filter(({ path }) => path === "/open").map(({ body }) => body as { layoutSeed: number });
  expect(new Set(opened.map(({ layoutSeed }) => layoutSeed)).size).toBe(opened.length);
  expect(server.asked.some(({ path }) => path === "/step")).toBe(false);
});

test("a data file with other columns ends the run: a restarted learner would read the same file", async () => {
  const file = join(temporaryFolder(), "other.jsonl");
  writeFileSync(file, '{"question": "1 + 1?", "answer": "2"}\n');
  const env = { tag: "MetamathQA", options: { dataPath: file } };
  const config = aConfig({ env, warmStart: { enabled: false } });
  const error = await measureBaselines(config).catch((error: unknown) => error);
  expect(error).toBeInstanceOf(RunError);
  expect(String(error)).toContain(`MetamathQA cannot be played: ${file}, row 1: query: `);
});
