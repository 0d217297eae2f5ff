/** Turns each tfjs kernel that the model uses into ONNX nodes. fused.ts has the model's own kernels. */
import * as tf from "@tensorflow/tfjs-core";
import { sizeOf } from "./graph.ts";
import { type LoweringContext, lower } from "./trace.ts";

type Info = tf.TensorInfo;

const ARITHMETIC = { Add: "Add", Sub: "Sub", Multiply: "Mul", RealDiv: "Div", Maximum: "Max", Minimum: "Min" };
for (const [kernel, op] of Object.entries({ ...ARITHMETIC, LogicalAnd: "Mul" })) {
  lower(kernel, ({ a, b }, _, to) => {
    const shape = tf.backend_util.assertAndGetBroadcastShape(a!.shape, b!.shape);
    return to.tensor(to.recorder.emit(op, [to.name(a!), to.name(b!)])[0]!, shape, a!.dtype);
  });
}

// ONNX has these kernels under the same names.
for (const kernel of ["Exp", "Log", "Neg", "Sqrt", "Sigmoid", "Tanh", "Abs"]) {
  lower(kernel, ({ x }, _, to) => to.tensor(to.recorder.emit(kernel, [to.name(x!)])[0]!, x!.shape, x!.dtype));
}

// tfjs' comparisons give the numbers 0 and 1, which serve as factors; ONNX's comparisons give booleans.
const COMPARE = { Greater: "Greater", GreaterEqual: "GreaterOrEqual", Less: "Less", LessEqual: "LessOrEqual" };
for (const [kernel, op] of Object.entries(COMPARE)) {
  lower(kernel, ({ a, b }, _, to) => {
    const shape = tf.backend_util.assertAndGetBroadcastShape(a!.shape, b!.shape);
    const [truth] = to.recorder.emit(op, [to.name(a!), to.name(b!)]);
    return to.tensor(cast(to, truth!, 6), shape, "bool");
  });
}
lower("Select", ({ condition, t, e }, _, to) => {
  const truth = cast(to, to.name(condition!), 9);
  return to.tensor(to.recorder.emit("Where", [truth, to.name(t!), to.name(e!)])[0]!, t!.shape, t!.dtype);
});

lower("Square", ({ x }, _, to) => to.tensor(to.recorder.emit("Mul", [to.name(x!), to.name(x!)])[0]!, x!.shape));
lower<tf.ClipByValueAttrs>("ClipByValue", ({ x }, { clipValueMin, clipValueMax }, to) => {
  const bounds = [to.recorder.float(clipValueMin), to.recorder.float(clipValueMax)];
  return to.tensor(to.recorder.emit("Clip", [to.name(x!), ...bounds])[0]!, x!.shape);
});
lower("Identity", ({ x }, _, to) => to.tensor(to.name(x!), x!.shape, x!.dtype));

/** ONNX type codes: 1 float32, 6 int32, 7 int64, 9 bool. */
function cast(to: LoweringContext, name: string, code: number): string {
  return to.recorder.emit("Cast", [name], 1, { to: code })[0]!;
}
lower<tf.CastAttrs>("Cast", ({ x }, { dtype }, to) => {
  const real = (type: string) => (type === "float32" ? 1 : 6);
  const same = real(x!.dtype) === real(dtype);
  return to.tensor(same ? to.name(x!) : cast(to, to.name(x!), real(dtype)), x!.shape, dtype);
});

function reshape(to: LoweringContext, x: Info, shape: readonly number[]): Info {
  // Always a new tensor: tfjs' autodiff distinguishes tensors by identity.
  if (shape.join() === x.shape.join()) return to.tensor(to.name(x), shape, x.dtype);
  return to.tensor(to.recorder.emit("Reshape", [to.name(x), to.recorder.ints(shape)])[0]!, shape, x.dtype);
}
lower<tf.ReshapeAttrs>("Reshape", ({ x }, { shape }, to) =>
  reshape(to, x!, tf.util.inferFromImplicitShape(shape, sizeOf(x!.shape))),
);
lower<tf.ExpandDimsAttrs>("ExpandDims", ({ input }, { dim }, to) => {
  const shape = input!.shape.slice();
  shape.splice(dim < 0 ? dim + shape.length + 1 : dim, 0, 1);
  return reshape(to, input!, shape);
});

