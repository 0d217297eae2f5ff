/** Evaluates a tiny run's policy: the evaluation repeats the run's own validation, with any number of samplers and slots. */
import { beforeAll, describe, expect, test } from "bun:test";
import { cpSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import type { RunConfig } from "../../../actors/config/config.ts";
import { entropyOf, evaluatePolicy, type PolicyEvaluation } from "../../../actors/evaluate/evaluate.ts";
import { readRunConfig, savedPolicy, startSavedPolicy } from "../../../actors/policy/saved-policy.ts";
import { inThisThread } from "../../../actors/process/worker-rpc.ts";
import { policyMethods } from "../../../actors/sampler/policy.ts";
import { wilson } from "../../../envs/analysis/evaluate.ts";
import { anOutcome, aTicket, aTrajectory } from "../../fixtures.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { playRun, tinyConfig } from "../supervisor/tiny-run.ts";

let folder: string;
let config: RunConfig;
beforeAll(async () => {
  folder = join(temporaryFolder(), "run");
  config = tinyConfig(folder, { samplers: 2, warmStart: "shared" });
  await playRun(folder, config);
}, 300_000);

const WHOLE = { slots: 16 };
async function evaluate(changed: RunConfig, { slots } = WHOLE, progress = (_: number, __: number) => {}) {
  const saved = await savedPolicy(folder, config, null);
  const { methods } = inThisThread(policyMethods());
  const weights = await startSavedPolicy(saved, changed, slots, methods, () => {});
  const { dialogue } = saved;
  const warn = (text: string) => expect(text).toBe("");
  const evaluations = await evaluatePolicy({
    config: changed,
    policy: methods,
    dialogue,
    weights,
    slots,
    clock: realClock,
    warn,
    progress,
  });
  expect([...evaluations.keys()]).toEqual(["Bandit"]);
  return evaluations.get("Bandit")!;
}

/** Boards `first` … of the run's env, at a temperature. */
const on = (episodes: number, firstSeed: number, temperature: number): RunConfig => ({
  ...config,
  validate: { ...config.validate, episodes, firstSeed, temperature },
});

test("entropy is the mean of -log p over written tokens; a greedy policy has none to estimate", () => {
  const written = Uint8Array.of(0, 1, 1, 0, 1);
  const trajectory = aTrajectory({ tokens: new Int32Array(5), written, logProbs: Float32Array.of(0, -0.5, -1, 0, -3) });
  const played = (temperature: number) => [
    { ticket: aTicket({ temperature }), sampler: "a", outcome: anOutcome({ trajectory }) },
  ];
  expect(entropyOf(played(0.5))).toBeCloseTo(1.5, 6);
  expect(entropyOf(played(0))).toBeNull();
  expect(entropyOf([])).toBeNull();
});

describe("the policy of a run", () => {
  test("solves exactly what the run's last validations say", async () => {
    const report = JSON.parse(readFileSync(join(folder, "report.json"), "utf8"));
    const { success } = await evaluate(config);
    expect([success, success > 0, success < 1]).toEqual([report.success.after, true, true]);
  });

  test("plays the same one episode at a time or all at once", async () => {
    const hot = on(48, 500, 1);
    const all = await evaluate(hot, { slots: 48 });
    expect(await evaluate(hot, { slots: 1 })).toEqual(all);
    expect(await evaluate(hot, { slots: 7 })).toEqual(all);
  });

  test("is summed up by counts that agree with each other", async () => {
    const calls: [number, number][] = [];
    const result = await evaluate(on(40, 900, 1), WHOLE, (played, solved) => calls.push([played, solved]));
    const solved = Math.round(result.success * 40);
    expect(calls.map(([played]) => played)).toEqual(Array.from({ length: 40 }, (_, i) => i + 1));
    expect(calls.at(-1)).toEqual([40, solved]);
    expect(result.ci95).toEqual(wilson(solved, 40));
    expect(result.stops.success).toBe(solved);
    expect(Object.values(result.stops).reduce((sum, count) => sum + count, 0)).toBe(40);
    // One turn of at most one action, and a turn without one is malformed.
    expect(result.meanTurns).toBe(1);
    expect(result.meanActions + result.formatErrors).toBe(1);
  });

  test("depends on boards and temperature", async () => {
    const results: PolicyEvaluation[] = [];
    for (const other of [on(64, 123, 0), on(64, 123, 1), on(64, 5000, 1)]) results.push(await evaluate(other));
    expect(new Set(results.map((result) => JSON.stringify(result))).size).toBe(3);
  });

  test("is not called bad for an episode that could not be played", async () => {
    const small = { ...config, rollout: { ...config.rollout, contextTokensMax: 4, replyTokensMax: 2 } };
    const refused = /^board \d+ of Bandit could not be played: the first prompt has \d+ tokens, which leaves no room/;
    await expect(evaluate(small)).rejects.toThrow(refused);
  });
});

describe("the saved policy", () => {
  /** A copy of the run, to be spoilt. */
  function copy(): string {
    const other = join(temporaryFolder(), "copy");
    cpSync(folder, other, { recursive: true });
    return other;
  }
  const newest = (of: string) => join(of, "checkpoints", readdirSync(join(of, "checkpoints")).sort().at(-1)!);

  test("is the newest checkpoint, or the one that is named", async () => {
    expect(await savedPolicy(folder, config, null)).toMatchObject({ update: 3, path: newest(folder), skipped: [] });
    const other = copy();
    cpSync(newest(other), join(other, "checkpoints", "u000001"), { recursive: true });
    expect((await savedPolicy(other, config, "u000001")).path).toBe(join(other, "checkpoints", "u000001"));
  });

  test("is never taken from a corrupt checkpoint; an older one that is whole is, and says so", async () => {
    const other = copy();
    const bad = newest(other);
    const good = join(other, "checkpoints", "u000001");
    cpSync(bad, good, { recursive: true });
    const file = join(bad, "policy.safetensors");
    const bytes = readFileSync(file);
    bytes[bytes.length - 1]! ^= 1;
    writeFileSync(file, bytes);
    const { path, skipped } = await savedPolicy(other, config, null);
    expect([path, skipped.map((one) => one.path)]).toEqual([good, [bad]]);
    for (const older of ["u000000", "u000001"]) {
      renameSync(join(other, "checkpoints", older), join(temporaryFolder(), "gone"));
    }
    await expect(savedPolicy(other, config, null)).rejects.toThrow(
      /^no checkpoint of .* can be used; .*policy\.safetensors/,
    );
    await expect(savedPolicy(other, config, "u000003")).rejects.toThrow(/policy\.safetensors is corrupt/);
  });

  test("must have the shape that the run's config gives", async () => {
    const wider = { ...config, model: { ...config.model, hidden: 128 } };
    const told = /it has model\.hidden 64, and the config of .* says 128; the checkpoint is of another run/;
    await expect(savedPolicy(folder, wider, null)).rejects.toThrow(told);
  });

  test("is not there before the run saved one", async () => {
    await expect(savedPolicy(temporaryFolder(), config, null)).rejects.toThrow(/has no checkpoint yet/);
  });

  test("comes with a config that is one; else the fault is named in one line", () => {
    expect(readRunConfig(folder)).toEqual(config);
    const other = copy();
    writeFileSync(join(other, "config.json"), JSON.stringify({ ...config, seed: "seven", extra: 1 }));
    expect(() => readRunConfig(other)).toThrow(/^cannot use the config of .*"extra".*number.*at seed$/);
    writeFileSync(join(other, "config.json"), JSON.stringify({ model_type: "qwen2" }));
    expect(() => readRunConfig(other)).toThrow(/has a Hugging Face model, not a run; .*: bun run cluster --model /);
    expect(() => readRunConfig(temporaryFolder())).toThrow(/^no run in .*: there is no config.json$/);
  });
});
