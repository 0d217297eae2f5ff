/**
 * Operations of the transformer. Each is defined by ordinary tfjs ops, so any backend runs it; most have an explicit gradient.
 * Operations that call `fused` name a kernel: a backend that has the kernel runs it instead of the definition. engine/fused.ts has kernels
 * of onnxruntime's operators; engine/native/lowerings.ts has kernels of machine code.
 *
 * B batch, T tokens, H query heads, K key/value heads, G = H / K, D head width, E experts, N rows, M rows with a loss, V vocabulary.
 */
import * as tf from "@tensorflow/tfjs-core";
import type { Experts } from "./model-config.ts";

export const hasKernel = (name: string): boolean => tf.getKernel(name, tf.getBackend()) !== undefined;

/** Runs a kernel that the backend has. */
export function runKernel(name: string, inputs: tf.NamedTensorMap, attributes: object): tf.Tensor[] {
  const result = tf.engine().runKernel(name, inputs, attributes as tf.NamedAttrMap) as tf.Tensor | tf.Tensor[];
  return Array.isArray(result) ? result : [result];
}

/**
 * Runs kernel `name` if the backend has it, and otherwise the definition. Both return the same number of tensors. A kernel that does not take
 * these inputs returns none, and the definition runs.
 */
export function fused(
  name: string,
  inputs: tf.NamedTensorMap,
  attributes: object,
  definition: () => tf.Tensor[],
): tf.Tensor[] {
  if (!hasKernel(name)) return definition();
  const results = runKernel(name, inputs, attributes);
  return results.length > 0 ? results : definition();
}

/**
 * A result with a gradient of its own.
 *
 * @param forward   returns the result, and the tensors that `backward` needs
 * @param backward  takes the gradient of the result, and returns those of the inputs
 */
export function withGradient<Inputs extends tf.Tensor[], Saved extends tf.Tensor[]>(
  inputs: readonly [...Inputs],
  forward: (...inputs: Inputs) => readonly [result: tf.Tensor, ...saved: Saved],
  backward: (dy: tf.Tensor, ...saved: Saved) => tf.Tensor | tf.Tensor[],
): tf.Tensor {
  return tf.customGrad((...args) => {
    const save = args.pop() as unknown as tf.GradSaveFunc;
    const [value, ...saved] = forward(...(args as Inputs));
    save(saved);
    return { value, gradFunc: (dy: tf.Tensor, saved: tf.Tensor[]) => backward(dy, ...(saved as Saved)) };
  })(...inputs);
}

/** The name of a kernel that computes row by row. If a row's length is not a multiple of 16: a name that no backend has, so the definition runs. */
export const kernelOfRows = (name: string, { shape }: tf.Tensor) =>
  shape.at(-1)! % 16 === 0 ? name : `${name} by definition`;

/**
 * `a · b` for a gradient or an optimizer step. `engine.bfloat16Products` may round the factors to bfloat16; it never rounds those of
 * `tf.matMul`.
 *
 * @param a  (rows, inner), or (inner, rows) if `transposeA`
 * @param b  (inner, columns), or (columns, inner) if `transposeB`
 */
export function gradientProduct(a: tf.Tensor, b: tf.Tensor, transposeA = false, transposeB = false): tf.Tensor {
  const definition = () => [tf.matMul(a, b, transposeA, transposeB)];
  return fused("GradientProduct", { a, b }, { transposeA, transposeB }, definition)[0]!;
}

/**
 * `x · weightᵀ + addend`. `engine.bfloat16Products` "all" may round `x` and `weight` to bfloat16.
 *
 * @param x       (N, in)
 * @param weight  (out, in)
 * @param addend  (out), a bias, or (N, out). Default: none
 * @returns (N, out)
 */
export function linear(x: tf.Tensor, weight: tf.Tensor, addend?: tf.Tensor): tf.Tensor {
  return withGradient(
    [x, weight, ...(addend ? [addend] : [])],
    (x, weight, addend?: tf.Tensor) => {
      const [y] = fused("Linear", { x, weight, ...(addend && { addend }) }, {}, () => {
        const product = tf.matMul(x, weight, false, true);
        return [addend ? tf.add(product, addend) : product];
      });
      return [y!, x, weight];
    },
    (dy, x, weight) => {
      const factors = [gradientProduct(dy, weight), gradientProduct(dy, x, true)];
      if (addend === undefined) return factors;
      return [...factors, addend.rank === 1 ? tf.sum(dy, 0) : tf.clone(dy)];
    },
  );
}

