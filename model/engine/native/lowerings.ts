/** The model's fused kernels as nodes whose operators are machine code. */
import * as tf from "@tensorflow/tfjs-core";
import { type AttentionShape, scoreScaleOf } from "../../policy/ops.ts";
import type { CacheShape } from "../engine.ts";
import "../fused.ts";
import { sizeOf } from "../graph.ts";
import { batchMatMul } from "../lowerings.ts";
import { type Lowering, type LoweringContext, lower, lowerFirst, MACHINE_CODE } from "../trace.ts";
import { attentionOperator } from "./attention.ts";
import { attentionGradientOperator } from "./attention-gradient.ts";
import type { TreeShape } from "./attention-tiles.ts";
import { cachedAttentionOperator } from "./cached-attention.ts";
import { type MuonSettings, muonOperator } from "./muon.ts";
import type { MachineCodeOperator } from "./operator.ts";
import { adamWOperator, gradientSquaresOperator, type OptimizerShape } from "./optimizer.ts";
import { PRODUCT_MULTIPLE, type ProductShape, vectorProductOperator } from "./product.ts";
import { rmsNormGradientOperator, rmsNormOperator } from "./rms-norm.ts";
import { roundedProductOperator } from "./rounded-product.ts";
import { type RowsShape, rowSumOperator, swigluGradientOperator, swigluOperator } from "./rows.ts";
import { tileProductOperator } from "./tile-product.ts";
import { tokenLogProbsGradientOperator, tokenLogProbsOperator } from "./token-log-probs.ts";

/** Maximum number of tokens of a cache. The kernel keeps the scores of all tokens on the stack. */
const CACHED_TOKENS_MAX = 2 ** 17;

/** True if the kernel reads caches of this shape. */
export const readsCaches = ({ headWidth, capacity }: CacheShape): boolean =>
  headWidth % 16 === 0 && capacity % 16 === 0 && capacity <= CACHED_TOKENS_MAX;

/** Attention of one or more new tokens over caches. Returns null if onnxruntime's attention must read caches that are too long for the kernel. */
const attendCached: Lowering<AttentionShape, tf.TensorInfo[] | null> = (inputs, shape, to) => {
  const { qkv, keys, values, last, cos, sin, slots, read } = inputs;
  const { heads, kvHeads, headWidth, window = null, halfCaches: half = false } = shape;
  const [rows, added] = qkv!.shape as [number, number, number];
  const [cacheCount, , size] = keys!.shape as [number, number, number, number];
  const capacity = half ? 2 * size : size;
  if (capacity > CACHED_TOKENS_MAX) {
    if (!half && slots === undefined) return null;
    const what = half ? "caches in half precision" : "caches that rows share by slots";
    throw new RangeError(`${what} take at most ${CACHED_TOKENS_MAX} tokens, got ${capacity}`);
  }
  const all = {
    rows,
    added,
    capacity,
    half,
    heads,
    kvHeads,
    headWidth,
    scale: scoreScaleOf(shape),
    window,
    slots: slots === undefined ? null : cacheCount,
    readsOne: read !== undefined,
  };
  const given = [qkv!, keys!, values!, last!, cos!, sin!, ...(slots ? [slots] : []), ...(read ? [read] : [])];
  return addNode(to, "CachedAttention", all, given, cachedAttentionOperator(all));
};
lowerFirst("CachedAttention", attendCached, MACHINE_CODE);
lower<AttentionShape>("AttentionInSlots", (...call) => attendCached(...call)!, MACHINE_CODE);

/** Adds a node of machine code. @param sizes  kernels with the same name differ in these sizes. @returns the operator's results */
const addNode = (
  to: LoweringContext,
  name: string,
  sizes: object,
  inputs: readonly tf.TensorInfo[],
  operator: MachineCodeOperator,
): tf.TensorInfo[] =>
  to.recorder
    .emitMachineCode(name, sizes, inputs.map(to.name), operator)
    .map((result, i) => to.tensor(result, operator.outputs[i]!));

/**
 * Registers the lowering of a kernel.
 *
 * @param inputs    the names of the kernel's inputs
 * @param shapeOf   takes the inputs
 * @param results   number of outputs; the other outputs are scratch. Default: all
 */
function lowerKernel<A, Shape extends object>(
  name: string,
  inputs: readonly string[],
  shapeOf: (inputs: readonly tf.TensorInfo[], attributes: A) => Shape,
  operatorFor: (shape: Shape) => MachineCodeOperator,
  results?: number,
): void {
  const lowering: Lowering<A> = (given, attributes, to) => {
    const tensors = inputs.map((input) => given[input]!);
    const shape = shapeOf(tensors, attributes);
    return addNode(to, name, shape, tensors, operatorFor(shape)).slice(0, results);
  };
  lower(name, lowering, MACHINE_CODE);
}

