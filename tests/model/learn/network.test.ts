/** Scores and gradients of written tokens: against float64, against the sampler's record, and for any batch. */
import { describe, expect, test } from "bun:test";
import * as tf from "@tensorflow/tfjs-core";
import { Decoder } from "../../../model/decode/decoder.ts";
import { Generator } from "../../../model/decode/generate.ts";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import type { Engine } from "../../../model/engine/engine.ts";
import type { Sequence } from "../../../model/learn/batch.ts";
import { Network } from "../../../model/learn/network.ts";
import { imitation, policyObjective, valueObjective } from "../../../model/learn/objective.ts";
import { Optimizer } from "../../../model/learn/optimizer.ts";
import { ModelConfig } from "../../../model/policy/model-config.ts";
import { initialize, layParameters } from "../../../model/policy/parameters.ts";
import { hash64, sequence } from "../../../model/rng.ts";
import { farthest } from "../farthest.ts";
import { referenceLogProbs, referenceOutputs, tinyModel, tinyParameters } from "../policy/tiny-policy.ts";

const engine = compiledEngine({ threads: 1 });
const limits = { tokensMax: 32, lengthMultiple: 4, widthMultiple: 4 };

/** Sequences of 4 to 15 tokens, about half of them written. @param alike  every second sequence begins like the sequence before it */
function draw(count: number, vocabulary: number, alike = false): Sequence[] {
  const uniform = sequence(11, "sequences");
  let before = new Int32Array(0);
  return Array.from({ length: count }, (_, i) => {
    const length = 4 + Math.floor(uniform() * 12);
    const tokens = Int32Array.from({ length }, () => Math.floor(uniform() * vocabulary));
    if (alike && i % 2 === 1) tokens.set(before.subarray(0, Math.min(9, length)));
    before = tokens;
    const written = Int32Array.from({ length: length - 1 }, (_, i) => i + 1).filter(() => uniform() < 0.5);
    return { tokens, written: written.length > 0 ? written : Int32Array.of(1) };
  });
}

