/** The model's fused kernels as nodes whose operators are machine code. */
import type * as tf from "@tensorflow/tfjs-core";
import { type AttentionShape, scoreScaleOf } from "../../policy/ops.ts";
import { type AttendCached, groupQueryAttention, lowerAppend, lowerStep } from "../fused.ts";
import { sizeOf } from "../graph.ts";
import { lower } from "../trace.ts";
import { attentionOperator } from "./attention.ts";
import { attentionGradientOperator } from "./attention-gradient.ts";
import type { WholeShape } from "./attention-tiles.ts";
import { cachedAttentionOperator } from "./cached-attention.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { type RowsShape, rmsNormGradientOperator, swigluGradientOperator, swigluOperator } from "./rows.ts";

/** Most tokens of a cache, whose scores the kernel keeps on the stack. */
const CACHED_TOKENS_MAX = 2 ** 17;

const attendCached: AttendCached = (to, inputs, sizes, shape) => {
  const { qkv, keys, values, last, cos, sin } = inputs;
  const { heads, kvHeads, headWidth, window = null, halfCaches: half = false } = shape;
  const capacity = half ? 2 * sizes.capacity : sizes.capacity;
  if (capacity > CACHED_TOKENS_MAX) {
    if (!half) return groupQueryAttention(to, inputs, sizes, shape);
    throw new RangeError(`caches in half precision take at most ${CACHED_TOKENS_MAX} tokens, got ${capacity}`);
  }
  const all = { ...sizes, capacity, half, heads, kvHeads, headWidth, scale: scoreScaleOf(shape), window };
  const operator = cachedAttentionOperator(all);
  return to.recorder.emitMachineCode("CachedAttention", all, [qkv, keys, values, last, cos, sin], operator);
};
lowerStep(attendCached, ["x64"]);
lowerAppend(attendCached, ["x64"]);

function wholeShape([rows, tokens]: readonly number[], shape: AttentionShape): WholeShape {
  const { heads, kvHeads, headWidth } = shape;
  return { rows: rows!, tokens: tokens!, heads, kvHeads, headWidth, scale: scoreScaleOf(shape) };
}

lower<AttentionShape>(
  "Attention",
  ({ qkv, cos, sin }, shape, to) => {
    const whole = wholeShape(qkv!.shape, shape);
    const operator = attentionOperator(whole);
    const inputs = [qkv!, cos!, sin!].map(to.name);
    const [out, statistics] = to.recorder.emitMachineCode("Attention", whole, inputs, operator);
    return [to.tensor(out!, operator.outputs[0]!), to.tensor(statistics!, operator.outputs[1]!)];
  },
  ["x64"],
);

lower<AttentionShape>(
  "AttentionGradient",
  ({ qkv, cos, sin, out, dOut, statistics }, shape, to) => {
    const whole = wholeShape(qkv!.shape, shape);
    const inputs = [qkv!, cos!, sin!, out!, dOut!, statistics!].map(to.name);
    const operator = attentionGradientOperator(whole);
    const [dQkv] = to.recorder.emitMachineCode("AttentionGradient", whole, inputs, operator);
    return to.tensor(dQkv!, qkv!.shape);
  },
  ["x64"],
);

const rowsShape = (tensor: tf.TensorInfo): RowsShape => ({
  rows: sizeOf(tensor.shape.slice(0, -1)),
  width: tensor.shape.at(-1)!,
});

/** Registers the lowering of a kernel of rows. @param results  for each result, the input that has the result's shape */
function lowerRows(
  name: string,
  inputs: readonly string[],
  operatorFor: (shape: RowsShape) => MachineCodeOperator,
  results: readonly string[],
): void {
  lower(
    name,
    (given, _, to) => {
      const shape = rowsShape(given[inputs[0]!]!);
      const names = inputs.map((input) => to.name(given[input]!));
      return to.recorder
        .emitMachineCode(name, shape, names, operatorFor(shape))
        .map((result, i) => to.tensor(result, given[results[i]!]!.shape));
    },
    ["x64"],
  );
}
lowerRows("Swiglu", ["gate", "up"], swigluOperator, ["gate"]);
lowerRows("SwigluGradient", ["gate", "up", "dy"], swigluGradientOperator, ["gate", "up"]);
lowerRows("RmsNormGradient", ["x", "gain", "inverse", "dy"], rmsNormGradientOperator, ["x", "gain"]);
