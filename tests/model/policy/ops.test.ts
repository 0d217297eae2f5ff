/** Every operation of model/policy/ops.ts and attention.ts, on both engines, against plain float64 loops and their finite differences. */

import { describe, test } from "bun:test";
import * as tf from "@tensorflow/tfjs-core";
import { attention } from "../../../model/policy/attention.ts";
import { geglu, linear, rmsNorm, rotate, swiglu, tokenLogProbs } from "../../../model/policy/ops.ts";
import { rotaryTables } from "../../../model/policy/rope.ts";
import { engines } from "../engine/engines.ts";
import { type Arrays, type Checked, checkGradient } from "./gradient-check.ts";

const range = (count: number) => Array.from({ length: count }, (_, i) => i);
const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
const rows = (values: ArrayLike<number>, width: number) =>
  range(values.length / width).map((row) => range(width).map((i) => values[row * width + i]!));

const plainLinear = ({ x, weight, addend }: Arrays): number[] =>
  rows(x!, 5).flatMap((row, r) =>
    rows(weight!, 5).map(
      (column, c) => sum(row.map((v, i) => v * column[i]!)) + addend![addend!.length === 3 ? c : r * 3 + c]!,
    ),
  );

/** Its tanh approximation. */
const gelu = (x: number) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

const plainNorm = ({ x, gain }: Arrays): number[] =>
  rows(x!, 6).flatMap((row) => {
    const scale = 1 / Math.sqrt(sum(row.map((v) => v * v)) / 6 + 1e-3);
    return row.map((v, i) => v * scale * gain![i]!);
  });

/** One head's vector turned to a position, halves layout. */
function turned(vector: readonly number[], position: number): number[] {
  const half = vector.length / 2;
  return vector.map((value, i) => {
    const angle = position / 100 ** ((2 * (i % half)) / vector.length);
    const other = i < half ? -vector[i + half]! : vector[i - half]!;
    return value * Math.cos(angle) + other * Math.sin(angle);
  });
}

interface Shape {
  readonly batch: number;
  readonly length: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headWidth: number;
}

function plainAttention(qkv: ArrayLike<number>, { batch, length, heads, kvHeads, headWidth }: Shape): number[] {
  const tokens = rows(qkv, (heads + 2 * kvHeads) * headWidth);
  const head = (token: readonly number[], index: number) => token.slice(index * headWidth, (index + 1) * headWidth);
  return range(batch).flatMap((row) => {
    const own = tokens.slice(row * length, (row + 1) * length);
    const keys = range(kvHeads).map((h) => own.map((token, t) => turned(head(token, heads + h), t)));
    return own.flatMap((token, t) =>
      range(heads).flatMap((h) => {
        const shared = Math.floor((h * kvHeads) / heads);
        const query = turned(head(token, h), t);
        const weights = range(t + 1).map((s) =>
          Math.exp(sum(query.map((q, d) => q * keys[shared]![s]![d]!)) / Math.sqrt(headWidth)),
        );
        const total = sum(weights);
        const values = range(t + 1).map((s) => head(own[s]!, heads + kvHeads + shared));
        return range(headWidth).map((d) => sum(weights.map((weight, s) => weight * values[s]![d]!)) / total);
      }),
    );
  });
}

function attentionCase(shape: Shape): Checked {
  const { batch, length, heads, kvHeads, headWidth } = shape;
  const tables = rotaryTables(length, headWidth, 100);
  return {
    inputs: { qkv: [batch, length, (heads + 2 * kvHeads) * headWidth] },
    build: ({ qkv }) => {
      const table = (values: Float32Array) => tf.tensor(values, [length, headWidth / 2]);
      return attention(qkv!, table(tables.cos), table(tables.sin), shape);
    },
    reference: ({ qkv }) => plainAttention(qkv!, shape),
  };
}

