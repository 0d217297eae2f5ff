/** Compiled losses equal those op by op: values, metrics and gradients. */
import { expect, test } from "bun:test";
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { eagerEngine } from "../../../model/engine/eager.ts";
import { type Engine, f32, type TensorFunction } from "../../../model/engine/engine.ts";
import { klEstimate, type PolicyRule, policyLoss, valueLoss } from "../../../model/learn/loss.ts";

const [B, T] = [3, 4];
const NAMES = [
  "logProbs",
  "oldLogProbs",
  "advantages",
  "weights",
  "shares",
  "sequenceShares",
  "reference",
  "entropies",
  "values",
  "oldValues",
  "returns",
];
const specs = Object.fromEntries(NAMES.map((name) => [name, f32(B, T)]));
/** Numbers in [-1, 1) from a linear congruential generator. */
const inputs = (() => {
  let state = 7;
  const next = () => {
    state = (state * 1103515245 + 12345) % 2 ** 31;
    return state / 2 ** 30 - 1;
  };
  return Object.fromEntries(NAMES.map((name) => [name, Float32Array.from({ length: B * T }, next)]));
})();

function everything(rule: PolicyRule): TensorFunction {
  return (given) => {
    const x = given as Record<string, tf.Tensor>;
    const policyTensors = (logProbs: tf.Tensor) => ({
      logProbs,
      oldLogProbs: x["oldLogProbs"]!,
      advantages: x["advantages"]!,
      weights: x["weights"]!,
      shares: x["shares"]!,
      sequenceShares: x["sequenceShares"]!,
    });
    const whole = (logProbs: tf.Tensor) => {
      const terms = [
        tf.mul(klEstimate(logProbs, x["reference"]!, "k3+"), x["shares"]!),
        tf.mul(klEstimate(logProbs, x["oldLogProbs"]!, "abs"), x["weights"]!),
      ];
      return terms.reduce(
        (sum, term) => tf.add(sum, tf.sum(term)) as tf.Scalar,
        policyLoss(policyTensors(logProbs), rule).loss,
      );
    };
    const valueTensors = (values: tf.Tensor) => ({
      values,
      oldValues: x["oldValues"]!,
      returns: x["returns"]!,
      weights: x["weights"]!,
      shares: x["shares"]!,
    });
    const { value, grad } = tf.valueAndGrad(whole)(x["logProbs"]!);
    const critic = tf.valueAndGrad((values: tf.Tensor) => valueLoss(valueTensors(values), 0.5).loss)(x["values"]!);
    const { loss: _, ...metrics } = policyLoss(policyTensors(x["logProbs"]!), rule);
    const { clipShare } = valueLoss(valueTensors(x["values"]!), 0.5);
    return { value, grad, criticValue: critic.value, criticGrad: critic.grad, clipShare, ...metrics };
  };
}

async function compute(engine: Engine, build: TensorFunction): Promise<Record<string, number[]>> {
  const compiled = await engine.compile("losses", build, specs);
  const given = Object.fromEntries(
    Object.entries(specs).map(([name, spec]) => [name, engine.array(spec, inputs[name]!.slice())]),
  );
  const results = Object.fromEntries(
    Object.entries(compiled.outputs).map(([name, spec]) => [name, engine.array(spec)]),
  );
  await compiled.run(given, results);
  await compiled.dispose();
  return Object.fromEntries(
    Object.entries(results).map(([name, array]) => [name, Array.from(array.read() as Float32Array)]),
  );
}

test.each<PolicyRule>([
  { kind: "ppo", clipLow: 0.2, clipHigh: 0.28, dualClip: 3 },
  { kind: "gspo", clipLow: 0.2, clipHigh: 0.28 },
  { kind: "cispo", clipLow: 0.2, clipHigh: 0.28 },
])("%j is the same on both engines", async (rule) => {
  const eager = await compute(eagerEngine(), everything(rule));
  const compiled = await compute(compiledEngine({ threads: 1 }), everything(rule));
  expect(Object.keys(compiled)).toEqual(Object.keys(eager));
  for (const [name, values] of Object.entries(eager)) {
    const worst = Math.max(...values.map((value, i) => Math.abs(value - compiled[name]![i]!)));
    expect(worst).toBeLessThan(1e-6);
  }
  expect(eager["grad"]!.some((g) => g !== 0)).toBe(true);
});
