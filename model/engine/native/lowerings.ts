/** The model's fused kernels as nodes whose operators are machine code. */
import * as tf from "@tensorflow/tfjs-core";
import { type AttentionShape, scoreScaleOf } from "../../policy/ops.ts";
import { type AttendCached, groupQueryAttention, lowerAppend, lowerStep } from "../fused.ts";
import { sizeOf } from "../graph.ts";
import "../lowerings.ts";
import { type LoweringContext, lower, lowerFirst, MACHINE_CODE } from "../trace.ts";
import { attentionOperator } from "./attention.ts";
import { attentionGradientOperator } from "./attention-gradient.ts";
import type { WholeShape } from "./attention-tiles.ts";
import { cachedAttentionOperator } from "./cached-attention.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { PRODUCT_MULTIPLE, type ProductShape, vectorProductOperator } from "./product.ts";
import { rmsNormGradientOperator, rmsNormOperator } from "./rms-norm.ts";
import { type RowsShape, rowSumOperator, swigluGradientOperator, swigluOperator } from "./rows.ts";
import { tileProductOperator } from "./tile-product.ts";
import { tokenLogProbsGradientOperator, tokenLogProbsOperator } from "./token-log-probs.ts";

/** Most tokens of a cache: the kernel keeps the scores of all tokens on the stack. */
const CACHED_TOKENS_MAX = 2 ** 17;

const attendCached: AttendCached = (to, inputs, sizes, shape) => {
  const { qkv, keys, values, last, cos, sin, read } = inputs;
  const { heads, kvHeads, headWidth, window = null, halfCaches: half = false } = shape;
  const capacity = half ? 2 * sizes.capacity : sizes.capacity;
  if (capacity > CACHED_TOKENS_MAX) {
    if (!half) return groupQueryAttention(to, inputs, sizes, shape);
    throw new RangeError(`caches in half precision take at most ${CACHED_TOKENS_MAX} tokens, got ${capacity}`);
  }
  const scale = scoreScaleOf(shape);
  const readsOne = read !== undefined;
  const all = { ...sizes, capacity, half, heads, kvHeads, headWidth, scale, window, readsOne };
  const given = [qkv, keys, values, last, cos, sin].concat(read ?? []);
  return to.recorder.emitMachineCode("CachedAttention", all, given, cachedAttentionOperator(all));
};
lowerStep(attendCached, MACHINE_CODE);
lowerAppend(attendCached, MACHINE_CODE);

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
  MACHINE_CODE,
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
  MACHINE_CODE,
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
    MACHINE_CODE,
  );
}
lowerRows("Swiglu", ["gate", "up"], swigluOperator, ["gate"]);
lowerRows("SwigluGradient", ["gate", "up", "dy"], swigluGradientOperator, ["gate", "up"]);
lowerRows("RmsNormGradient", ["x", "gain", "inverse", "dy"], rmsNormGradientOperator, ["x", "gain"]);
lowerRows(
  "TokenLogProbsGradient",
  ["logits", "targets", "pair", "statistics", "dPair"],
  tokenLogProbsGradientOperator,
  ["logits"],
);

lower(
  "TokenLogProbs",
  ({ logits, targets }, _, to) => {
    const operator = tokenLogProbsOperator(rowsShape(logits!));
    const inputs = [logits!, targets!].map(to.name);
    const [pair, statistics] = to.recorder.emitMachineCode("TokenLogProbs", rowsShape(logits!), inputs, operator);
    return [to.tensor(pair!, operator.outputs[0]!), to.tensor(statistics!, operator.outputs[1]!)];
  },
  MACHINE_CODE,
);

const isRowOfVectors = ({ shape }: tf.TensorInfo) => shape.at(-1)! % 16 === 0;

lowerFirst<{ epsilon: number }>(
  "RmsNorm",
  ({ x, gain }, { epsilon }, to) => {
    if (!isRowOfVectors(x!)) return null;
    const shape = { ...rowsShape(x!), epsilon };
    const names = [x!, gain!].map(to.name);
    const [y, inverse] = to.recorder.emitMachineCode("RmsNorm", shape, names, rmsNormOperator(shape));
    return [to.tensor(y!, x!.shape), to.tensor(inverse!, [...x!.shape.slice(0, -1), 1])];
  },
  MACHINE_CODE,
);

lowerFirst<tf.SumAttrs>(
  "Sum",
  ({ x }, { axis, keepDims }, to) => {
    const axes = tf.util.parseAxisParam(axis, x!.shape);
    if (x!.dtype !== "float32" || x!.shape.length !== 2 || axes.join() !== "0" || keepDims || !isRowOfVectors(x!))
      return null;
    const shape = rowsShape(x!);
    const [sum] = to.recorder.emitMachineCode("RowSum", shape, [to.name(x!)], rowSumOperator(shape));
    return to.tensor(sum!, [shape.width]);
  },
  MACHINE_CODE,
);

/** The factors of each traced product, by the data id of the product. An addition to a product becomes one product with an addend. */
const products = new WeakMap<tf.DataId, { factors: readonly tf.TensorInfo[]; turned: Turned }>();
type Turned = Pick<ProductShape, "transposeA" | "transposeB">;

/** Adds a node for a product, or for a product plus an addend. @returns null if the kernel does not take the shapes */
function product(
  to: LoweringContext,
  factors: readonly tf.TensorInfo[],
  turned: Turned,
  addend: tf.TensorInfo | null = null,
): tf.TensorInfo | null {
  const [a, b] = factors.map(({ shape }) => shape);
  if (a!.length !== 2 || b!.length !== 2) return null;
  const [rows, depth] = turned.transposeA ? [a![1]!, a![0]!] : [a![0]!, a![1]!];
  const columns = turned.transposeB ? b![0]! : b![1]!;
  const onTiles = to.target === "AMX";
  const multiples = [depth, columns, onTiles && turned.transposeA ? rows : 0];
  if (multiples.some((size) => size % PRODUCT_MULTIPLE !== 0)) return null;
  const kind = addend === null ? "none" : addend.shape.length === 1 ? "bias" : "matrix";
  const shape: ProductShape = { rows, depth, columns, ...turned, addend: kind };
  const inputs = [...factors, ...(addend ? [addend] : [])].map(to.name);
  const [name] = onTiles
    ? to.recorder.emitMachineCode("TileProduct", shape, inputs, tileProductOperator(shape))
    : to.recorder.emitMachineCode("Product", shape, inputs, vectorProductOperator(shape));
  const made = to.tensor(name!, [rows, columns]);
  if (addend === null) products.set(made.dataId, { factors, turned });
  return made;
}

/** The targets whose matrix products are our machine code. */
const PRODUCTS = ["AVX-512", "AMX"] as const;

lowerFirst<tf.BatchMatMulAttrs>(
  "BatchMatMul",
  ({ a, b }, { transposeA, transposeB }, to) => product(to, [a!, b!], { transposeA, transposeB }),
  PRODUCTS,
);
lowerFirst(
  "Linear",
  ({ x, weight, addend }, _, to) => product(to, [x!, weight!], { transposeA: false, transposeB: true }, addend),
  PRODUCTS,
);
lowerFirst(
  "Add",
  ({ a, b }, _, to) => {
    const sum = ({ dataId, shape }: tf.TensorInfo, other: tf.TensorInfo) => {
      const known = other.shape.join() === shape.join() ? products.get(dataId) : undefined;
      return known ? product(to, known.factors, known.turned, other) : null;
    };
    return sum(b!, a!) ?? sum(a!, b!);
  },
  PRODUCTS,
);