const targets = [4, 0, 2];
/** (M, 2): log-probability of the target, entropy. */
const plainLogProbs = ({ logits }: Arrays): number[] =>
  rows(logits!, 5).flatMap((row, r) => {
    const total = sum(row.map(Math.exp));
    const logs = row.map((v) => v - Math.log(total));
    return [logs[targets[r]!]!, -sum(logs.map((v) => v * Math.exp(v)))];
  });

const cases: Record<string, Checked> = {
  "linear with a bias": {
    inputs: { x: [4, 5], weight: [3, 5], addend: [3] },
    build: ({ x, weight, addend }) => linear(x!, weight!, addend!),
    reference: plainLinear,
  },
  "linear added to a residual": {
    inputs: { x: [4, 5], weight: [3, 5], addend: [4, 3] },
    build: ({ x, weight, addend }) => linear(x!, weight!, addend!),
    reference: plainLinear,
  },
  rmsNorm: {
    inputs: { x: [4, 6], gain: [6] },
    build: ({ x, gain }) => rmsNorm(x!, gain!, 1e-3),
    reference: plainNorm,
  },
  geglu: {
    inputs: { gate: [3, 4], up: [3, 4] },
    build: ({ gate, up }) => geglu(gate!, up!),
    reference: ({ gate, up }) => gate!.map((g, i) => gelu(g) * up![i]!),
  },
  swiglu: {
    inputs: { gate: [3, 7], up: [3, 7] },
    build: ({ gate, up }) => swiglu(gate!, up!),
    reference: ({ gate, up }) => gate!.map((g, i) => (g / (1 + Math.exp(-g))) * up![i]!),
  },
  tokenLogProbs: {
    inputs: { logits: [3, 5] },
    indices: { targets: { shape: [3], values: targets } },
    build: ({ logits, targets }) => {
      const { logProbs, entropies } = tokenLogProbs(logits!, targets!);
      return tf.concat([tf.reshape(logProbs, [3, 1]), tf.reshape(entropies, [3, 1])], 1);
    },
    reference: plainLogProbs,
  },
  "attention of one head": attentionCase({ batch: 2, length: 5, heads: 1, kvHeads: 1, headWidth: 4 }),
  "attention of one token": attentionCase({ batch: 3, length: 1, heads: 2, kvHeads: 1, headWidth: 8 }),
  "attention of grouped heads of 8": attentionCase({ batch: 2, length: 7, heads: 4, kvHeads: 2, headWidth: 8 }),
  "attention of heads of 16": attentionCase({ batch: 1, length: 6, heads: 2, kvHeads: 2, headWidth: 16 }),
  "attention of grouped heads of 32": attentionCase({ batch: 1, length: 9, heads: 4, kvHeads: 1, headWidth: 32 }),
  "attention of a whole block": attentionCase({ batch: 1, length: 64, heads: 1, kvHeads: 1, headWidth: 4 }),
  "attention of three blocks, the last of one token": attentionCase({
    batch: 1,
    length: 129,
    heads: 2,
    kvHeads: 1,
    headWidth: 4,
  }),
};

describe.each(engines)("on the %s engine", (_, engine) => {
  test.each(Object.keys(cases))("%s and its gradient agree with float64", async (name) => {
    await checkGradient(engine, cases[name]!);
  });

  test.each([2, 8, 16, 32])("rotating heads of %p turns every head by its position", async (headWidth) => {
    const { cos, sin } = rotaryTables(5, headWidth, 100);
    const table = (values: Float32Array) => tf.tensor(values, [5, headWidth / 2]);
    await checkGradient(engine, {
      inputs: {},
      build: () => {
        const x = tf.tensor(Float32Array.from({ length: 2 * 5 * 3 * headWidth }, (_, i) => (i % 17) / 8 - 1));
        return rotate(tf.reshape(x, [2, 5, 3 * headWidth]), table(cos), table(sin));
      },
      reference: () =>
        rows(
          range(2 * 5 * 3 * headWidth).map((i) => (i % 17) / 8 - 1),
          headWidth,
        ).flatMap((head, i) => turned(head, Math.floor(i / 3) % 5)),
    });
  });
});