function transpose(to: LoweringContext, x: Info, perm: readonly number[]): Info {
  const shape = perm.map((axis) => x.shape[axis]!);
  if (perm.every((axis, i) => axis === i)) return to.tensor(to.name(x), shape, x.dtype);
  return to.tensor(to.recorder.emit("Transpose", [to.name(x)], 1, { perm })[0]!, shape, x.dtype);
}
lower<tf.TransposeAttrs>("Transpose", ({ x }, { perm }, to) => transpose(to, x!, perm));

export const batchMatMul = (
  inputs: tf.NamedTensorInfoMap,
  { transposeA, transposeB }: tf.BatchMatMulAttrs,
  to: LoweringContext,
): Info => {
  const turnB = transposeB && to.target === "webgpu";
  const b = turnB ? transpose(to, inputs["b"]!, swapLast(inputs["b"]!)) : inputs["b"]!;
  const rowsB = transposeB && !turnB;
  // A separate node transposes the left factor: on several threads, onnxruntime's product of a transposed left factor takes a sixth longer.
  const a = transposeA ? transpose(to, inputs["a"]!, swapLast(inputs["a"]!)) : inputs["a"]!;
  const columns = b.shape.at(rowsB ? -2 : -1)!;
  const batch = tf.backend_util.assertAndGetBroadcastShape(a.shape.slice(0, -2), b.shape.slice(0, -2));
  const names = [to.name(a), to.name(b)];
  const [product] = rowsB
    ? to.recorder.emit("FusedMatMul", names, 1, { transB: 1 }, "com.microsoft")
    : to.recorder.emit("MatMul", names);
  return to.tensor(product!, [...batch, a.shape.at(-2)!, columns]);
};
lower("BatchMatMul", batchMatMul);
const swapLast = ({ shape: { length } }: Info) => [...Array(length - 2).keys(), length - 1, length - 2];

type Reduction = { axis?: number | number[]; reductionIndices?: number | number[]; keepDims: boolean };
for (const [kernel, op] of Object.entries({ Sum: "ReduceSum", Mean: "ReduceMean", Max: "ReduceMax" })) {
  lower<Reduction>(kernel, ({ x }, { axis, reductionIndices, keepDims }, to) => {
    const axes = tf.util.parseAxisParam((axis ?? reductionIndices)!, x!.shape);
    const kept = x!.shape.map((size, i) => (axes.includes(i) ? 1 : size));
    const shape = keepDims ? kept : x!.shape.filter((_, i) => !axes.includes(i));
    const [name] = to.recorder.emit(op, [to.name(x!), to.recorder.ints(axes)], 1, { keepdims: keepDims ? 1 : 0 });
    return to.tensor(name!, shape, x!.dtype);
  });
}

lower<tf.SoftmaxAttrs>("Softmax", ({ logits }, { dim }, to) => {
  return to.tensor(to.recorder.emit("Softmax", [to.name(logits!)], 1, { axis: dim })[0]!, logits!.shape);
});

lower<tf.ConcatAttrs>("Concat", (inputs, attributes, to) => {
  const parts = Object.values(inputs).filter((part) => sizeOf(part.shape) > 0);
  const axis = tf.util.parseAxisParam(attributes.axis, parts[0]!.shape)[0]!;
  const shape = parts[0]!.shape.slice();
  shape[axis] = parts.reduce((sum, part) => sum + part.shape[axis]!, 0);
  return to.tensor(to.recorder.emit("Concat", parts.map(to.name), 1, { axis })[0]!, shape, parts[0]!.dtype);
});
lower<tf.SliceAttrs>("Slice", ({ x }, attributes, to) => {
  const [begin, size] = tf.slice_util.parseSliceParams(x as tf.Tensor, attributes.begin, attributes.size) as [
    number[],
    number[],
  ];
  const axes = begin.map((_, i) => i).filter((i) => size[i] !== x!.shape[i]);
  if (axes.length === 0) return to.tensor(to.name(x!), size, x!.dtype);
  const starts = to.recorder.ints(axes.map((i) => begin[i]!));
  const ends = to.recorder.ints(axes.map((i) => begin[i]! + size[i]!));
  return to.tensor(to.recorder.emit("Slice", [to.name(x!), starts, ends, to.recorder.ints(axes)])[0]!, size, x!.dtype);
});
lower<tf.SplitVAttrs>("SplitV", ({ x }, attributes, to) => {
  const axis = tf.util.parseAxisParam(attributes.axis, x!.shape)[0]!;
  const sizes = tf.backend_util.prepareSplitSize(x as tf.Tensor, attributes.numOrSizeSplits, axis);
  const names = to.recorder.emit("Split", [to.name(x!), to.recorder.ints(sizes)], sizes.length, { axis });
  return sizes.map((size, i) => to.tensor(names[i]!, x!.shape.with(axis, size), x!.dtype));
});
lower<tf.PadV2Attrs>("PadV2", ({ x }, { paddings, constantValue }, to) => {
  if (paddings.flat().every((count) => count === 0)) return to.tensor(to.name(x!), x!.shape, x!.dtype);
  const pads = to.recorder.ints([...paddings.map(([before]) => before), ...paddings.map(([, after]) => after)]);
  const shape = x!.shape.map((n, i) => n + paddings[i]![0] + paddings[i]![1]);
  const value = to.recorder.float(constantValue);
  return to.tensor(to.recorder.emit("Pad", [to.name(x!), pads, value])[0]!, shape, x!.dtype);
});
lower<tf.TileAttrs>("Tile", ({ x }, { reps }, to) => {
  const shape = x!.shape.map((n, i) => n * reps[i]!);
  return to.tensor(to.recorder.emit("Tile", [to.name(x!), to.recorder.ints(reps)])[0]!, shape, x!.dtype);
});

