/** Whole tiny runs over a mix of envs: metrics of each env and its share of the next batch are the same with any number of samplers. */

import { Database } from "bun:sqlite";
import { beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import type { RunConfig } from "../../../actors/config/config.ts";
import { evaluatePolicy } from "../../../actors/evaluate/evaluate.ts";
import { savedPolicy, startSavedPolicy } from "../../../actors/policy/saved-policy.ts";
import { inThisThread } from "../../../actors/process/worker-rpc.ts";
import { policyMethods } from "../../../actors/sampler/policy.ts";
import { startCluster } from "../../../actors/supervisor/cluster.ts";
import { groupEnvs, type Scores } from "../../../actors/training/curriculum.ts";
import type { Report } from "../../../actors/training/report.ts";
import { aConfig } from "../../fixtures.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { playRun, startOneThread, stopRunAt, tinySettings } from "../supervisor/tiny-run.ts";

const mixedConfig = (folder: string, warmStarts?: string): RunConfig =>
  aConfig(tinySettings(folder, warmStarts), {
    env: {
      mix: [{ tag: "Bandit" }, { tag: "FrozenLake", name: "Ice", options: { successRate: 0.9 }, turnsMax: 2 }],
    },
    rollout: { groupSize: 3, onlineK: 2, curriculum: { by: "reward", smoothing: 0.2 } },
    sampler: { count: 2 },
    learner: { updates: 4 },
    validate: { episodes: 6, groupSize: 4, everyUpdates: 2, temperature: 1 },
  });

/** Not of time. */
const lasting = ([name]: [string, number]) => /^(train|validate|curriculum|baseline)\//.test(name);

async function played(how: typeof startCluster, warmStarts?: string): Promise<string> {
  const folder = join(temporaryFolder(), "run");
  mkdirSync(folder, { recursive: true });
  const config = mixedConfig(folder, warmStarts);
  const cluster = await how({ run: "run", folder, config, event: () => {}, output: () => {} });
  expect(await cluster.ended).toEqual({ ok: true, reason: "learner finished" });
  return folder;
}

function valuesOf(folder: string): Map<string, number> {
  using db = new Database(join(folder, "run.sqlite"), { readonly: true });
  const rows = db.query("SELECT name, step, value FROM metrics").values() as [string, number, number][];
  return new Map(rows.map(([name, step, value]) => [`${name} ${step}`, value]));
}

describe("a run over a mix", () => {
  let folder: string;
  let values: Map<string, number>;
  beforeAll(async () => {
    folder = await played(startOneThread);
    values = valuesOf(folder);
  }, 300_000);

  test("plays k x P groups, in as many as each env is due, and learns from them in k steps", () => {
    for (const update of [1, 2, 3, 4]) {
      expect(values.get(`train/groups ${update}`)).toBe(8);
      expect(values.get(`train/groups{env=Bandit} ${update}`)! + values.get(`train/groups{env=Ice} ${update}`)!).toBe(
        8,
      );
      expect(values.get(`train/optimizer_steps ${update}`)).toBe(2);
    }
    expect(values.get("train/groups{env=Ice} 1")).toBe(4);
  });

  test("deals groups out by what the updates before measured", () => {
    const config = mixedConfig(folder);
    const counts = [2, 3, 4].map((update) => {
      const scores: Scores = Object.fromEntries(
        ["Bandit", "Ice"].map((env) => [env, values.get(`curriculum/score{env=${env}} ${update - 1}`)!]),
      );
      return groupEnvs(config, scores).filter((env) => env === "Ice").length;
    });
    expect([2, 3, 4].map((update) => values.get(`train/groups{env=Ice} ${update}`))).toEqual(counts);
    // It did move.
    expect(counts.some((count) => count !== 4)).toBe(true);
  });

  test("validates every env on boards of its own, and estimates pass@k over all of them", () => {
    const at = (name: string) => values.get(`${name} 4`)!;
    expect(at("validate/success")).toBeCloseTo(
      (at("validate/success{env=Bandit}") + at("validate/success{env=Ice}")) / 2,
      12,
    );
    expect(at("validate/pass{k=1}")).toBeCloseTo(at("validate/success"), 12);
    expect(at("validate/pass{k=2}")).toBeLessThanOrEqual(at("validate/pass{k=4}"));
    expect(at("validate/pass{k=1}")).toBeLessThan(at("validate/pass{k=4}"));
  });

  test("reports each env beside chance and the best possible", () => {
    const report = JSON.parse(readFileSync(join(folder, "report.json"), "utf8")) as Report;
    expect(report.env).toBe("Bandit+Ice");
    expect(Object.keys(report.envs!)).toEqual(["Bandit", "Ice"]);
    for (const key of ["random", "before", "after", "best"] as const) {
      const { Bandit, Ice } = report.envs!;
      expect(report.success[key]!).toBeCloseTo((Bandit![key]! + Ice![key]!) / 2, 12);
    }
    expect(values.get("baseline/random{env=Ice} 0")).toBe(report.envs!["Ice"]!.random!);
  });

  test("is evaluated afterwards env by env, with the success of its last validation", async () => {
    const config = mixedConfig(folder);
    const saved = await savedPolicy(folder, config, null);
    const { methods } = inThisThread(policyMethods());
    const weights = await startSavedPolicy(saved, config, 8, methods, () => {});
    const warn = (text: string) => expect(text).toBe("");
    const played = await evaluatePolicy({
      config,
      policy: methods,
      dialogue: saved.dialogue,
      weights,
      slots: 8,
      clock: realClock,
      warn,
    });
    expect([...played.keys()]).toEqual(["Bandit", "Ice"]);
    for (const [env, { success, passAt, stops }] of played) {
      expect(success).toBe(values.get(`validate/success{env=${env}} 4`)!);
      expect([passAt.at(-1)!.k, Object.values(stops).reduce((sum, count) => sum + count, 0)]).toEqual([4, 24]);
    }
  });

  test("stopped in the middle and resumed, deals out the same groups and learns the same", async () => {
    const other = join(temporaryFolder(), "run");
    const config = mixedConfig(other, mixedConfig(folder).warmStart.cacheDir);
    expect(await stopRunAt(other, config, "update 2/4")).toEqual({ ok: true, reason: "enough" });
    await playRun(other, config);
    expect([...valuesOf(other)].filter(lasting).sort()).toEqual([...values].filter(lasting).sort());
  }, 300_000);

  test("is the same with any number of samplers", async () => {
    const other = valuesOf(await played(startCluster, mixedConfig(folder).warmStart.cacheDir));
    expect([...other].filter(lasting).sort()).toEqual([...values].filter(lasting).sort());
  }, 300_000);
});