const models: [string, ModelConfig][] = [
  ["heads of 4", tinyModel],
  ["heads of 16", { ...tinyModel, headWidth: 16 }],
  ["an output layer of its own", { ...tinyModel, tiedEmbedding: false }],
];
describe.each(models)("a policy with %s", (_, model) => {
  const parameters = tinyParameters(model);
  const sequences = draw(7, model.vocabulary, true);

  test.each([1, 0.5])("gives the log-probability and entropy of every written token at temperature %p", async (t) => {
    const network = await Network.create(engine, model, parameters);
    const { logProbs, entropies } = await network.score(sequences, limits, t);
    for (const [i, { tokens, written }] of sequences.entries()) {
      const all = referenceLogProbs(model, parameters.flat, tokens, t);
      const expected = Array.from(written, (at) => all[at - 1]![tokens[at]!]!);
      const spread = Array.from(written, (at) => -all[at - 1]!.reduce((sum, one) => sum + Math.exp(one) * one, 0));
      expect(farthest(logProbs[i]!, expected)).toBeLessThan(1e-5);
      expect(farthest(entropies[i]!, spread)).toBeLessThan(1e-5);
    }
  });

  test("computes the same in three lanes, and equal bytes each time", async () => {
    const weights = sequences.map(({ written }) => new Float32Array(written.length).fill(0.01));
    const plain = { learningRate: 1e6, beta1: 0, beta2: 0, epsilon: 1e6, weightDecay: 0, clipNorm: 1e9 };
    const stepped = async (threads: number) => {
      const copy = layParameters(model, parameters.flat.slice());
      const network = await Network.create(compiledEngine({ threads }), model, copy);
      for (let i = 0; i < 2; i++) {
        await network.accumulate(imitation, sequences, { weights }, limits);
        await network.step(plain);
      }
      return { flat: copy.flat, scores: (await network.score(sequences, limits)).logProbs };
    };
    const [one, three, again] = [await stepped(1), await stepped(3), await stepped(3)];
    expect(farthest(three.flat, one.flat)).toBeLessThan(1e-6);
    const [whole, split] = [one, three].map(({ scores }) => scores.flatMap((row) => [...row]));
    expect(farthest(split!, whole!)).toBeLessThan(1e-5);
    expect(again).toEqual(three);
  });

  test("makes no array and no tensor in an update of known shapes", async () => {
    let arrays = 0;
    const counting: Engine = {
      ...engine,
      array(...args) {
        arrays++;
        return engine.array(...args);
      },
    };
    const network = await Network.create(counting, model, layParameters(model, parameters.flat.slice()));
    const weights = sequences.map(({ written }) => new Float32Array(written.length).fill(0.01));
    const plain = { learningRate: 1e-3, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, clipNorm: 1 };
    const after: number[][] = [];
    for (let update = 0; update < 3; update++) {
      await network.score(sequences, limits);
      await network.accumulate(imitation, sequences, { weights }, limits);
      await network.step(plain);
      after.push([arrays, tf.engine().state.numTensors]);
    }
    expect(after[0]![0]).toBeGreaterThan(0);
    expect(after[2]).toEqual(after[0]!);
  });

  test("has the gradient of its definition, in any direction", async () => {
    const copy = layParameters(model, parameters.flat.slice());
    const network = await Network.create(engine, model, copy);
    const weights = sequences.map(({ written }) => new Float32Array(written.length).fill(0.01));
    await network.accumulate(imitation, sequences, { weights }, limits);
    // A plain gradient step of size 1: AdamW's step is lost in an epsilon this large.
    const plain = { learningRate: 1e6, beta1: 0, beta2: 0, epsilon: 1e6, weightDecay: 0, clipNorm: 1e9 };
    await network.step(plain);
    const loss = (flat: Float64Array) =>
      sequences.reduce((sum, { tokens, written }) => {
        const all = referenceLogProbs(model, flat, tokens);
        return sum - 0.01 * written.reduce((total, at) => total + all[at - 1]![tokens[at]!]!, 0);
      }, 0);
    const uniform = sequence(5, "directions");
    for (let i = 0; i < 4; i++) {
      const direction = Float64Array.from(parameters.flat, () => uniform() - 0.5);
      const moved = (by: number) => direction.map((d, at) => parameters.flat[at]! + by * d);
      const slope = (loss(moved(1e-5)) - loss(moved(-1e-5))) / 2e-5;
      const ours = direction.reduce((sum, d, at) => sum + d * (parameters.flat[at]! - copy.flat[at]!), 0);
      expect(Math.abs(ours - slope)).toBeLessThan(2e-4 * Math.max(1, Math.abs(slope)));
    }
  });
});

test("a critic gives a value of the state before every written token", async () => {
  const model: ModelConfig = { ...tinyModel, head: "value" };
  const parameters = tinyParameters(model);
  const sequences = draw(5, model.vocabulary);
  const network = await Network.create(engine, model, parameters);
  const values = await network.values(sequences, limits);
  for (const [i, { tokens, written }] of sequences.entries()) {
    const all = referenceOutputs(model, parameters.flat, tokens);
    const expected = Array.from(written, (at) => all[at - 1]![0]!);
    expect(farthest(values[i]!, expected)).toBeLessThan(1e-4);
  }
});

