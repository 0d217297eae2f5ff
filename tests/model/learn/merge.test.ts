/** Merged sequences give the loss, the metrics and the step of all sequences, for every objective. */
import { describe, expect, test } from "bun:test";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import { microBatches, type Sequence } from "../../../model/learn/batch.ts";
import { computeOnce, mergeEqual } from "../../../model/learn/merge.ts";
import { Network } from "../../../model/learn/network.ts";
import { policyObjective, type TokenInputs, valueObjective } from "../../../model/learn/objective.ts";
import { layParameters } from "../../../model/policy/parameters.ts";
import { farthest } from "../farthest.ts";
import { randomValues } from "../policy/gradient-check.ts";
import { tinyModel, tinyParameters } from "../policy/tiny-policy.ts";

const limits = { tokensMax: 32, lengthMultiple: 4, widthMultiple: 4 };
const settings = { learningRate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-2, weightDecay: 0, clipNorm: 1e9 };
const model = { ...tinyModel, layers: 1, head: "both" } as const;

const distinct: Sequence[] = [
  { tokens: Int32Array.of(1, 2, 3, 4, 5), written: Int32Array.of(3, 4) },
  // Equal tokens, but another written token.
  { tokens: Int32Array.of(1, 2, 3, 4, 5), written: Int32Array.of(2, 4) },
  { tokens: Int32Array.of(1, 2, 3, 4), written: Int32Array.of(2, 3) },
];
const order = [0, 1, 0, 2, 1, 0];
const sequences = order.map((i) => ({ tokens: distinct[i]!.tokens.slice(), written: distinct[i]!.written.slice() }));

/** Equal sequences have equal numbers, and weights of their own. */
const inputs: TokenInputs = Object.fromEntries([
  ...["oldLogProbs", "reference", "advantages", "oldValues", "returns"].map((name) => {
    const kinds = distinct.map((_, kind) => Float32Array.from(randomValues(2, `${name} ${kind}`)));
    return [name, order.map((kind) => kinds[kind]!.slice())] as const;
  }),
  ["sequenceShares", order.map(() => Float32Array.of(0.5, 0.5))],
  ...["weights", "entropyWeights", "klWeights", "covarianceWeights", "observationWeights", "shares"].map((name) => {
    return [name, order.map((_, i) => Float32Array.from(randomValues(2, `${name} of ${i}`), Math.abs))] as const;
  }),
]);

const kl = { estimator: "k3", coefficient: 0.1 } as const;
const rules = [
  { kind: "ppo", clipLow: 0.2, clipHigh: 0.28, dualClip: 3 },
  { kind: "gspo", clipLow: 0.1, clipHigh: 0.1 },
  { kind: "cispo", clipLow: 0.2, clipHigh: 0.2 },
  { kind: "reinforce" },
] as const;

describe("mergeEqual", () => {
  test.each([
    ...rules.map((rule) => {
      const extra = { observes: true, holdsCovariant: true };
      return [rule.kind, policyObjective({ rule, entropyCoefficient: 0.1, kl }, extra)] as const;
    }),
    ["value", valueObjective(0.5)] as const,
  ])("keeps loss, metrics and step of %s", async (_, objective) => {
    const step = async (given: readonly Sequence[], x: TokenInputs) => {
      const parameters = layParameters(model, tinyParameters(model, 3).flat.slice());
      const network = await Network.create(compiledEngine({ threads: 1 }), model, parameters);
      const metrics = await network.accumulate(objective, microBatches(given, limits), x);
      await network.step(settings);
      return { metrics, after: parameters.flat };
    };
    const merged = mergeEqual(sequences, inputs);
    expect(merged.sequences).toEqual(distinct);
    const [all, once] = [await step(sequences, inputs), await step(merged.sequences, merged.inputs)];
    for (const [name, value] of Object.entries(all.metrics))
      expect(Math.abs(once.metrics[name]! - value)).toBeLessThan(1e-6 * Math.max(1, Math.abs(value)));
    expect(farthest(once.after, all.after)).toBeLessThan(1e-6);
    expect(farthest(once.after, tinyParameters(model, 3).flat)).toBeGreaterThan(1e-3);
  });

  test.each(["oldLogProbs", "reference", "advantages", "oldValues", "returns", "sequenceShares"])(
    "keeps equal sequences apart whose %s differ",
    (name) => {
      const rows = inputs[name]!.map((row) => Float32Array.from(row));
      rows[2]![1] = 7;
      expect(mergeEqual(sequences, { ...inputs, [name]: rows }).sequences).toHaveLength(4);
    },
  );

  test("adds up the weights, worked by hand", () => {
    const rows = order.map((_, i) => Float32Array.of(i, 10 * i));
    const { inputs: merged } = mergeEqual(sequences, { weights: rows });
    expect(merged["weights"]).toEqual([Float32Array.of(7, 70), Float32Array.of(5, 50), Float32Array.of(3, 30)]);
  });
});

test("computeOnce computes equal sequences once, and returns the numbers of each sequence", async () => {
  let computed = 0;
  const found = await computeOnce(sequences, limits, async (batches) => {
    const members = batches.flatMap((batch) => batch.members);
    computed = members.length;
    return members.map((_, member) => Float32Array.of(member));
  });
  expect(computed).toBe(3);
  expect(found.map(([kind]) => kind)).toEqual(order);
});