const treeShape = ([qkv, branches, cos]: readonly tf.TensorInfo[], shape: AttentionShape): TreeShape => {
  const { heads, kvHeads, headWidth } = shape;
  const [tokens, length] = [qkv!.shape[0]!, cos!.shape[0]!];
  return { branches: branches!.shape[0]!, tokens, length, heads, kvHeads, headWidth, scale: scoreScaleOf(shape) };
};
const TREE = ["qkv", "branches", "cos", "sin", "isRead"];
lowerKernel("TreeAttention", TREE, treeShape, attentionOperator, 2);
const TREE_GRADIENT = [...TREE, "out", "dOut", "statistics"];
lowerKernel("TreeAttentionGradient", TREE_GRADIENT, treeShape, attentionGradientOperator, 1);

const rowsShape = (tensor: tf.TensorInfo): RowsShape => ({
  rows: sizeOf(tensor.shape.slice(0, -1)),
  width: tensor.shape.at(-1)!,
});
/** Of kernels that compute row by row: the number and the width of the first input's rows. */
const firstRows = ([first]: readonly tf.TensorInfo[]) => rowsShape(first!);
lowerKernel("Swiglu", ["gate", "up"], firstRows, swigluOperator);
lowerKernel("SwigluGradient", ["gate", "up", "dy"], firstRows, swigluGradientOperator);
lowerKernel("TokenLogProbs", ["logits", "targets"], firstRows, tokenLogProbsOperator);
const TOKEN_GRADIENT = ["logits", "targets", "pair", "statistics", "dPair"];
lowerKernel("TokenLogProbsGradient", TOKEN_GRADIENT, firstRows, tokenLogProbsGradientOperator);

/** Registers the lowering of an optimizer's kernel. The inputs that `others` does not name are gradients. */
function lowerOptimizer(
  name: string,
  others: readonly string[],
  operatorFor: (shape: OptimizerShape) => MachineCodeOperator,
): void {
  lower(
    name,
    (given, _, to) => {
      const gradients = Object.keys(given).filter((input) => !others.includes(input));
      const tensors = [...others, ...gradients].map((input) => given[input]!);
      const shape = { size: tensors[0]!.shape[0]!, gradients: gradients.length };
      return addNode(to, name, shape, tensors, operatorFor(shape));
    },
    MACHINE_CODE,
  );
}
lowerOptimizer("GradientSquares", [], gradientSquaresOperator);
lowerOptimizer("AdamW", ["parameters", "moment", "variance", "scalars"], adamWOperator);

// Only for AVX-512 without rounded factors. With tiles or rounded factors the definition runs, and its products have their own kernels.
lower<MuonSettings>(
  "Muon",
  ({ parameters, moment, scalars, ...gradients }, settings, to) => {
    const [rows, columns] = parameters!.shape as [number, number];
    if (to.bfloat16Products !== "none" || rows % 16 !== 0 || columns % 16 !== 0) return [];
    const shape = { rows, columns, gradients: Object.keys(gradients).length, ...settings };
    const inputs = [parameters!, moment!, scalars!, ...Object.values(gradients)];
    return addNode(to, "Muon", shape, inputs, muonOperator(shape)).slice(0, 2 + shape.gradients);
  },
  ["AVX-512"],
);

const hasWholeVectors = ({ shape }: tf.TensorInfo) => shape.at(-1)! % 16 === 0;

lowerFirst<{ epsilon: number }>(
  "RmsNorm",
  ({ x, gain }, { epsilon }, to) => {
    if (!hasWholeVectors(x!)) return null;
    const shape = { ...rowsShape(x!), epsilon };
    return addNode(to, "RmsNorm", shape, [x!, gain!], rmsNormOperator(shape));
  },
  MACHINE_CODE,
);

lowerFirst<tf.SumAttrs>(
  "Sum",
  ({ x }, { axis, keepDims }, to) => {
    const axes = tf.util.parseAxisParam(axis, x!.shape);
    if (x!.dtype !== "float32" || x!.shape.length !== 2 || axes.join() !== "0" || keepDims || !hasWholeVectors(x!))
      return null;
    const shape = rowsShape(x!);
    return addNode(to, "RowSum", shape, [x!], rowSumOperator(shape))[0]!;
  },
  MACHINE_CODE,
);

/** The sum of a tensor and an addend of equal shape; null if no kernel computes it. */
type SumOf = (addend: tf.TensorInfo) => tf.TensorInfo | null;