describe.each([true, false])("a network with both heads, embedding shared with the output: %p,", (tiedEmbedding) => {
  const policy: ModelConfig = { ...tinyModel, tiedEmbedding };
  const critic: ModelConfig = { ...policy, head: "value" };
  const both: ModelConfig = { ...policy, head: "both" };
  const parameters = tinyParameters(both);
  const sequences = draw(5, policy.vocabulary);
  /** The same weights as another network has them, by name. */
  const as = (model: ModelConfig) => {
    const part = layParameters(model);
    for (const [name, { values }] of part.views) values.set(parameters.views.get(name)!.values);
    return part;
  };

  test("begins in memory as the policy does", () => {
    const own = as(policy);
    expect([...parameters.flat.subarray(0, own.flat.length)]).toEqual([...own.flat]);
  });

  test("equals a policy and a critic of the same weights", async () => {
    const network = await Network.create(engine, both, parameters);
    const apart = [
      await Network.create(engine, policy, as(policy)),
      await Network.create(engine, critic, as(critic)),
    ] as const;
    expect(await network.score(sequences, limits, 0.7)).toEqual(await apart[0].score(sequences, limits, 0.7));
    expect(await network.values(sequences, limits)).toEqual(await apart[1].values(sequences, limits));
  });

  test("adds up the gradients of both heads, and an objective changes only its own head's", async () => {
    const weights = sequences.map(({ written }) => new Float32Array(written.length).fill(0.1));
    const zeros = sequences.map(({ written }) => new Float32Array(written.length));
    const inputs = { weights, shares: weights, oldValues: zeros, returns: weights };
    // A plain gradient step of size 1: AdamW's step is lost in an epsilon this large.
    const plain = { learningRate: 1e6, beta1: 0, beta2: 0, epsilon: 1e6, weightDecay: 0, clipNorm: 1e9 };
    const moved = async (model: ModelConfig, heads: readonly ("tokens" | "value")[]) => {
      const own = layParameters(model, as(model).flat);
      const network = await Network.create(engine, model, own);
      if (heads.includes("tokens")) await network.accumulate(imitation, sequences, inputs, limits);
      if (heads.includes("value")) await network.accumulate(valueObjective(10), sequences, inputs, limits);
      await network.step(plain);
      const before = as(model).views;
      return (name: string) => own.views.get(name)?.values.map((value, i) => value - before.get(name)!.values[i]!);
    };
    const [together, tokens, value] = [
      await moved(both, ["tokens", "value"]),
      await moved(policy, ["tokens"]),
      await moved(critic, ["value"]),
    ];
    for (const [name, { values }] of parameters.views) {
      const expected = values.map((_, i) => (tokens(name)?.[i] ?? 0) + (value(name)?.[i] ?? 0));
      // Read off weights of up to 80, whose last digit is 8e-6.
      expect(farthest(together(name)!, expected)).toBeLessThan(5e-5);
      expect(expected.some((one) => Math.abs(one) > 1e-3)).toBe(true);
    }
  });
});

test("Muon moves each expert of a mixture as a matrix of its own", async () => {
  const model: ModelConfig = { ...tinyModel, layers: 1, experts: { count: 2, used: 1, normalized: true } };
  const { width, hidden } = model;
  const sequences = draw(7, model.vocabulary);
  const weights = sequences.map(({ written }) => new Float32Array(written.length).fill(0.01));
  const settings = { learningRate: 0.01, beta1: 0, beta2: 0, epsilon: 1e-8, weightDecay: 0, clipNorm: 1e9 };
  const moved = async (optimizer: "adamw" | "muon", given: typeof settings) => {
    const parameters = tinyParameters(model, 1, 5);
    const network = await Network.create(engine, model, parameters, { optimizer });
    await network.accumulate(imitation, sequences, { weights }, limits);
    await network.step(given);
    const before = tinyParameters(model, 1, 5).views;
    return (name: string) => parameters.views.get(name)!.values.map((one, i) => one - before.get(name)!.values[i]!);
  };
  // A plain gradient step of size 1: AdamW's step is lost in an epsilon this large.
  const downhill = await moved("adamw", { ...settings, learningRate: 1e6, epsilon: 1e6 });
  const byMuon = await moved("muon", settings);
  for (const [part, shape] of Object.entries({ gate: [hidden, width], up: [hidden, width], down: [width, hidden] })) {
    const name = `model.layers.0.mlp.experts.${part}_proj.weight`;
    for (const expert of [0, 1]) {
      const own = (values: Float32Array) => values.slice(expert * width * hidden, (expert + 1) * width * hidden);
      const alone = new Float32Array(width * hidden);
      const gradient = own(downhill(name)).map((value) => -value);
      const matrix = { start: 0, shape: shape as [number, number] };
      await (await Optimizer.create(engine, alone, [gradient], undefined, [matrix])).step(settings);
      // Of moves of up to 0.006.
      expect(farthest(own(byMuon(name)), alone)).toBeLessThan(2e-5);
      expect(farthest(alone, new Float32Array(alone.length))).toBeGreaterThan(1e-3);
    }
  }
});

