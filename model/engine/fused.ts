/**
 * The model's fused kernels as onnxruntime operators.
 * Source: github.com/microsoft/onnxruntime, docs/ContribOperators.md.
 */
import type { AttentionShape } from "../policy/ops.ts";
import { lower } from "./trace.ts";

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

/** On CUDA, onnxruntime has no such operator for 32-bit floats. */
lower<AttentionShape>(
  "CachedAttention",
  ({ qkv, keys, values, last, total, cos, sin }, { heads, kvHeads, headWidth, scoreScale, window }, to) => {
    const [batch, added] = qkv!.shape as [number, number];
    const rest = [keys!, values!, last!, total!, cos!, sin!].map(to.name);
    const attributes = {
      num_heads: heads,
      kv_num_heads: kvHeads,
      do_rotary: 1,
      // 0: the operator's own, 1 / sqrt(D).
      scale: { float: scoreScale ?? 0 },
      local_window_size: window ?? -1,
    };
    const [out, nextKeys, nextValues] = to.recorder.emit(
      "GroupQueryAttention",
      [to.name(qkv!), "", "", ...rest],
      3,
      attributes,
      MICROSOFT,
    );
    return [
      to.tensor(out!, [batch, added, heads * headWidth]),
      to.tensor(nextKeys!, keys!.shape),
      to.tensor(nextValues!, values!.shape),
    ];
  },
  ["cpu", "webgpu"],
);
