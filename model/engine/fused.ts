/**
 * The model's fused kernels as onnxruntime operators.
 * Source: github.com/microsoft/onnxruntime, docs/ContribOperators.md.
 */
import type { AttentionShape } from "../policy/ops.ts";
import { type Lowering, lower } from "./trace.ts";

const MICROSOFT = "com.microsoft";

lower<{ epsilon: number }>("RmsNorm", ({ x, gain }, { epsilon }, to) => {
  const attributes = { axis: -1, epsilon: { float: epsilon } };
  const inputs = [to.name(x!), to.name(gain!)];
  const { recorder } = to;
  const [y, fusedInverse] = recorder.emit(
    "SimplifiedLayerNormalization",
    inputs,
    to.device === "webgpu" ? 1 : 2,
    attributes,
  );
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
  const [y] = to.recorder.emit("Gemm", [to.name(x!), to.name(weight!), to.name(addend!)], 1, { transB: 1 });
  return to.tensor(y!, [x!.shape[0]!, weight!.shape[0]!]);
});

lower("Rotate", ({ x, cos, sin }, _, to) => {
  const start = to.recorder.constant([1], "int64", BigInt64Array.of(0n));
  const inputs = [to.name(x!), start, to.name(cos!), to.name(sin!)];
  return to.tensor(to.recorder.emit("RotaryEmbedding", inputs, 1, {}, MICROSOFT)[0]!, x!.shape);
});

/** onnxruntime's attention over a cache. On CUDA it does not take 32-bit floats, so there the definition runs. */
function cachedAttention(
  to: Lowering,
  [qkv, keys, values, last, total, cos, sin]: readonly string[],
  { heads, kvHeads, scoreScale, window }: AttentionShape,
): string[] {
  const inputs = [qkv!, "", "", keys!, values!, last!, total!, cos!, sin!];
  const attributes = {
    num_heads: heads,
    kv_num_heads: kvHeads,
    do_rotary: 1,
    // 0: the operator's own, 1 / sqrt(D).
    scale: { float: scoreScale ?? 0 },
    local_window_size: window ?? -1,
  };
  return to.recorder.emit("GroupQueryAttention", inputs, 3, attributes, MICROSOFT);
}
lower<AttentionShape>(
  "CachedAttention",
  ({ qkv, keys, values, last, total, cos, sin }, shape, to) => {
    const inputs = [qkv!, keys!, values!, last!, total!, cos!, sin!].map(to.name);
    const [out, nextKeys, nextValues] = cachedAttention(to, inputs, shape);
    return [
      to.tensor(out!, qkv!.shape.with(2, shape.heads * shape.headWidth)),
      to.tensor(nextKeys!, keys!.shape),
      to.tensor(nextValues!, values!.shape),
    ];
  },
  ["cpu", "webgpu"],
);

/**
 * A node for each row: the operator takes several new tokens behind a cache for a batch of one only. A GPU computes all rows at once,
 * by definition.
 */
lower<AttentionShape>(
  "CachedAppend",
  ({ qkv, last, cos, sin, ...caches }, shape, to) => {
    const { recorder } = to;
    const rows = qkv!.shape[0]!;
    const ones = recorder.ints(new Array<number>(rows).fill(1));
    const each = (name: string) => recorder.emit("Split", [name, ones], rows, { axis: 0 });
    const one = recorder.constant([], "int32", Int32Array.of(1));
    const [lasts, totals] = [each(to.name(last!)), each(recorder.emit("Add", [to.name(last!), one])[0]!)];
    const [tables, cacheShape] = [[cos!, sin!].map(to.name), caches["keys.0"]!.shape];
    const results = each(to.name(qkv!)).map((own, row) => {
      const [keys, values] = [caches[`keys.${row}`]!, caches[`values.${row}`]!].map(to.name);
      return cachedAttention(to, [own, keys!, values!, lasts[row]!, totals[row]!, ...tables], shape);
    });
    const column = (index: number) => results.map((result) => result[index]!);
    const [out] = recorder.emit("Concat", column(0), 1, { axis: 0 });
    return [
      to.tensor(out!, qkv!.shape.with(2, shape.heads * shape.headWidth)),
      ...[...column(1), ...column(2)].map((name) => to.tensor(name, cacheShape)),
    ];
  },
  ["cpu"],
);
