/**
 * Every algorithm trains a policy for real: two updates on boards of a few cells, in turns, on one thread. The tests do not check what the
 * policy learns. They check that each update changes the weights, and that no update is skipped.
 */

import { Database } from "bun:sqlite";
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { ALGORITHM_NAMES } from "../../../actors/config/algorithms.ts";
import { parseLayer } from "../../../actors/config/layers.ts";
import { needsCritic } from "../../../actors/training/update-settings.ts";
import { aConfig } from "../../fixtures.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { playRun, stopRunAt, tinySettings } from "../supervisor/tiny-run.ts";

setDefaultTimeout(300_000);

/** One warm start for all. */
const cacheDir = temporaryFolder();
const base = [
  tinySettings(cacheDir),
  {
    env: {
      tag: "FrozenLake",
      options: { size: 2, successRate: 0.8 },
      turnsMax: 3,
      actionsMax: 3,
      actionsPerTurnMax: 1,
    },
    rollout: { replyTokensMax: 16 },
    sampler: { slots: 16 },
    warmStart: { boards: 50 },
    learner: { updates: 2, minibatch: 8 },
    validate: { episodes: 4, everyUpdates: 100 },
    checkpoint: { everyUpdates: 100 },
  },
];

interface Trained {
  /** Metric at update 2. */
  readonly metrics: ReadonlyMap<string, number>;
  /** Of the weights that played each update, and the last validation. */
  readonly digests: readonly string[];
}

/** @param stopAt  stop it once, when its log has this text, and resume it from its checkpoint */
async function train(yaml: string, stopAt: string | null = null): Promise<Trained> {
  const folder = join(temporaryFolder(), "run");
  const config = aConfig(...base, parseLayer(`learner: ${yaml}`, "test").values);
  if (stopAt !== null) expect(await stopRunAt(folder, config, stopAt)).toEqual({ ok: true, reason: "enough" });
  await playRun(folder, config);
  const db = new Database(join(folder, "run.sqlite"), { readonly: true });
  const rows = db.query("SELECT name, value FROM metrics WHERE actor = 'learner' AND step = 2").values();
  const digests = db.query("SELECT DISTINCT digest FROM episodes WHERE digest IS NOT NULL ORDER BY version").values();
  db.close();
  return { metrics: new Map(rows as [string, number][]), digests: digests.map(([digest]) => String(digest)) };
}

describe("two updates", () => {
  test.each(ALGORITHM_NAMES)("by %s move the policy", async (name) => {
    const { metrics, digests } = await train(`{algorithm: ${name}}`);
    expect(metrics.get("total/skipped_updates")).toBe(0);
    expect(metrics.get("train/grad_norm")).toBeGreaterThan(0);
    expect(metrics.get("train/advantage_abs")).toBeGreaterThan(0);
    expect(metrics.has("loss/policy")).toBe(true);
    // Those taught, then each update's.
    expect(new Set(digests).size).toBeGreaterThanOrEqual(3);
    const { learner } = aConfig(...base, { learner: { algorithm: name } });
    expect(metrics.has("loss/value")).toBe(needsCritic(learner));
    expect(metrics.has("train/critic_share")).toBe(name === "hybrid");
    expect(metrics.has("train/overlong_mean")).toBe(name === "dapo");
  });

  test.each([
    ["a KL term in the loss", "{kl: {coefficient: 0.1, estimator: k3}}", "loss/kl"],
    [
      "KL in the reward, adaptive",
      "{kl: {coefficient: 0.1, place: reward, estimator: k1, control: adaptive}}",
      "loss/kl",
    ],
    ["KL in the reward, with PPO", "{algorithm: ppo, kl: {coefficient: 0.1, place: reward, estimator: k1}}", "loss/kl"],
    ["a KL term in PPO's loss", "{algorithm: ppo, kl: {coefficient: 0.1, estimator: k3}}", "loss/kl"],
    ["gradients measured by bucket", "{gradientAnalysis: {everyUpdates: 1}}", "gradient/task_1"],
    ["gradients of groups of their own", "{gradientAnalysis: {everyUpdates: 1, groups: 7}}", "gradient/task_6"],
    ["a critic on the policy's own network", "{algorithm: ppo, critic: {backbone: shared}}", "loss/value"],
    [
      "an observation loss beside a shared critic",
      "{algorithm: ppo, critic: {backbone: shared}, observationLoss: 0.1}",
      "loss/observation",
    ],
    ["importance weights", "{importance: {level: token, cap: 2}}", "train/importance_mean"],
    ["every factor on advantages", "{advantage: {softReweight: true, lengthWeighting: true}}", "loss/policy"],
    [
      "rewards normalised over an env tag",
      "{rewardNormalization: {grouping: inductive, method: asym_clip}}",
      "loss/policy",
    ],
    [
      "a filter by entropy, scaled",
      "{filter: {strategy: top_k, value: 0.5, metric: entropy}, advantage: {filterLossScaling: sqrt}}",
      "loss/policy",
    ],
  ])("with %s move the policy", async (_, yaml, metric) => {
    const { metrics, digests } = await train(yaml);
    expect(metrics.has(metric)).toBe(true);
    expect(metrics.get("total/skipped_updates")).toBe(0);
    expect(new Set(digests).size).toBeGreaterThanOrEqual(3);
  });

  test("without any advantage move it by the entropy bonus alone", async () => {
    const { metrics, digests } = await train("{advantage: {zero: true}, entropyCoefficient: 0.01}");
    expect(metrics.get("train/advantage_abs")).toBe(0);
    expect(new Set(digests).size).toBeGreaterThanOrEqual(3);
  }, 300_000);
});

test.each([
  ["a critic of its own", "{algorithm: ppo, updates: 3}"],
  ["a critic on the policy's network", "{algorithm: ppo, updates: 3, critic: {backbone: shared}}"],
  ["groups that are replaced", "{algorithm: dapo, updates: 3}"],
])("a run with %s goes on where it was stopped", async (_, yaml) => {
  const [whole, resumed] = [await train(yaml), await train(yaml, "update 1/3")];
  expect(whole.digests.length).toBeGreaterThanOrEqual(4);
  expect(resumed.digests).toEqual(whole.digests);
});
