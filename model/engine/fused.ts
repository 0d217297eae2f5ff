/**
 * The model's fused kernels as onnxruntime operators.
 * Source: github.com/microsoft/onnxruntime, docs/ContribOperators.md.
 */
import { type AttentionShape, halfCachesUnread } from "../policy/ops.ts";
import { batchMatMul } from "./lowerings.ts";
import { type LoweringContext, lower, MACHINE_CODE } from "./trace.ts";

const MICROSOFT = "com.microsoft";

lower<{ epsilon: number }>("RmsNorm", ({ x, gain }, { epsilon }, to) => {
  const attributes = { axis: -1, epsilon: { float: epsilon } };
  const inputs = [to.name(x!), to.name(gain!)];
  const { recorder } = to;
  const results = to.target === "webgpu" ? 1 : 2;
  const [y, fusedInverse] = recorder.emit("SimplifiedLayerNormalization", inputs, results, attributes);
  const inverse = fusedInverse ?? inverseByDefinition();
  return [to.tensor(y!, x!.shape), to.tensor(inverse, [...x!.shape.slice(0, -1), 1])];

  /** WebGPU's operator does not write its second result (onnxruntime 1.30). `prune` drops these nodes where no gradient needs them. */
  function inverseByDefinition(): string {
    const [square] = recorder.emit("Mul", [inputs[0]!, inputs[0]!]);
    const [mean] = recorder.emit("ReduceMean", [square!, recorder.ints([-1])], 1, { keepdims: 1 });
    const [sum] = recorder.emit("Add", [mean!, recorder.float(epsilon)]);
    return recorder.emit("Reciprocal", recorder.emit("Sqrt", [sum!]))[0]!;
  }
});

lower("Linear", ({ x, weight, addend }, _, to) => {
  if (addend === undefined) return batchMatMul({ a: x!, b: weight! }, { transposeA: false, transposeB: true }, to);
  const [y] = to.recorder.emit("Gemm", [to.name(x!), to.name(weight!), to.name(addend)], 1, { transB: 1 });
  return to.tensor(y!, [x!.shape[0]!, weight!.shape[0]!]);
});

lower("Rotate", ({ x, cos, sin }, _, to) => {
  const start = to.recorder.constant([1], "int64", BigInt64Array.of(0n));
  const inputs = [to.name(x!), start, to.name(cos!), to.name(sin!)];
  return to.tensor(to.recorder.emit("RotaryEmbedding", inputs, 1, {}, MICROSOFT)[0]!, x!.shape);
});

/**
 * Adds onnxruntime's attention over a cache. On CUDA this operator does not take 32-bit floats, so CUDA runs the definition
 * (policy/cached-attention.ts).
 *
 * @param names  of qkv, keys, values, last, total, cos and sin
 * @returns the names of the result, of the written keys and of the written values
 */
function groupQueryAttention(to: LoweringContext, names: readonly string[], shape: AttentionShape): string[] {
  const [qkv, ...others] = names;
  const { heads, kvHeads, scoreScale, window, halfCaches = false } = shape;
  if (halfCaches) throw halfCachesUnread();
  const attributes = {
    num_heads: heads,
    kv_num_heads: kvHeads,
    do_rotary: 1,
    // 0 stands for the operator's default, 1 / sqrt(D).
    scale: { float: scoreScale ?? 0 },
    local_window_size: window ?? -1,
  };
  return to.recorder.emit("GroupQueryAttention", [qkv!, "", "", ...others], 3, attributes, MICROSOFT);
}

/** One new token for each row. */
lower<AttentionShape>(
  "CachedAttention",
  ({ qkv, keys, values, last, total, cos, sin }, shape, to) => {
    const names = [qkv!, keys!, values!, last!, total!, cos!, sin!].map(to.name);
    const [out, nextKeys, nextValues] = groupQueryAttention(to, names, shape);
    return [
      to.tensor(out!, qkv!.shape.with(2, shape.heads * shape.headWidth)),
      to.tensor(nextKeys!, keys!.shape),
      to.tensor(nextValues!, values!.shape),
    ];
  },
  ["cpu", "webgpu", ...MACHINE_CODE],
);

/**
 * Several new tokens for each row, with one node for each row: each row has its own caches, and onnxruntime's operator takes several new
 * tokens after a cache only in a batch of one row. A GPU runs the definition, which computes all rows at once.
 */
lower<AttentionShape>(
  "CachedAppend",
  ({ qkv, last, cos, sin, ...caches }, shape, to) => {
    const { recorder, name } = to;
    const rows = qkv!.shape[0]!;
    const ones = recorder.ints(new Array<number>(rows).fill(1));
    const each = (of: string) => recorder.emit("Split", [of, ones], rows, { axis: 0 });
    const one = recorder.constant([], "int32", Int32Array.of(1));
    const [lasts, totals] = [each(name(last!)), each(recorder.emit("Add", [name(last!), one])[0]!)];
    const results = each(name(qkv!)).map((own, row) => {
      const [keys, values] = [name(caches[`keys.${row}`]!), name(caches[`values.${row}`]!)];
      return groupQueryAttention(to, [own, keys, values, lasts[row]!, totals[row]!, name(cos!), name(sin!)], shape);
    });
    const column = (index: number) => results.map((result) => result[index]!);
    const [out] = recorder.emit("Concat", column(0), 1, { axis: 0 });
    const cacheShape = caches["keys.0"]!.shape;
    return [
      to.tensor(out!, qkv!.shape.with(2, shape.heads * shape.headWidth)),
      ...[...column(1), ...column(2)].map((result) => to.tensor(result, cacheShape)),
    ];
  },
  ["cpu", ...MACHINE_CODE],
);
