/** examples/starpo.ts is what it says: the algorithm of a real run, on one page, and it learns. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { starpo } from "../../examples/starpo.ts";
import { compiledEngine } from "../../model/engine/compiled.ts";
import { Network } from "../../model/learn/network.ts";
import { update } from "../../model/learn/update/update.ts";
import { layParameters } from "../../model/policy/parameters.ts";
import { sequence } from "../../model/rng.ts";
import { settings } from "../model/learn/update/stage.ts";

/** Milliseconds. A quiet machine takes a tenth; beside other test files it may take all. */
setDefaultTimeout(400_000);

const page = join(import.meta.dir, "../../examples/starpo.ts");

test("fits on a page of 250 lines", async () => {
  expect((await Bun.file(page).text()).trimEnd().split("\n").length).toBeLessThanOrEqual(250);
});

test("refuses a seed that is no number", () => {
  const { exitCode, stderr } = Bun.spawnSync([process.execPath, page, "Bandit", "two"], { timeout: 60_000 });
  expect(exitCode).toBe(1);
  expect(stderr.toString()).toContain("seed must be an integer in [0, 4294967295], got NaN");
});

test("learns Bandit by reinforcement alone, after replies that pull arms by chance", async () => {
  const { train } = await starpo("Bandit", 1);
  const { random, start, end } = await train(() => {});
  expect(random).toBeWithin(0.4, 0.6);
  expect(start).toBeWithin(0.3, 0.7);
  expect(end).toBeGreaterThan(0.95);
});

test("makes the update that a real run makes of the same episodes, to the bit", async () => {
  const { network, playGroups, update: learn, imitate } = await starpo("SimpleSokoban", 3);
  // Some skill first, so that replies have the form.
  await imitate(8, () => {});
  // So little skill wins nothing, so chance gives the rewards: the filter and the advantages need groups that differ within.
  const uniform = sequence(3, "rewards");
  const episodes = (await playGroups(0)).map(({ trajectory, ...episode }) => {
    const turns = trajectory.turns.map((turn) => ({ ...turn, reward: uniform(), penalty: -uniform() }));
    return { ...episode, trajectory: { ...trajectory, turns } };
  });
  expect(episodes.some(({ trajectory }) => trajectory.turns.length > 1)).toBe(true);
  const engine = compiledEngine({ threads: 2 });
  const { config, parameters, optimizerState } = network;
  const before = parameters.flat.slice();
  const state = {
    ...optimizerState,
    moment: optimizerState.moment.slice(),
    variance: optimizerState.variance.slice(),
  };
  const copy = layParameters(config, before.slice());
  const policy = await Network.create(engine, config, copy, { state, optimizer: "muon" });
  const played = episodes.map(({ trajectory, group }) => {
    return { trajectory, group, tag: "SimpleSokoban", anchors: [], success: true };
  });
  const result = await update({ policy, critic: null, reference: null }, played, {
    ...settings,
    filter: { strategy: "top_ratio", value: 0.5, order: "largest" },
    estimator: { kind: "dr-grpo" },
    policy: { ...settings.policy, entropyCoefficient: 3e-3 },
    minibatch: { parts: 1 },
    limits: { tokensMax: 512, lengthMultiple: 16, widthMultiple: 16 },
    optimizer: { learningRate: 3e-4, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, clipNorm: 1 },
  });
  expect(result.skipped).toBeNull();
  await learn(episodes, 3e-4);
  expect(parameters.flat).toEqual(policy.parameters.flat);
  expect(parameters.flat).not.toEqual(before);
});
