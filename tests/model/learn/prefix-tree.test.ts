/** Prefix trees hold every token of every sequence behind the tokens before it, and hold a common beginning once. */
import { describe, expect, spyOn, test } from "bun:test";
import fc from "fast-check";
import { compiledEngine } from "../../../model/engine/compiled.ts";
import type { Engine } from "../../../model/engine/engine.ts";
import type { MicroBatch, Sequence } from "../../../model/learn/batch.ts";
import { Network } from "../../../model/learn/network.ts";
import { type Objective, policyObjective, type TokenInputs, valueObjective } from "../../../model/learn/objective.ts";
import { treeBatches } from "../../../model/learn/prefix-tree.ts";
import { ModelConfig } from "../../../model/policy/model-config.ts";
import { layParameters } from "../../../model/policy/parameters.ts";
import { farthest } from "../farthest.ts";
import { randomValues } from "../policy/gradient-check.ts";
import { tinyModel, tinyParameters } from "../policy/tiny-policy.ts";
import { anySequences, expectToRead, sequenceOf } from "./sequences.ts";

const limits = { tokensMax: 512 };
const range = (length: number, from = 0) => Array.from({ length }, (_, i) => from + i);

/** The branches without their padding: shared tokens, tokens of the path. */
function branchesOf({ tree }: MicroBatch): number[][] {
  const table = [...tree!.branches];
  const end = table.findIndex((value, i) => i % 2 === 1 && value === 0);
  return range((end - 1) / 2).map((i) => table.slice(2 * i, 2 * i + 2));
}

/** The picks of a row's written tokens. */
const picksOf = ({ pickOfWritten, width, counts }: MicroBatch, row: number) => [
  ...pickOfWritten.subarray(row * width, row * width + counts[row]!),
];

