import { expect, spyOn, test } from "bun:test";
import { envTag } from "../../../envs/registry.ts";
import {
  acrossEnvs,
  type Evaluated,
  evaluationReport,
  progressLine,
  type References,
  type Result,
} from "../../../scripts/eval/report.ts";

const result: Result = {
  success: 0.5,
  ci95: [0.25, 0.75],
  meanReward: 1,
  meanTurns: 2,
  meanActions: 3,
  formatErrors: 0.125,
  passAt: [
    { k: 1, share: 0.5 },
    { k: 2, share: 0.75 },
  ],
  name: "Ice",
  tag: envTag("FrozenLake", {}),
  episodes: 4,
  seed: 7,
  samples: 2,
  actionsMax: 1,
  stops: { success: 4, over: 1, actions: 2, turns: 0, context: 1 },
  failures: { invalid_format: 0, dead_end: 1, premature_stop: 0, local_cycle: 0, budget: 3 },
  thoughts: { faithful: 0.25, claiming: 0.5 },
  entropy: 0.1234,
  lines: [],
};
const references: References = {
  random: { success: 0.1, meanReward: -1, meanTurns: 4, meanActions: 5 },
  expert: 0.6,
  best: null,
};
const lines = (policy: string, changes: Partial<Result> = {}) =>
  evaluationReport(policy, { ...result, ...changes }, references).split("\n");

test("a policy stands beside chance and the expert, with the reasons of its ends and failures", () => {
  expect(lines("own")).toEqual([
    "Ice (FrozenLake), 4 boards from seed 7, 2 episodes each, at most 1 action each",
    "",
    "                success  95 % interval    reward     turns   actions  format errors",
    "own              50.0 %  25.0 – 75.0 %      1.00      2.00      3.00         12.5 %",
    "random           10.0 %                    -1.00      4.00      5.00",
    "expert           60.0 %",
    "best possible   unknown",
    "",
    "solved by at least one of k tries: pass@1 50.0 % · pass@2 75.0 %",
    "",
    "stopped: solved 4 (50.0 %) · over without success 1 (12.5 %) · out of actions 2 (25.0 %) · out of turns 0 (0.0 %) · context full 1 (12.5 %)",
    "failed: invalid format 0 (0.0 %) · dead end 1 (12.5 %) · premature stop 0 (0.0 %) · local cycle 0 (0.0 %) · budget alone 3 (37.5 %)",
    "thoughts: 50.0 % make a checkable claim; on average 25.0 % of the claims are true",
    "entropy: 0.123 nats per written token, estimated from the sampled tokens",
  ]);
});

test("a player has one row, and no reasons", () => {
  const player = { samples: 1, stops: null, failures: null, thoughts: null, entropy: null, name: "FrozenLake" };
  const titles = (policy: string) => lines(policy, player).map((line) => line.split(/ {2,}/)[0]);
  const head = "FrozenLake, 4 boards from seed 7, at most 1 action each";
  expect(titles("random")).toEqual([head, "", "", "random", "expert", "best possible"]);
  expect(titles("expert")).toEqual([head, "", "", "expert", "random", "best possible"]);
});

const evaluated = (policy: string, best: number, random: number): Evaluated => {
  const means = { success: 0.4, meanReward: 0, meanTurns: 1, meanActions: 1, formatErrors: 0 };
  const unsaid = { stops: null, failures: null, thoughts: null, entropy: null, passAt: [], lines: [] };
  const boards = { episodes: 4, seed: 1, samples: 1, actionsMax: 5 };
  return {
    policy,
    trained: null,
    result: { ...means, ...unsaid, ...boards, ci95: [0, 1], name: "FrozenLake", tag: envTag("FrozenLake", {}) },
    references: { random: { ...means, success: random }, expert: null, best },
  };
};

test("references that differ between policies, as of other options of an env, are all shown", () => {
  const rows = (...all: Evaluated[]) => acrossEnvs(all).split("\n").slice(-2);
  expect(rows(evaluated("slippery", 0.49, 0.2), evaluated("sure", 1, 0.1))).toEqual([
    "random          20.0 % / 10.0 %",
    "best possible  49.0 % / 100.0 %",
  ]);
  expect(rows(evaluated("one", 1, 0.1), evaluated("other", 1, 0.1))).toEqual([
    "random             10.0 %",
    "best possible     100.0 %",
  ]);
});

test("a policy that did not play an env has an empty cell, and failures are shares of all tries", () => {
  const own = evaluated("own", 1, 0.1);
  const failures = { invalid_format: 1, dead_end: 2, premature_stop: 0, local_cycle: 0, budget: 3 };
  const elsewhere = { ...evaluated("other", 1, 0.5), references: { ...own.references, best: null } };
  const text = acrossEnvs([
    { ...own, trained: "Bandit", result: { ...own.result, samples: 2, failures } },
    { ...elsewhere, result: { ...elsewhere.result, name: "Ice" } },
  ]);
  expect(text.split("\n").map((line) => line.split(/ {2,}/))).toEqual([
    ["success", "FrozenLake", "Ice"],
    ["own (trained on Bandit)", "40.0 %"],
    ["other", "40.0 %"],
    ["random", "10.0 %", "10.0 %"],
    ["best possible", "100.0 %", "unknown"],
    [""],
    ["failed, of all episodes", "invalid format", "dead end", "premature stop", "local cycle", "budget alone"],
    // Of four boards twice.
    ["own on FrozenLake", "12.5 %", "25.0 %", "0.0 %", "0.0 %", "37.5 %"],
  ]);
});

test("where there is no terminal, at most four lines say how far it is, the last one at the end", () => {
  const written = (episodes: number) => {
    let text = "";
    const spy = spyOn(process.stderr, "write").mockImplementation((part) => {
      text += part;
      return true;
    });
    const progress = progressLine(episodes);
    for (let played = 1; played <= episodes; played++) progress(played, 1);
    spy.mockRestore();
    return text.match(/played \d+/g)!.map((words) => Number(words.split(" ")[1]));
  };
  expect([written(8), written(10), written(2)]).toEqual([
    [2, 4, 6, 8],
    [3, 6, 9, 10],
    [1, 2],
  ]);
});