lower<tf.RangeAttrs>("Range", (_, { start, stop, step, dtype }, to) => {
  const values = Array.from({ length: Math.max(0, Math.ceil((stop - start) / step)) }, (_, i) => start + i * step);
  const made = dtype === "int32" ? Int32Array.from(values) : Float32Array.from(values);
  return to.tensor(to.recorder.constant([values.length], dtype as "int32" | "float32", made), [values.length], dtype);
});
lower("ZerosLike", ({ x }, _, to) => {
  return to.tensor(to.recorder.emit("Expand", [to.recorder.float(0), to.recorder.ints(x!.shape)])[0]!, x!.shape);
});

lower<tf.GatherV2Attrs>("GatherV2", ({ x, indices }, attributes, to) => {
  const axis = tf.util.parseAxisParam(attributes.axis, x!.shape)[0]!;
  const shape = [...x!.shape.slice(0, axis), ...indices!.shape, ...x!.shape.slice(axis + 1)];
  return to.tensor(to.recorder.emit("Gather", [to.name(x!), to.name(indices!)], 1, { axis })[0]!, shape, x!.dtype);
});
/** The gradient of a gather: rows added up by index. Source: ONNX ScatterND with reduction "add". */
lower<tf.UnsortedSegmentSumAttrs>("UnsortedSegmentSum", ({ x, segmentIds }, { numSegments }, to) => {
  const shape = [numSegments, ...x!.shape.slice(segmentIds!.shape.length)];
  const [zeros] = to.recorder.emit("Expand", [to.recorder.float(0), to.recorder.ints(shape)]);
  // Reshaped before the cast, because WebGPU does not reshape 64-bit integers.
  const column = reshape(to, segmentIds!, [...segmentIds!.shape, 1]);
  const inputs = [zeros!, cast(to, to.name(column), 7), to.name(x!)];
  return to.tensor(to.recorder.emit("ScatterND", inputs, 1, { reduction: "add" })[0]!, shape);
});
/** Replaces rows of `tensor` by the rows of `updates`. Each row of `indices` has the indices of one replaced row along the first axes. */
lower("TensorScatterUpdate", ({ tensor, indices, updates }, _, to) => {
  const inputs = [to.name(tensor!), cast(to, to.name(indices!), 7), to.name(updates!)];
  return to.tensor(to.recorder.emit("ScatterND", inputs)[0]!, tensor!.shape, tensor!.dtype);
});
lower<tf.TopKAttrs>("TopK", ({ x }, { k }, to) => {
  const [values, indices] = to.recorder.emit("TopK", [to.name(x!), to.recorder.ints([k])], 2, { axis: -1 });
  const shape = x!.shape.with(-1, k);
  return [to.tensor(values!, shape), to.tensor(cast(to, indices!, 6), shape, "int32")];
});
lower<tf.OneHotAttrs>("OneHot", ({ indices }, { depth, onValue, offValue }, to) => {
  const inputs = [
    cast(to, to.name(indices!), 7),
    to.recorder.constant([], "int64", BigInt64Array.of(BigInt(depth))),
    to.recorder.constant([2], "float32", Float32Array.of(offValue, onValue)),
  ];
  return to.tensor(to.recorder.emit("OneHot", inputs, 1, { axis: -1 })[0]!, [...indices!.shape, depth], "float32");
});