describe("treeBatches", () => {
  test("share what two sequences begin with, as worked by hand", () => {
    const sequences = [
      sequenceOf([7, 7, 7, 7, 7, 1, 2, 3, 4], [8]),
      // Shares 5 tokens with the first, so one block of 4.
      sequenceOf([7, 7, 7, 7, 7, 0, 5], [5, 6]),
    ];
    const [batch, ...others] = treeBatches(sequences, limits, 1);
    expect(others).toEqual([]);
    // The second comes first in lexicographic order. Its 6 read tokens are padded to 8. 20 tokens of padding are a path of their own.
    expect(branchesOf(batch!)).toEqual([
      [0, 8],
      [4, 8],
      [0, 20],
    ]);
    expect(batch!.tokens).toEqual(Int32Array.from([7, 7, 7, 7, 7, 0, 0, 0, 7, 1, 2, 3, ...range(20).fill(0)]));
    expect(batch!.length).toBe(128);
    const { tokenOfPath, pathOfToken, isPicked } = batch!.tree!;
    expect([...tokenOfPath.subarray(128, 136)]).toEqual([0, 1, 2, 3, 8, 9, 10, 11]);
    expect([...pathOfToken.subarray(0, 13)]).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 132, 133, 134, 135, 256]);
    expect(batch!.members).toEqual([1, 0]);
    expect([...batch!.picks.subarray(0, 4)]).toEqual([4, 5, 11, 0]);
    expect([...batch!.targets.subarray(0, 4)]).toEqual([0, 5, 4, 0]);
    expect([0, 1].map((row) => picksOf(batch!, row))).toEqual([[0, 1], [2]]);
    // Tokens 4, 5 and 11, and token 0 of the padding.
    expect([...isPicked]).toEqual([1, 1, 1, 0, 0, 0, 0, 0]);
  });

  test("hold equal sequences once", () => {
    const one = sequenceOf(range(33), [5, 32]);
    const [batch] = treeBatches([one, one, one], limits, 1);
    expect(branchesOf(batch!)).toEqual([[0, 32]]);
    expect(batch!.tokens).toEqual(Int32Array.from(range(32)));
    for (const row of [0, 1, 2]) expect(picksOf(batch!, row)).toEqual([0, 1]);
    expect(batch!.picks.subarray(0, 3)).toEqual(Int32Array.of(4, 31, 0));
  });

  test("are even, as many as lanes and within the limit", () => {
    const sequences = range(40).map((i) => sequenceOf([i, ...range(40)], [40]));
    const sizes = (tokensMax: number, lanes: number) =>
      treeBatches(sequences, { tokensMax }, lanes).map(({ tokens }) => tokens.length);
    expect(sizes(2048, 1)).toEqual([1600]);
    expect(sizes(2048, 2)).toEqual([800, 800]);
    expect(sizes(512, 1)).toEqual([416, 416, 416, 416]);
    expect(sizes(512, 3)).toEqual([288, 288, 288, 288, 256, 256]);
    expect(sizes(10, 2)).toEqual(range(40).fill(64));
  });

  test("are few for few tokens, and none for none", () => {
    expect(treeBatches([], limits, 2)).toEqual([]);
    expect(treeBatches([sequenceOf(range(10), [9]), sequenceOf(range(10, 1), [9])], limits, 2)).toHaveLength(1);
  });

  /** Tokens that each state of a path has read, checked token by token. */
  function readersOf({ tokens, length, tree }: MicroBatch): Map<number, number[]> {
    const read = new Map<number, number[]>();
    let next = 0;
    let path: number[] = [];
    for (const [row, [shared, end]] of branchesOf({ tree } as MicroBatch).entries()) {
      expect([shared! % 4, end! % 4, shared! <= path.length]).toEqual([0, 0, true]);
      path = [...path.slice(0, shared), ...range(end! - shared!, next)];
      next += end! - shared!;
      const tokenOfPath = tree!.tokenOfPath.subarray(row * length, row * length + end!);
      expect([...tokenOfPath]).toEqual(path);
      for (const [position, place] of path.entries()) {
        read.set(
          place,
          path.slice(0, position + 1).map((at) => tokens[at]!),
        );
        if (position >= shared!) expect(tree!.pathOfToken[place]).toBe(row * length + position);
      }
    }
    expect(next).toBe(tokens.length);
    return read;
  }

  const anyLimits = fc.record({ tokensMax: fc.integer({ min: 1, max: 200 }) });

  test("hold every sequence once and whole, within any limits", () => {
    fc.assert(
      fc.property(anySequences, anyLimits, fc.integer({ min: 1, max: 4 }), (sequences, anyOf, lanes) => {
        const batches = treeBatches(sequences, anyOf, lanes);
        const members = batches.flatMap((batch) => batch.members);
        expect(members.toSorted((a, b) => a - b)).toEqual(sequences.map((_, i) => i));
        for (const batch of batches) {
          expect([batch.tokens.length % 32, batch.length % 128, batch.width % 64]).toEqual([0, 0, 0]);
          const isAlone = new Set(batch.members.map((member) => String(sequences[member]!.tokens))).size === 1;
          expect(isAlone || batch.tokens.length <= anyOf.tokensMax).toBe(true);
          const branches = branchesOf(batch);
          expect(branches.length).toBeLessThan(batch.tree!.branches.length / 2);
          const read = readersOf(batch);
          expectToRead(batch, sequences, (state) => read.get(state)!);
        }
      }),
    );
  });

  test("hold each distinct block of 4 tokens once, behind equal tokens", () => {
    const distinct = (sequences: readonly Sequence[]) => {
      const blocks = new Set<string>();
      for (const { tokens, written } of sequences) {
        const read = [...tokens.subarray(0, written.at(-1)!)];
        while (read.length % 4 > 0) read.push(0);
        for (let end = 4; end <= read.length; end += 4) blocks.add(read.slice(0, end).join());
      }
      return 4 * blocks.size;
    };
    fc.assert(
      fc.property(anySequences, (sequences) => {
        fc.pre(sequences.length > 0);
        const [batch] = treeBatches(sequences, { tokensMax: 10_000 }, 1);
        const own = distinct(sequences);
        expect(batch!.tokens.length).toBe(32 * Math.ceil(own / 32));
      }),
    );
  });
});