/**
 * Root-mean-square norm: `y = x / sqrt(mean(x²) + epsilon) * gain`.
 * Source: https://arxiv.org/abs/1910.07467.
 *
 * @param x     (N, width)
 * @param gain  (width)
 */
export function rmsNorm(x: tf.Tensor, gain: tf.Tensor, epsilon: number): tf.Tensor {
  return withGradient(
    [x, gain],
    (x, gain) => {
      const [y, inverse] = fused("RmsNorm", { x, gain }, { epsilon }, () => {
        const inverse = tf.rsqrt(tf.add(tf.mean(tf.square(x), -1, true), epsilon));
        return [tf.mul(tf.mul(x, inverse), gain), inverse];
      });
      return [y!, x, gain, inverse!];
    },
    (dy, x, gain, inverse) =>
      fused(kernelOfRows("RmsNormGradient", x), { x, gain, inverse, dy }, {}, () => {
        // dx = (dy · gain - x · mean(dy · x · gain) · inverse²) · inverse. Each sum is a matrix product with
        // a column or a row, which needs no intermediate tensor.
        const product = tf.mul(dy, x);
        const column = tf.reshape(tf.div(gain, gain.size), [-1, 1]);
        const along = tf.mul(tf.matMul(product, column), tf.square(inverse));
        const dx = tf.mul(tf.sub(tf.mul(dy, gain), tf.mul(x, along)), inverse);
        const dGain = tf.matMul(tf.reshape(inverse, [1, -1]), product);
        return [dx, tf.reshape(dGain, gain.shape)];
      }),
  );
}

/**
 * Gated unit: `silu(gate) * up`, silu(x) = x · sigmoid(x).
 * Source: SwiGLU, https://arxiv.org/abs/2002.05202.
 */
export function swiglu(gate: tf.Tensor, up: tf.Tensor): tf.Tensor {
  return withGradient(
    [gate, up],
    (gate, up) => {
      const [y, ...rest] = fused(kernelOfRows("Swiglu", gate), { gate, up }, {}, () => {
        const s = tf.sigmoid(gate);
        const silu = tf.mul(gate, s);
        return [tf.mul(silu, up), s, silu];
      });
      return [y!, gate, up, ...rest];
    },
    (dy, gate, up, ...rest) =>
      fused(kernelOfRows("SwigluGradient", gate), { gate, up, dy }, {}, () => {
        const [s, silu] = rest as [tf.Tensor, tf.Tensor];
        // silu'(x) = s + s · (x - silu(x)), s = sigmoid(x)
        const slope = tf.add(s, tf.mul(s, tf.sub(gate, silu)));
        return [tf.mul(tf.mul(dy, up), slope), tf.mul(dy, silu)];
      }),
  );
}

/**
 * Gated unit: `gelu(gate) * up`, with the tanh approximation of gelu.
 * Source: GEGLU, https://arxiv.org/abs/2002.05202; gelu_pytorch_tanh of transformers.
 */
export function geglu(gate: tf.Tensor, up: tf.Tensor): tf.Tensor {
  const inner = tf.mul(tf.add(gate, tf.mul(tf.mul(tf.square(gate), gate), 0.044715)), Math.sqrt(2 / Math.PI));
  return tf.mul(tf.mul(tf.mul(gate, 0.5), tf.add(tf.tanh(inner), 1)), up);
}

/**
 * Weights of the experts: the softmax over all experts, with 0 for all but the `used` largest. If `normalized`, the weights are
 * divided by their sum.
 *
 * @param logits  (N, E)
 * @returns (N, E), 0 where an expert is not used
 */
export function expertWeights(logits: tf.Tensor, { count, used, normalized }: Experts): tf.Tensor {
  return withGradient(
    [logits],
    (logits) => {
      const all = tf.softmax(logits, -1);
      const { indices } = tf.topk(all, used);
      const chosen = tf.sum(tf.oneHot(indices, count), 1);
      const shares = tf.mul(all, chosen);
      const weights = normalized ? tf.div(shares, tf.sum(shares, -1, true)) : shares;
      return [weights, chosen, normalized ? weights : all];
    },
    (dy, chosen, base) => {
      // The gradient of a softmax: over the chosen logits if the weights are normalized, else over all.
      const d = tf.mul(dy, chosen);
      return [tf.mul(base, tf.sub(d, tf.sum(tf.mul(d, base), -1, true)))];
    },
  );
}

/**
 * Rotary position embedding, halves layout: `[a·cos - b·sin, b·cos + a·sin]` for x = [a, b].
 * Source: https://arxiv.org/abs/2104.09864; layout as in transformers' rotate_half.
 *
 * @param x         (B, T, H · D)
 * @param cos, sin  (T, D / 2), or (B, T, D / 2) if each row has its own positions
 */