test("an objective for the other head is refused", async () => {
  const policy = await Network.create(engine, tinyModel, tinyParameters());
  const sequences = draw(1, 12);
  await expect(policy.accumulate(valueObjective(0.5), sequences, {}, limits)).rejects.toThrow(
    'head is "tokens"; this call needs "value" or "both"',
  );
  const model: ModelConfig = { ...tinyModel, head: "value" };
  const critic = await Network.create(engine, model, tinyParameters(model));
  const rule = { kind: "ppo", clipLow: 0.2, clipHigh: 0.2, dualClip: null } as const;
  const objective = policyObjective({ rule, entropyCoefficient: 0, kl: null });
  await expect(critic.accumulate(objective, sequences, {}, limits)).rejects.toThrow(
    'head is "value"; this call needs "tokens" or "both"',
  );
  await expect(critic.score(sequences, limits)).rejects.toThrow('head is "value"; this call needs "tokens" or "both"');
});

describe("the gap between sampler and learner", () => {
  const model = ModelConfig.parse({
    vocabulary: 448,
    width: 64,
    layers: 2,
    heads: 4,
    kvHeads: 2,
    headWidth: 16,
    hidden: 128,
  });
  const parameters = layParameters(model);
  initialize(parameters, sequence(1, "policy"));
  for (const [name, { values }] of parameters.views) {
    if (!name.endsWith("norm.weight")) for (let i = 0; i < values.length; i++) values[i]! *= 5;
  }

  test.each([1, 0.7])(
    "is below 1e-4 on average at temperature %p, over turns of many episodes",
    async (temperature) => {
      const decoder = new Decoder(engine, model, parameters.flat, { slots: 16, capacity: 96 });
      const generator = new Generator(decoder, model.vocabulary, 16);
      const uniform = sequence(2, "prompts");
      const play = async (name: string) => {
        generator.open(name);
        const [tokens, written, logProbs]: number[][] = [[], [], []];
        for (let turn = 0; turn < 3; turn++) {
          const prompt = Array.from({ length: 3 + Math.floor(uniform() * 9) }, () => Math.floor(uniform() * 448));
          const reply = await generator.reply(name, {
            prompt,
            coins: { seed: 1, episode: hash64(name) },
            stops: [2],
            tokensMax: 16,
            settings: { temperature, topP: 1, topK: 0 },
          });
          tokens!.push(...prompt);
          for (const [i, token] of reply.tokens.entries()) {
            written!.push(tokens!.length);
            tokens!.push(token);
            logProbs!.push(reply.logProbs[i]!);
          }
        }
        generator.close(name);
        return { tokens: Int32Array.from(tokens!), written: Int32Array.from(written!), recorded: logProbs! };
      };
      const played = await Promise.all(Array.from({ length: 16 }, (_, i) => play(`e${i}`)));
      const network = await Network.create(engine, model, parameters);
      const roomy = { tokensMax: 512, lengthMultiple: 16, widthMultiple: 16 };
      const { logProbs } = await network.score(played, roomy, temperature);
      const gaps = played.flatMap(({ recorded }, i) => recorded.map((one, at) => Math.abs(one - logProbs[i]![at]!)));
      expect(gaps.length).toBeGreaterThan(400);
      expect(gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length).toBeLessThan(1e-4);
      expect(Math.max(...gaps)).toBeLessThan(1e-3);
    },
  );
});