describe("a network over prefix trees", () => {
  const model = ModelConfig.parse({ ...tinyModel, headWidth: 16, head: "both" });
  const sequences: Sequence[] = [
    sequenceOf([1, 2, 3, 4, 5, 6, 7, 8, 9], [3, 4, 8]),
    sequenceOf([1, 2, 3, 4, 5, 6, 7, 8, 9], [3, 4, 8]),
    // Equal tokens, but another written token.
    sequenceOf([1, 2, 3, 4, 5, 6, 7, 8, 9], [2, 8]),
    // The same state as before, with another token after it.
    sequenceOf([1, 2, 3, 4, 5, 6, 7, 8, 2], [8]),
    sequenceOf([1, 2, 3, 4, 5, 1, 7, 8, 9, 3, 3, 3, 3], [5, 10, 12]),
    sequenceOf([4, 2], [1]),
  ];
  const drawn = (name: string) =>
    sequences.map(({ written: { length } }, i) => Float32Array.from(randomValues(length, `${name} of ${i}`), Math.abs));
  const names =
    "oldLogProbs reference advantages oldValues returns weights entropyWeights klWeights covarianceWeights observationWeights shares";
  const inputs: TokenInputs = {
    ...Object.fromEntries(names.split(" ").map((name) => [name, drawn(name)])),
    sequenceShares: sequences.map(({ written: { length } }) => new Float32Array(length).fill(1 / length)),
  };
  const kl = { estimator: "k3", coefficient: 0.1 } as const;
  const rules = [
    { kind: "ppo", clipLow: 0.2, clipHigh: 0.28, dualClip: 3 },
    { kind: "gspo", clipLow: 0.1, clipHigh: 0.1 },
    { kind: "cispo", clipLow: 0.2, clipHigh: 0.2 },
    { kind: "reinforce" },
  ] as const;
  const settings = { learningRate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-2, weightDecay: 0, clipNorm: 1e9 };

  /** @param alone  one sequence after the other, each in rows; machine code computes trees only */
  async function step(objective: Objective, engine: Engine, alone: boolean) {
    const parameters = layParameters(model, tinyParameters(model, 3).flat.slice());
    const network = await Network.create(engine, model, parameters);
    const metrics: Record<string, number> = {};
    const parts = alone ? sequences.map((_, i) => [i]) : [[...sequences.keys()]];
    for (const part of parts) {
      const own = Object.entries(inputs).map(([name, values]) => [name, part.map((i) => values[i]!)] as const);
      const chosen = part.map((i) => sequences[i]!);
      const found = await network.accumulate(objective, chosen, Object.fromEntries(own), {
        tokensMax: 64,
        lengthMultiple: 4,
        widthMultiple: 4,
      });
      for (const [name, value] of Object.entries(found)) metrics[name] = (metrics[name] ?? 0) + value;
    }
    await network.step(settings);
    return { metrics, after: parameters.flat };
  }

  test.each([
    ...rules.map((rule) => {
      const extra = { hasObservationTerm: true, hasCovarianceTerm: true };
      return [rule.kind, policyObjective({ rule, entropyCoefficient: 0.1, kl }, extra)] as const;
    }),
    ["value", valueObjective(0.5)] as const,
  ])("has the loss, the metrics and the step of each sequence alone: %s", async (_, objective) => {
    const alone = await step(objective, compiledEngine({ threads: 1, instructions: null }), true);
    for (const engine of [compiledEngine({ threads: 1 }), compiledEngine({ threads: 2 })]) {
      const together = await step(objective, engine, false);
      for (const [name, value] of Object.entries(alone.metrics))
        expect(Math.abs(together.metrics[name]! - value)).toBeLessThan(2e-6 * Math.max(1, Math.abs(value)));
      expect(farthest(together.after, alone.after)).toBeLessThan(2e-6);
      expect(farthest(together.after, tinyParameters(model, 3).flat)).toBeGreaterThan(1e-3);
    }
  });

  test("computes rows if machine code takes no tree: paths beyond 4096 tokens, windows, heads of 8", async () => {
    const engine = compiledEngine({ threads: 1 });
    const long = sequenceOf(new Array(4100).fill(1), [4099]);
    const windowed = ModelConfig.parse({ ...model, layerKinds: ["full", "sliding"], window: 4 });
    const narrow = ModelConfig.parse({ ...model, headWidth: 8 });
    for (const [config, given] of [
      [model, long],
      [windowed, sequences[0]!],
      [narrow, sequences[0]!],
    ] as const) {
      const named: string[] = [];
      const naming = spyOn(engine, "compile").mockImplementation(async (name) => {
        named.push(name);
        throw new Error("compiled");
      });
      const network = Network.scorer(engine, config, tinyParameters(config));
      await expect(network.score([given], { tokensMax: 64, lengthMultiple: 4, widthMultiple: 4 })).rejects.toThrow();
      naming.mockRestore();
      expect(named).toEqual([expect.stringContaining("rows")]);
    }
  });
});