export function rotate(x: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor): tf.Tensor {
  // onnxruntime's operator takes one table for all rows; with a table per row, the definition runs.
  const kernel = cos.rank === 2 ? "Rotate" : "Rotate by definition";
  const [rotated] = fused(kernel, { x, cos, sin }, {}, () => {
    const half = cos.shape.at(-1)!;
    const [batch, length] = x.shape as [number, number];
    const [a, b] = tf.split(tf.reshape(x, [batch, length, -1, 2 * half]), 2, -1) as [tf.Tensor, tf.Tensor];
    const [c, s] = [tf.expandDims(cos, -2), tf.expandDims(sin, -2)];
    const parts = [tf.sub(tf.mul(a, c), tf.mul(b, s)), tf.add(tf.mul(b, c), tf.mul(a, s))];
    return [tf.reshape(tf.concat(parts, -1), x.shape)];
  });
  return rotated!;
}

export interface AttentionShape {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headWidth: number;
  /** Factor of the scores; 1 / sqrt(D) by default. */
  readonly scoreScale?: number | null;
  /** Cached keys and values are 16-bit floats, two in each float of a cache's array. Only machine code reads such caches. */
  readonly halfCaches?: boolean;
  /** Maximum number of tokens that a token sees, itself included. Default: no maximum. */
  readonly window?: number | null;
}

/** The error for caches of 16-bit floats if attention does not run in machine code. */
export const halfCachesUnread = () =>
  new TypeError("only attention in machine code reads caches of 16-bit floats, and headWidth must be a multiple of 16");

export const scoreScaleOf = ({ scoreScale, headWidth }: AttentionShape): number =>
  scoreScale ?? 1 / Math.sqrt(headWidth);

/**
 * Log-probability of one token per row, and the entropy of the row's distribution, both in nats.
 *
 * @param logits   (M, V), already divided by the temperature
 * @param targets  (M) int32
 * @returns logProbs (M) and entropies (M)
 */
export function tokenLogProbs(logits: tf.Tensor, targets: tf.Tensor): { logProbs: tf.Tensor; entropies: tf.Tensor } {
  const [rows, vocabulary] = logits.shape as [number, number];
  // Index of each row's target among all M · V values.
  const placesOf = (targets: tf.Tensor) => tf.add(tf.range(0, rows * vocabulary, vocabulary, "int32"), targets);
  const pair = withGradient(
    [logits],
    (logits) => {
      // What the gradient needs: the kernel keeps two numbers of each row, and the logits. The definition keeps the probabilities and
      // their logarithms.
      const [pair, kept, all = logits] = fused(kernelOfRows("TokenLogProbs", logits), { logits, targets }, {}, () => {
        const all = tf.logSoftmax(logits, -1);
        const probabilities = tf.exp(all);
        const logProb = tf.reshape(tf.gather(tf.reshape(all, [-1]), placesOf(targets)), [rows, 1]);
        const entropy = tf.neg(tf.sum(tf.mul(probabilities, all), -1, true));
        return [tf.concat([logProb, entropy], 1), probabilities, all];
      });
      return [pair!, all, targets, pair!, kept!];
    },
    (dPair, all, targets, pair, kept) => {
      const inputs = { logits: all, targets, pair, statistics: kept, dPair };
      return fused(kernelOfRows("TokenLogProbsGradient", all), inputs, {}, () => {
        const entropy = tf.slice(pair, [0, 1], [rows, 1]);
        const [dLogProb, dEntropy] = tf.split(dPair, 2, 1) as [tf.Tensor, tf.Tensor];
        // d logProb = chosen - p;  d entropy = -p (log p + entropy)
        const factor = tf.neg(tf.add(tf.mul(dEntropy, tf.add(all, entropy)), dLogProb));
        const dLogits = tf.reshape(tf.mul(kept, factor), [-1]);
        const places = placesOf(targets);
        const dChosen = tf.add(tf.gather(dLogits, places), tf.reshape(dLogProb, [-1]));
        const scattered = tf.tensorScatterUpdate(dLogits, tf.reshape(places, [-1, 1]), dChosen);
        return [tf.reshape(scattered, [rows, vocabulary])];
      });
    },
  );
  const [logProbs, entropies] = tf.split(pair, 2, 1) as [tf.Tensor, tf.Tensor];
  return { logProbs: tf.reshape(logProbs, [rows]), entropies: tf.reshape(entropies, [rows]) };
}
