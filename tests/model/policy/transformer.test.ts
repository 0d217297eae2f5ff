/**
 * Compares the transformer, its gradients and one AdamW step with Hugging Face's Qwen2 (tests/golden/qwen2.py made the numbers), and the
 * states of picked rows with the same rows among all states.
 */
import { describe, expect, test } from "bun:test";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import { type Engine, f32, i32 } from "../../../model/engine/engine.ts";
import { ModelConfig, parameterShapes } from "../../../model/policy/model-config.ts";
import { layParameters, parameterArrays } from "../../../model/policy/parameters.ts";
import { hiddenStates } from "../../../model/policy/transformer.ts";
import { engines } from "../engine/engines.ts";
import { farthest } from "../farthest.ts";
import { expectGoldenStep } from "../learn/golden-step.ts";
import { goldenModel } from "./golden-model.ts";
import { withGradients } from "./gradient-check.ts";
import { tinyParameters } from "./tiny-policy.ts";

const cases = engines.flatMap(([engineName, engine]) =>
  ["tied", "untied", "wide"].map((variant) => [variant, engineName, engine] as const),
);

describe.each(cases)("Qwen2 %s on the %s engine", (variant, _, engine) => {
  test("gives Hugging Face's logits, log-probabilities, gradients and AdamW step", async () => {
    await expectGoldenStep(engine, await goldenModel(variant));
  });
});

const plain = ModelConfig.parse({
  vocabulary: 24,
  width: 32,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headWidth: 16,
  hidden: 32,
});
const normed = ModelConfig.parse({ ...plain, outputNorms: true, qkNorm: true });
const mixture = ModelConfig.parse({ ...plain, experts: { count: 3, used: 2, normalized: true } });
const models = { plain, normed, mixture };
const [batch, length] = [2, 8];
/** One row is picked twice, and most rows are not picked. */
const picks = [9, 3, 3, 14];

/** States of the picked rows, and gradients of their sum weighted by 1, 2, 3, …; the pick comes behind the last layer or within it. */
async function compute(engine: Engine, config: ModelConfig, within: boolean) {
  const run = await engine.compile(
    "picked states",
    (x: Readonly<Record<string, tf.Tensor>>) => {
      const { value, gradients } = withGradients(
        x,
        [...parameterShapes(config).keys()],
        (named) =>
          within
            ? hiddenStates(config, named, x["tokens"]!, x["picks"]!)
            : tf.gather(hiddenStates(config, named, x["tokens"]!), x["picks"]!),
        (picked) => tf.sum(tf.mul(picked, tf.reshape(tf.range(1, picked.size + 1), picked.shape))) as tf.Scalar,
        "gradient.",
      );
      return { states: value, ...gradients };
    },
    {
      tokens: i32(batch, length),
      picks: i32(picks.length),
      ...Object.fromEntries([...parameterShapes(config)].map(([name, shape]) => [name, f32(...shape)])),
    },
  );
  const gradients = layParameters(config);
  const states = engine.array(f32(picks.length, config.width));
  const tokens = Int32Array.from({ length: batch * length }, (_, i) => (7 * i + 3) % 24);
  await run.run(
    {
      tokens: engine.array(i32(batch, length), tokens),
      picks: engine.array(i32(picks.length), Int32Array.from(picks)),
      ...parameterArrays(engine, tinyParameters(config, 1, 10)),
    },
    { states, ...parameterArrays(engine, gradients, "gradient.") },
  );
  return { states: states.read(), gradients };
}

describe.each(engines)("picked states on the %s engine", (_, engine) => {
  test.each(Object.entries(models))(
    "equal the same rows of all states, with the same gradients: %s",
    async (_, model) => {
      const [within, behind] = [await compute(engine, model, true), await compute(engine, model, false)];
      expect(farthest(within.states, behind.states)).toBeLessThan(1e-5);
      const largest = Math.max(...behind.gradients.flat.map(Math.abs));
      expect(farthest(within.gradients.flat, behind.gradients.flat) / largest).toBeLessThan(1e-5);
    },
  );
});
