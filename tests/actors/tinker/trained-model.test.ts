/** What the policy in training sends, and how it reads the answer, against a server whose policy is a table of bigrams. */
import { afterAll, expect, test } from "bun:test";
import { z } from "zod";
import { realClock } from "../../../actors/clock.ts";
import { ModelServer } from "../../../actors/tinker/server.ts";
import { TrainedModel } from "../../../actors/tinker/trained-model.ts";
import type { Sequence } from "../../../model/learn/batch.ts";
import { imitation, policyObjective } from "../../../model/learn/objective.ts";
import { farthest } from "../../model/farthest.ts";
import { BigramServer } from "./bigram-server.ts";

const Created = z.object({ model_id: z.string() });
const V = 5;
const bigrams = new BigramServer(V);
afterAll(() => bigrams.stop());

const server = new ModelServer({
  url: bigrams.url,
  root: "/api/v1/",
  deadlineMs: 10_000,
  fetch,
  clock: realClock,
  warn() {},
});

async function newModel() {
  const id = `model_${bigrams.models.size}`;
  const { model_id } = await server.result("create_model", { name: id }, Created, true);
  const { table } = bigrams.models.get(model_id)!;
  for (const i of table.keys()) table[i] = Math.sin(i);
  return { model: new TrainedModel(server, model_id), at: bigrams.models.get(model_id)! };
}

/** Sequences of 2, 1 and 3 written tokens; the last has them in two replies. */
const sequences: Sequence[] = [
  { tokens: Int32Array.of(0, 1, 2, 3), written: Int32Array.of(2, 3) },
  { tokens: Int32Array.of(4, 3), written: Int32Array.of(1) },
  { tokens: Int32Array.of(1, 2, 0, 4, 2, 1), written: Int32Array.of(1, 3, 4) },
];
const logProb = (table: Float64Array, from: number, to: number) => {
  const row = table.subarray(from * V, (from + 1) * V);
  return row[to]! - Math.log(row.reduce((sum, logit) => sum + Math.exp(logit), 0));
};
const wanted = (table: Float64Array) =>
  sequences.map(({ tokens, written }) =>
    Float32Array.from(written, (at) => logProb(table, tokens[at - 1]!, tokens[at]!)),
  );

test("log-probabilities are those of the written tokens, in the order of the sequences", async () => {
  const { model, at } = await newModel();
  const { logProbs, entropies } = await model.score(sequences);
  for (const [i, row] of wanted(at.table).entries()) {
    expect(farthest(logProbs[i]!, row)).toBeLessThan(1e-6);
    const negated = row.map((value) => -value);
    expect(farthest(entropies[i]!, negated)).toBeLessThan(1e-6);
  }
});

test("an answer with too few sequences or log-probabilities is an error, and no NaN", async () => {
  const answering = (...rows: number[][]) => {
    const loss_fn_outputs = rows.map((data) => ({ logprobs: { data } }));
    return new TrainedModel({ result: async () => ({ loss_fn_outputs }) } as unknown as ModelServer, "model");
  };
  const whole = [-1, -1, -1, -1];
  await expect(answering(whole, whole).score(sequences)).rejects.toThrow("the server scored 2 of 3 sequences");
  // The longest sequence is asked first.
  await expect(answering([-1, -1], whole, whole).score(sequences)).rejects.toThrow(
    "the server returned 2 log-probabilities of sequence 1, and the last written token is number 3",
  );
});

test("the server's mean gradient is that of sum(weights * loss), whatever the lengths", async () => {
  const { model, at } = await newModel();
  const old = wanted(at.table);
  // The third token of the last sequence is far above its bound, so it has no gradient.
  old[2]![1]! -= 1;
  const weights = [[0.1, 0.3], [0.25], [0.05, 0.2, 0.1]].map((row) => Float32Array.from(row));
  const advantages = [[1, 2], [-1], [0.5, 3, -2]].map((row) => Float32Array.from(row));
  const objective = policyObjective({
    rule: { kind: "ppo", clipLow: 0.2, clipHigh: 0.2, dualClip: null },
    entropyCoefficient: 0,
    kl: null,
  });
  const inputs = { weights, advantages, oldLogProbs: old, shares: weights };
  const metrics = await model.accumulate(objective, sequences, inputs);
  const gradient = new Float64Array(V * V);
  for (const [i, { tokens, written }] of sequences.entries()) {
    for (const [w, position] of written.entries()) {
      if (i === 2 && w === 1) continue;
      const [from, to] = [tokens[position - 1]!, tokens[position]!];
      for (let v = 0; v < V; v++) {
        const slope = Number(v === to) - Math.exp(logProb(at.table, from, v));
        gradient[from * V + v]! -= weights[i]![w]! * advantages[i]![w]! * slope;
      }
    }
  }
  expect(at.sequences).toBe(3);
  const mean = at.gradient.map((sum) => sum / at.sequences);
  expect(farthest(mean, gradient)).toBeLessThan(1e-6);
  // -(.1 + .6 - .25 + .025 + .2 * 3 * 1.2 - .2): ratios are 1, but for the clipped one.
  expect(metrics["policyLoss"]).toBeCloseTo(-0.995, 5);
  expect(metrics["clipHigh"]).toBeCloseTo(0.2, 5);
  expect(metrics["clipLow"]).toBe(0);
  expect(metrics["logProbGap"]).toBeCloseTo(0.2, 5);
  expect(metrics["ratioKl"]).toBeCloseTo(-0.2, 5);
});

test("imitation raises the demonstrated tokens; a reset leaves the policy and clears the moments", async () => {
  const { model, at } = await newModel();
  const optimizer = { learningRate: 0.1, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, clipNorm: 1 };
  const weights = sequences.map(({ written }) => new Float32Array(written.length).fill(1 / 6));
  const losses: number[] = [];
  for (let step = 0; step < 5; step++) {
    losses.push((await model.accumulate(imitation, sequences, { weights }))["loss"]!);
    expect(await model.step(optimizer)).toMatchObject({ applied: true });
  }
  expect(losses[0]).toBeCloseTo(
    -wanted(Float64Array.from({ length: V * V }, (_, i) => Math.sin(i)))
      .flatMap((row) => [...row])
      .reduce((a, b) => a + b) / 6,
    5,
  );
  expect(losses[4]!).toBeLessThan(0.8 * losses[0]!);
  const before = at.table.slice();
  expect(farthest(at.moment, new Float64Array(V * V))).toBeGreaterThan(0.01);
  await model.resetOptimizer();
  expect(at.table).toEqual(before);
  expect([at.moment, at.variance]).toEqual([new Float64Array(V * V), new Float64Array(V * V)]);
});
