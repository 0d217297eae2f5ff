import { expect, test } from "bun:test";
import type { Costs } from "../../../actors/record/costs.ts";
import type { Report } from "../../../actors/training/report.ts";
import { resultTable } from "../../../scripts/cli/run-result.ts";

const report: Report = {
  run: "run",
  env: "Bandit",
  updates: 1,
  minutes: 2.25,
  minutesInAll: 9.75,
  success: { random: 0.1, taught: 0.2, before: 0.3, after: 0.4, best: null, expert: 0.5 },
  envs: null,
  successAtOne: { taught: 0.6, after: 0.7 },
  episodes: 1,
  tokens: 1,
  actions: 1,
  tokensPerSecond: 1234.5,
  updatesPerMinute: 1,
  logProbGap: null,
  stoppedEarly: null,
  engine: "compiled",
  device: "cpu",
};
const nothing = { tokens: null, actions: null, cpuSeconds: null, joules: null };
const costs = (reinforcement: object, perPoint: object) =>
  ({ reinforcement: { ...nothing, ...reinforcement }, perPoint: { ...nothing, ...perPoint } }) as Costs;
const table = (changes: object, memory: Parameters<typeof resultTable>[3] = [], of = costs({}, {})) =>
  resultTable({ ...report, ...changes }, 0.5, "runs/a", memory, of).split("\n");

test("success of every policy, at the temperature of validation and at 1; time and place", () => {
  expect(table({})).toEqual([
    "",
    "success          T 0.5      T 1",
    "random          10.0 %        –   a player that chooses every action at random",
    "taught          20.0 %   60.0 %   the policy after the first stage of its warm start",
    "before          30.0 %        –   the policy that reinforcement started from",
    "after           40.0 %   70.0 %   the policy after 1 update",
    "best possible        –        –   the optimal player on the same boards",
    "expert          50.0 %        –   a scripted player; the best possible is unknown",
    "",
    "2.3 min of reinforcement, 9.8 min in all; 1235 tokens/s",
    "the run is in runs/a; its page: bun run page runs/a",
  ]);
  expect(resultTable(report, 0.5, "my runs/a", [], costs({}, {}))).toEndWith("bun run page 'my runs/a'");
  const { expert: _, ...success } = report.success;
  const known = table({ success: { ...success, best: 1, expert: null }, tokensPerSecond: null });
  expect(known.some((line) => /^expert|tokens/.test(line))).toBe(false);
});

test("of a mix each env has its row", () => {
  const envs = { Bandit: { random: 0.1, before: 0.2, after: 0.3, best: 1, expert: null }, Ice: report.success };
  expect(table({ envs }).slice(8, 12)).toEqual([
    "",
    "         random   before    after     best",
    "Bandit   10.0 %   20.0 %   30.0 %  100.0 %",
    "Ice      10.0 %   30.0 %   40.0 %        –",
  ]);
});

test("what reinforcement cost, as far as it was measured, and the memory of each process", () => {
  const memory = [
    { actor: "learner", peakBytes: 300 * 2 ** 20, slopeBytesPerMinute: 1.5 * 2 ** 20 },
    { actor: "sampler-0", peakBytes: 100 * 2 ** 20, slopeBytesPerMinute: -(2 ** 20) },
    { actor: "gate", peakBytes: 50 * 2 ** 20, slopeBytesPerMinute: null },
  ];
  const lines = table({}, memory, costs({ tokens: 12_345, cpuSeconds: 9.96 }, { tokens: 4.25 }));
  expect(lines.slice(-3, -1)).toEqual([
    "cost of reinforcement: 12,345 tokens (4.3 per point of success), 10 CPU seconds",
    "memory at most 450 MiB: learner 300 (+1.5/min), sampler-0 100 (-1.0/min), gate 50",
  ]);
});
