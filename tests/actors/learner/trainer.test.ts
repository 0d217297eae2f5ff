/** The reference of KL terms when adapters are trained. */
import { expect, test } from "bun:test";
import { trainerMethods } from "../../../actors/learner/trainer.ts";
import { LORA_TARGETS } from "../../../model/policy/lora.ts";
import { initialize, layParameters } from "../../../model/policy/parameters.ts";
import { sequence } from "../../../model/rng.ts";
import { model, play, rewards, settings, start } from "../../model/learn/update/stage.ts";

test("the model that adapters belong to is their reference: the KL is 0 before the first step, and positive after it", async () => {
  const adapted = { ...model, lora: { rank: 2, alpha: 4, targets: [...LORA_TARGETS] } };
  const adapters = layParameters(adapted);
  initialize(adapters, sequence(1, "lora"));
  const { flat } = adapters;
  const zeros = () => new Float32Array(flat.length);
  const trainer = trainerMethods();
  await trainer.start({
    engine: { name: "compiled", threads: 1 },
    optimizer: "adamw",
    model: adapted,
    policy: { parameters: flat, moment: zeros(), variance: zeros(), step: 0 },
    frozen: start.slice(),
    critic: null,
  });
  trainer.keepReference(null);
  const kl = { estimator: "k3", coefficient: 0.1 } as const;
  const update = () => trainer.update(play(start, rewards, 3), { ...settings, policy: { ...settings.policy, kl } });
  expect((await update()).metrics["kl"]).toBeCloseTo(0, 9);
  expect((await update()).metrics["kl"]).toBeGreaterThan(1e-6);
});
