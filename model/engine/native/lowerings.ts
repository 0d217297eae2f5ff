/** The model's fused kernels as machine code, in nodes that onnxruntime runs. */
import type * as tf from "@tensorflow/tfjs-core";
import { type AttentionShape, scoreScaleOf } from "../../policy/ops.ts";
import { type AttendCached, groupQueryAttention, lowerAppend, lowerStep } from "../fused.ts";
import { sizeOf } from "../graph.ts";
import { lower } from "../trace.ts";
import { attentionOperator } from "./attention.ts";
import { attentionGradientOperator } from "./attention-gradient.ts";
import type { WholeShape } from "./attention-tiles.ts";
import { cachedAttentionOperator } from "./cached-attention.ts";
import type { MachineOperator } from "./operator.ts";
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
  return to.recorder.emitMachine(
    ["CachedAttention", all],
    [qkv, keys, values, last, cos, sin],
    cachedAttentionOperator(all),
  );
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
    const [out, statistics] = to.recorder.emitMachine(["Attention", whole], [qkv!, cos!, sin!].map(to.name), operator);
    return [to.tensor(out!, operator.outputs[0]!), to.tensor(statistics!, operator.outputs[1]!)];
  },
  ["x64"],
);

lower<AttentionShape>(
  "AttentionGradient",
  ({ qkv, cos, sin, out, dOut, statistics }, shape, to) => {
    const whole = wholeShape(qkv!.shape, shape);
    const inputs = [qkv!, cos!, sin!, out!, dOut!, statistics!].map(to.name);
    const [dQkv] = to.recorder.emitMachine(["AttentionGradient", whole], inputs, attentionGradientOperator(whole));
    return to.tensor(dQkv!, qkv!.shape);
  },
  ["x64"],
);

const rowsShape = (tensor: tf.TensorInfo): RowsShape => ({
  rows: sizeOf(tensor.shape.slice(0, -1)),
  width: tensor.shape.at(-1)!,
});

/** Registers a kernel of rows. Its results have the shapes that `shapes` lists, by the names of inputs. */
function lowerRows(
  name: string,
  inputs: readonly string[],
  makeOperator: (shape: RowsShape) => MachineOperator,
  results: readonly string[],
): void {
  lower(
    name,
    (given, _, to) => {
      const shape = rowsShape(given[inputs[0]!]!);
      const names = inputs.map((input) => to.name(given[input]!));
      return to.recorder
        .emitMachine([name, shape], names, makeOperator(shape))
        .map((result, i) => to.tensor(result, given[results[i]!]!.shape));
    },
    ["x64"],
  );
}
lowerRows("Swiglu", ["gate", "up"], swigluOperator, ["gate"]);
lowerRows("SwigluGradient", ["gate", "up", "dy"], swigluGradientOperator, ["gate", "up"]);
lowerRows("RmsNormGradient", ["x", "gain", "inverse", "dy"], rmsNormGradientOperator, ["x", "gain"]);
