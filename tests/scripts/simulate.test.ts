/** The system under faults drawn from a seed: the invariants hold after every event, and bugs put in on purpose are found. */
import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { FAULT_KINDS } from "../../scripts/simulate/faults.ts";
import type { Defect } from "../../scripts/simulate/machine.ts";
import { simulate, simulateSeed, simulateSeeds, undisturbed } from "../../scripts/simulate/simulate.ts";
import { figure, ms } from "../figure.ts";
import { commandHere } from "./command.ts";

setDefaultTimeout(300_000);

/** Of one test. */
const SEEDS = 50;

/** What broke, as someone who wants to see it again needs it. */
const failures = ({ failed }: Awaited<ReturnType<typeof simulateSeeds>>) =>
  failed.map(({ seed, broken, tail }) => `bun run simulate --seed ${seed} --seeds 1: ${broken}\n${tail.join("\n")}`);

describe("invariants hold after every event", () => {
  const held = { seeds: 0, faults: 0, events: 0 };
  afterAll(() => figure("all faults of the simulation, at random", { ...held, "invariants broken": 0 }));

  test.each([1, 51, 101, 151])("of 50 runs with faults, from seed %i on", async (first) => {
    const summary = await simulateSeeds(first, SEEDS, () => {});
    expect(failures(summary)).toEqual([]);
    // A run in which nothing happened would prove nothing.
    for (const kind of FAULT_KINDS) expect(summary.faults[kind]).toBeGreaterThan(100);
    held.seeds += SEEDS;
    held.events += summary.events;
    held.faults += Object.values(summary.faults).reduce((sum, count) => sum + count, 0);
  });
});

describe("a seed", () => {
  test("replays its run: every event, every frame, every moment", async () => {
    for (const seed of [2, 3]) {
      const [first, again] = [await simulateSeed(seed), await simulateSeed(seed)];
      expect(again).toEqual(first);
    }
    expect((await simulateSeed(4)).trace).not.toBe((await simulateSeed(2)).trace);
  });

  test("decides no result in sync mode: another network gives the same bytes", async () => {
    const other = await simulate({ seed: 12_345, faults: false, mode: "sync" });
    const { parameters, metrics, trace } = await undisturbed();
    expect(other.parameters).toBe(parameters!);
    expect(other.metrics).toBe(metrics);
    expect(metrics).toContain("train/success 5 ");
    expect(other.trace).not.toBe(trace);
  });
});

test("the network cut for 30 s, amid other faults: samplers play on and send again, and the policy has the same bytes", async () => {
  const { parameters, metrics } = await undisturbed();
  const cut = { seeds: 20, cutMs: 30_000, longestMs: 0 };
  for (let seed = 1; seed <= cut.seeds; seed++) {
    const result = await simulate({ seed, faults: true, mode: "sync", cutMs: cut.cutMs });
    expect({ seed, broken: result.broken }).toEqual({ seed, broken: null });
    expect(result.simulatedMs).toBeGreaterThan(cut.cutMs);
    if (result.parameters === null) continue;
    expect([result.parameters, result.metrics]).toEqual([parameters!, metrics]);
    cut.longestMs = Math.max(cut.longestMs, result.simulatedMs);
  }
  const ended = { "lost or trained twice": 0, "the longest run": `${ms(cut.longestMs)} of its own time` };
  figure("network cut for 30 s", { seeds: cut.seeds, ...ended });
});

test.each([
  ["sync", 8, "rows that the learner stores in its last seconds are not lost"],
  ["sync", 20502, "a run waits at its end until the supervisor has replaced a sink that hangs"],
  ["async", 131, "a late message of a killed sampler is not taken for one of its successor"],
] as const)("asks with a deadline of 1.2 s, %s seed %i: %s", async (mode, seed) => {
  const { broken } = await simulate({ seed, faults: true, mode, answerMsMax: 1000 });
  expect(broken).toBeNull();
});

test("a run that failed for a full disk is no fault", async () => {
  const { broken, parameters } = await simulateSeed(6057);
  expect([broken, parameters]).toEqual([null, null]);
});

test("a run whose episodes cannot be stored fails, and names their number", async () => {
  const { broken, tail, parameters } = await simulate({
    seed: 1,
    faults: false,
    mode: "sync",
    defect: "stores nothing",
  });
  expect(broken).toBe("the run failed: learner exit code 3");
  // Without a report the run has not finished: a sweep runs it again.
  expect(parameters).toBeNull();
  const failure = expect.stringMatching(
    /learner: error crash: RunError: [1-9]\d* episodes are lost: the metrics sink did not store them/,
  );
  expect(tail).toContainEqual(failure);
});

describe("found is", () => {
  const sought: [Defect, "sync" | "async", RegExp][] = [
    ["trains twice", "sync", /^invariant 3: \S+ is trained on in .*, and was already trained on in /],
    ["takes anything", "sync", /^invariant 1: \S+ was taken from sampler-\d, which had no ticket for it/],
    ["mixes versions", "sync", /^invariant 5: \S+ of version \d+ has tokens that other weights wrote/],
    ["trains on old episodes", "async", /^invariant 4: \S+ of version \d+ is trained on with version \d+/],
    ["loses rows", "sync", /^invariant 3: .* (was acknowledged as stored, and is not|and is not in the log)/],
  ];
  test.each(sought)("a system that %s (%s)", async (defect, mode, broken) => {
    for (let seed = 1; seed <= 20; seed++) {
      const result = await simulate({ seed, faults: true, mode, defect });
      if (result.broken === null) continue;
      expect(result.broken).toMatch(broken);
      expect(result.tail.length).toBeGreaterThan(10);
      return;
    }
    throw new Error("it was not found in 20 seeds");
  });
});

test("no seed is refused", async () => {
  const { code, err } = await commandHere(["simulate", "--seeds", "0"]);
  expect([code, err]).toEqual([2, 'error: --seeds takes a whole number, 1 or more, got "0"\n']);
});

test("seeds beyond the whole numbers of a double are refused, as counting them would not end", async () => {
  const { code, err } = await commandHere(["simulate", "--seed", "9007199254740991", "--seeds", "3"]);
  expect([code, err]).toEqual([2, "error: --seed takes at most 9007199254740989 with 3 seeds, got 9007199254740991\n"]);
});
