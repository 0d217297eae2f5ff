import { expect, test } from "bun:test";
import { envTag } from "../../../envs/registry.ts";
import { acrossEnvs, type Evaluated } from "../../../scripts/eval/report.ts";

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
