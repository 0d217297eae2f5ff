/** Replays, and play by hand, with the code that the browser runs. */
import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { PlayAnswer } from "../../../../actors/dashboard/answers.ts";
import { bundleReplayCode } from "../../../../actors/dashboard/assets.ts";
import { ManualGame, replay } from "../../../../actors/dashboard/client/replay-code.ts";
import type { EpisodeRow, PlayedOutcome } from "../../../../actors/protocol.ts";
import { temporaryFolder } from "../../../scripts/temporary.ts";
import { play } from "../../metrics-sink/fake-run.ts";
import { recordedRow } from "../../record/recorded-episode.ts";

const recorded = ({ outcome }: EpisodeRow) => outcome as PlayedOutcome;

const { rules } = play.envs[0]!;
const symbols = {};
/** The envs of a run that also plays this env, with these changes. */
const playOf = (name: string, changed: Partial<PlayAnswer["envs"][number]>): PlayAnswer => ({
  ...play,
  envs: [
    ...play.envs,
    { name: "Other", tag: "Bandit", options: {}, symbols, rules },
    { name, tag: name, options: {}, symbols, rules, ...changed },
  ].reverse(),
});

describe("replay", () => {
  test.each([
    ["SimpleSokoban", {}],
    ["FrozenLake", { successRate: 0.8 }],
    ["Bandit", {}],
  ])("of %s shows the state after each action and earns the recorded reward, also for bad play", (env, options) => {
    for (let seed = 1; seed <= 20; seed++) {
      const ticket = { env, layoutSeed: seed, dynamicsSeed: seed + 7, version: seed };
      const row = recordedRow({ babble: seed % 2, ticket, options });
      const { turns, finalObservation, success } = recorded(row);
      const { frames, difference } = replay(row.ticket, recorded(row), playOf(env, { options }));
      expect(difference).toBeNull();
      expect(frames.slice(1).map(({ action }) => action)).toEqual(turns.flatMap(({ actions }) => actions));
      expect(frames[0]!.observation).toBe(turns[0]!.observation);
      if (turns.at(-1)!.actions.length > 0) expect(frames.at(-1)!.observation).toBe(finalObservation);
      expect(frames.at(-1)!.reward).toBeCloseTo(
        turns.reduce((sum, { reward }) => sum + reward, 0),
        9,
      );
      expect(frames.at(-1)!.success).toBe(success);
    }
  });

  test("names the turn from which a record differs", () => {
    const row = recordedRow({ babble: 1, ticket: { layoutSeed: 3 } });
    const { turns, finalObservation } = recorded(row);
    const changed = turns.map((turn, i) => (i === 1 ? { ...turn, reward: turn.reward + 1 } : turn));
    expect(turns.length).toBeGreaterThan(1);
    expect(replay(row.ticket, { turns: changed, finalObservation }, play).difference).toStartWith("turn 2 earns ");
    expect(replay(row.ticket, { turns, finalObservation: "elsewhere" }, play).difference).toBe(
      "the final observation differs",
    );
  });

  test("finds an env of a mix by its name in the mix", () => {
    const row = recordedRow({ babble: 0, ticket: { env: "FrozenLake", layoutSeed: 5 }, options: { successRate: 0.8 } });
    const mix = playOf("Ice", { tag: "FrozenLake", options: { successRate: 0.8 } });
    expect(replay({ ...row.ticket, env: "Ice" }, recorded(row), mix).difference).toBeNull();
  });

  test("says what cannot be replayed, and why", () => {
    const row = recordedRow({ babble: 0 });
    const other = { ...row.ticket, env: "Chess" };
    expect(() => replay(other, recorded(row), play)).toThrow('unknown env tag "Chess"');
    const strange = recorded(row).turns.map((turn) => ({ ...turn, actions: ["Jump"] }));
    expect(() => replay(row.ticket, { turns: strange, finalObservation: "" }, play)).toThrow(
      'no action "Jump"; the actions are Up, Down, Left, Right',
    );
  });
});

describe("ManualGame", () => {
  test("continues from the turn, with the actions that are left", () => {
    const row = recordedRow({ babble: 0, ticket: { layoutSeed: 10_003 } });
    const { turns } = recorded(row);
    const hand = new ManualGame(row.ticket, recorded(row), 1, play);
    expect(hand.frame.observation).toBe(turns[1]!.observation);
    expect(hand.actionsLeft).toBe(10 - turns[0]!.actions.length);
    for (const action of turns[1]!.actions) hand.play(action);
    expect(hand.frame.success).toBe(true);
    expect(() => hand.play("Up")).toThrow("the game is over");
    expect(() => new ManualGame(row.ticket, recorded(row), 0, play).play("Sideways")).toThrow("the actions are Up");
  });

  test("refuses an action when no actions are left", () => {
    const row = recordedRow({ babble: 0 });
    const hand = new ManualGame(
      row.ticket,
      recorded(row),
      0,
      playOf("SimpleSokoban", { rules: { ...rules, actionsMax: 2 } }),
    );
    hand.play("Up");
    hand.play("Up");
    expect(() => hand.play("Up")).toThrow("no actions are left");
  });
});

test("the bundle needs nothing that a browser lacks, and makes no code from text", async () => {
  const code = await bundleReplayCode();
  expect(code).not.toMatch(/\brequire\(|from\s*"(node|bun):|import\s*\(\s*"node/);
  expect(code.length).toBeLessThan(600_000);
  const file = join(temporaryFolder(), "replay-code.js");
  writeFileSync(file, code);
  const bundled = (await import(file)) as { replay: typeof replay };
  const row = recordedRow({ babble: 0 });
  expect(bundled.replay(row.ticket, recorded(row), play).difference).toBeNull();
});
