import { expect, test } from "bun:test";
import { apiContextOf } from "../../../actors/dashboard/api-of-run.ts";
import { configOf } from "../training/stage.ts";

test("a run whose pretrained model is gone is shown without tokens", () => {
  const config = configOf({});
  const gone = { ...config, model: { ...config.model, path: "/nowhere/model" } };
  const notices: string[] = [];
  const { dialogue, play } = apiContextOf(gone, "run", (text) => notices.push(text));
  expect([dialogue, play!.envs.length]).toEqual([null, 1]);
  expect(notices).toEqual([
    "episodes are shown without their tokens: cannot read a model from /nowhere/model: there is no such folder; correct the path, or put the folder back",
  ]);
});

test("an env that has other options than at the time of the run is shown without replay", () => {
  const config = configOf({ env: { tag: "Bandit" } });
  const former = { ...config, env: { ...config.env, options: { former: 1 } } };
  const notices: string[] = [];
  const { dialogue, play } = apiContextOf(former, "run", (text) => notices.push(text));
  expect([dialogue !== null, play!.envs]).toEqual([true, []]);
  expect(notices).toEqual([expect.stringMatching(/^episodes of Bandit are shown without replay: .*"former"/)]);
});

test("symbols have the kinds that their env's legend says", () => {
  const symbols = (tag: string) => apiContextOf(configOf({ env: { tag } }), "run").play!.envs[0]!.symbols;
  const sokoban = { "#": "wall", _: "floor", O: "target", X: "box", P: "player", "√": "done", S: "player" } as const;
  expect(symbols("SimpleSokoban")).toEqual(sokoban);
  expect(symbols("FrozenLake")).toEqual({ P: "player", _: "floor", O: "wall", G: "target", X: "player", "√": "done" });
});
