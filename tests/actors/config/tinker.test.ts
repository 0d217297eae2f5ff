/** Engine tinker: the settings that its name sets, and the refused settings, which a training server cannot compute. */
import { expect, test } from "bun:test";
import { composeRunConfig } from "../../../actors/config/compose.ts";
import type { Tree } from "../../../actors/config/layers.ts";

const compose = (...layers: readonly Tree[]) =>
  composeRunConfig(layers.map((values, i) => ({ source: `layer ${i}`, values })));
const faults = (...layers: readonly Tree[]) => {
  try {
    compose(...layers);
    return "none";
  } catch (error) {
    return (error as Error).message;
  }
};

const engine = { name: "tinker", url: "http://127.0.0.1:8801" };
const small: Tree = { engine, model: { path: "models/small" }, warmStart: { enabled: false } };

test("the engine's name sets adapters and the server's loss; layers above it win", () => {
  const { model, learner } = compose({ learner: { clipHigh: 0.3, entropyCoefficient: 0.01 } }, small);
  expect([model.lora.rank, learner.clipHigh, learner.dualClip, learner.entropyCoefficient]).toEqual([32, 0.2, null, 0]);
  expect(compose(small, { model: { lora: { rank: 8 } } }).model.lora.rank).toBe(8);
});

test("a preset may leave the model to its user", () => {
  expect(compose(small, { model: { path: null, pretrainedOnly: true } }).engine.name).toBe("tinker");
});

test("a warm start of the server's model is allowed", () => {
  expect(compose(small, { warmStart: { enabled: true } }).warmStart.enabled).toBe(true);
});

test.each([
  [
    { engine: { name: "tinker" } },
    "engine.url: engine tinker needs the address of its server; set engine.url, such as http://127.0.0.1:8801",
  ],
  [{ model: { path: null } }, "model.path: engine tinker trains the server's model"],
  [{ model: { lora: { rank: 0 } } }, "model.lora.rank: engine tinker trains adapters; set a rank above 0"],
  [{ model: { checkpoint: "runs/a/checkpoints/u1" } }, "model.checkpoint: engine tinker cannot start from a policy"],
  [
    { learner: { loss: "gspo" } },
    "learner.loss: the server's losses are cross_entropy, importance_sampling and ppo; set it to ppo",
  ],
  [
    { learner: { clipHigh: 0.28 } },
    "learner.clipLow: the server's ppo clips ratios at .8 and 1.2; set learner.clipLow and learner.clipHigh to .2",
  ],
  [{ learner: { dualClip: 3 } }, "learner.dualClip: the server's ppo has no dual clip; set it to null"],
  [
    { learner: { entropyCoefficient: 0.01 } },
    "learner.entropyCoefficient: the server's losses have no entropy bonus; set it to 0",
  ],
  [
    { health: { ladder: ["raise-entropy"] } },
    "health.ladder: the server's losses have no entropy bonus; leave raise-entropy out",
  ],
  [
    { learner: { entropyTarget: 0.2 } },
    "learner.entropyTarget: the server's losses have no entropy bonus; leave it out",
  ],
  [
    { learner: { algorithm: "kl-cov" } },
    "learner.covariance.treatment: the server's losses have no term for the log-ratio; set it to none or clip",
  ],
  [{ health: { ladder: ["kl-cov"] } }, "learner.covariance.treatment: the server's losses have no term"],
  [{ health: { ladder: ["raise-kl"] } }, "learner.kl.place: the server's losses have no KL term"],
  [
    { learner: { observationLoss: 0.1 } },
    "learner.observationLoss: the server's losses have no term for the env's tokens",
  ],
  [
    { learner: { kl: { coefficient: 0.1 } } },
    "learner.kl.place: the server's losses have no KL term; set learner.kl.place to reward",
  ],
  [{ learner: { algorithm: "ppo" } }, "learner.estimator: the server trains no critic; take an estimator without one"],
  [{ learner: { optimizer: "muon" } }, "learner.optimizer: the server's optimizer is AdamW; set it to adamw"],
  [
    { learner: { gradientAnalysis: { everyUpdates: 5 } } },
    "everyUpdates: the server returns no gradients; set it to 0",
  ],
  [{ rollout: { temperature: 0.7 } }, "rollout.temperature: the server computes log-probabilities at temperature 1"],
  [
    { learner: { gradClip: 2 } },
    "learner.gradClip is not read by engine tinker, whose server has no such setting; leave it out",
  ],
  [
    { learner: { microTokensMax: 256 } },
    "learner.microTokensMax is not read by engine tinker, whose server has no such setting; leave it out",
  ],
  [
    { model: { lora: { alpha: 16 } } },
    "model.lora.alpha is not read by engine tinker, whose server has no such setting; leave it out",
  ],
] satisfies [Tree, string][])("%j is refused", (changed, text) => {
  const base = "engine" in changed ? { ...small, engine: {} } : small;
  expect(faults(base, changed)).toContain(text);
});

test("the server's keys are refused with another engine", () => {
  expect(faults({ engine: { url: "http://127.0.0.1:8801" } })).toContain(
    "engine.url is not read unless a server trains (engine tinker) or samples",
  );
  expect(faults({ ...small, engine: { name: "tinker", url: "ftp://127.0.0.1" } })).toContain("engine.url");
});