/** By data id: tensors whose node can also add an addend. If the program adds another tensor to such a tensor, one node computes the sum. */
const sums = new WeakMap<tf.DataId, SumOf>();

lower(
  "RmsNormGradient",
  ({ x, gain, inverse, dy }, _, to) => {
    const shape = rowsShape(x!);
    const tensors = [x!, gain!, inverse!, dy!];
    const node = (...addends: tf.TensorInfo[]) => {
      const all = { ...shape, addend: addends.length > 0 };
      return addNode(to, "RmsNormGradient", all, [...tensors, ...addends], rmsNormGradientOperator(all));
    };
    let alone: tf.TensorInfo[] | undefined;
    let summed: tf.TensorInfo[] | undefined;
    const nodeAlone = () => (alone ??= node());
    const dx = to.later(x!.shape, () => to.name(nodeAlone()[0]!));
    const dGain = to.later(gain!.shape, () => to.name((summed ?? nodeAlone())[1]!));
    sums.set(dx.dataId, (addend) => {
      summed = node(addend);
      return summed[0]!;
    });
    return [dx, dGain];
  },
  MACHINE_CODE,
);

interface Product {
  readonly factors: readonly tf.TensorInfo[];
  readonly transposed: Pick<ProductShape, "transposeA" | "transposeB">;
  /** True: the kernel rounds the factors to bfloat16. */
  readonly rounded: boolean;
}

/** Adds a node for a product, or for a product plus an addend. @returns null if the kernel does not take the shapes */
function addProduct(
  to: LoweringContext,
  { factors, transposed, rounded }: Product,
  addend: tf.TensorInfo | null = null,
): tf.TensorInfo | null {
  const [a, b] = factors.map(({ shape }) => shape);
  if (a!.length !== 2 || b!.length !== 2) return null;
  const [rows, depth] = transposed.transposeA ? [a![1]!, a![0]!] : [a![0]!, a![1]!];
  const columns = transposed.transposeB ? b![0]! : b![1]!;
  const kernel = rounded ? ROUNDED : to.target === "AMX" ? ON_TILES : ON_VECTORS;
  const multiples = [depth, columns, kernel !== ON_VECTORS && transposed.transposeA ? rows : 0];
  if (multiples.some((size) => size % PRODUCT_MULTIPLE !== 0)) return null;
  const kind = addend === null ? "none" : addend.shape.length === 1 ? "bias" : "matrix";
  const shape: ProductShape = { rows, depth, columns, ...transposed, addend: kind };
  const inputs = [...factors, ...(addend ? [addend] : [])];
  const made = addNode(to, kernel.name, shape, inputs, kernel.operatorFor(shape))[0]!;
  if (addend === null) sums.set(made.dataId, (addend) => addProduct(to, { factors, transposed, rounded }, addend));
  return made;
}

const ON_VECTORS = { name: "Product", operatorFor: vectorProductOperator };
const ON_TILES = { name: "TileProduct", operatorFor: tileProductOperator };
const ROUNDED = { name: "RoundedProduct", operatorFor: roundedProductOperator };

/** The targets whose matrix products are our machine code. */
const PRODUCT_TARGETS = ["AVX-512", "AMX"] as const;

lowerFirst<tf.BatchMatMulAttrs>(
  "BatchMatMul",
  ({ a, b }, transposed, to) => addProduct(to, { factors: [a!, b!], transposed, rounded: false }),
  PRODUCT_TARGETS,
);
lower<tf.BatchMatMulAttrs>(
  "GradientProduct",
  (inputs, transposed, to) => {
    const rounded = to.bfloat16Products !== "none";
    const made = addProduct(to, { factors: [inputs["a"]!, inputs["b"]!], transposed, rounded });
    return made ?? batchMatMul(inputs, transposed, to);
  },
  PRODUCT_TARGETS,
);
lowerFirst(
  "Linear",
  ({ x, weight, addend }, _, to) => {
    const transposed = { transposeA: false, transposeB: true };
    const rounded = to.bfloat16Products === "all";
    return addProduct(to, { factors: [x!, weight!], transposed, rounded }, addend);
  },
  PRODUCT_TARGETS,
);
lowerFirst(
  "Add",
  ({ a, b }) => {
    const sum = ({ dataId, shape }: tf.TensorInfo, other: tf.TensorInfo) =>
      (other.shape.join() === shape.join() && sums.get(dataId)?.(other)) || null;
    return sum(b!, a!) ?? sum(a!, b!);
  },
  MACHINE_CODE,
);
