/**
 * The operations of a transformer that are worth fusing. Each is defined by ordinary tfjs ops (so any backend runs it) with
 * an explicit gradient; where the backend has a kernel of that name, the kernel is used instead. `fused.ts` writes those
 * kernels as onnxruntime operators.
 *
 * B batch, T tokens, H query heads, K key/value heads, G = H / K, D head width, N rows, M rows with a loss, V vocabulary.
 */
import * as tf from "@tensorflow/tfjs-core";
import "@tensorflow/tfjs-core/dist/register_all_gradients.js";

/** Destructured: a function that saved seven tensors gets seven back. */
type Tensors = [tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor];

/** Run kernel `name` where the backend has it, else the definition. Returns as many tensors as the definition does. */
function fused(
  name: string,
  inputs: tf.NamedTensorMap,
  attributes: object,
  definition: () => tf.Tensor[],
): tf.Tensor[] {
  if (tf.getKernel(name, tf.getBackend()) === undefined) return definition();
  const result = tf.engine().runKernel(name, inputs, attributes as tf.NamedAttrMap) as tf.Tensor | tf.Tensor[];
  return Array.isArray(result) ? result : [result];
}

/**
 * Root-mean-square norm: `y = x / sqrt(mean(x²) + epsilon) * gain`.
 * Source: https://arxiv.org/abs/1910.07467.
 *
 * @param x     (N, width)
 * @param gain  (width)
 */
export function rmsNorm(x: tf.Tensor, gain: tf.Tensor, epsilon: number): tf.Tensor {
  return tf.customGrad((...args) => {
    const save = args.pop() as unknown as tf.GradSaveFunc;
    const [x, gain] = args as tf.Tensor[];
    const [y, inverse] = fused("RmsNorm", { x: x!, gain: gain! }, { epsilon }, () => {
      const inverse = tf.rsqrt(tf.add(tf.mean(tf.square(x!), -1, true), epsilon));
      return [tf.mul(tf.mul(x!, inverse), gain!), inverse];
    });
    save([x!, gain!, inverse!]);
    return {
      value: y!,
      gradFunc: (dy: tf.Tensor, saved: tf.Tensor[]) => {
        const [x, gain, inverse] = saved as [tf.Tensor, tf.Tensor, tf.Tensor];
        const normed = tf.mul(x, inverse);
        const product = tf.mul(dy, normed);
        // mean over the width of dy * gain * normed, as a product with a column: one pass instead of two.
        const column = tf.reshape(tf.div(gain, gain.size), [-1, 1]);
        const along = tf.matMul(product, column);
        const dx = tf.mul(tf.sub(tf.mul(dy, gain), tf.mul(normed, along)), inverse);
        return [dx, tf.sum(product, 0)];
      },
    };
  })(x, gain);
}

/**
 * Gated unit: `silu(gate) * up`, silu(x) = x · sigmoid(x).
 * Source: SwiGLU, https://arxiv.org/abs/2002.05202.
 */
export function swiglu(gate: tf.Tensor, up: tf.Tensor): tf.Tensor {
  return tf.customGrad((...args) => {
    const save = args.pop() as unknown as tf.GradSaveFunc;
    const [gate, up] = args as tf.Tensor[];
    const [silu] = fused("Silu", { x: gate! }, {}, () => [tf.mul(gate!, tf.sigmoid(gate!))]);
    save([gate!, up!, silu!]);
    return {
      value: tf.mul(silu!, up!),
      gradFunc: (dy: tf.Tensor, saved: tf.Tensor[]) => {
        const [gate, up, silu] = saved as [tf.Tensor, tf.Tensor, tf.Tensor];
        // silu'(x) = s + s · (x - silu(x)), s = sigmoid(x)
        const s = tf.sigmoid(gate);
        const slope = tf.add(s, tf.mul(s, tf.sub(gate, silu)));
        return [tf.mul(tf.mul(dy, up), slope), tf.mul(dy, silu)];
      },
    };
  })(gate, up);
}

/**
 * Rotary position embedding, halves layout: `[a·cos - b·sin, b·cos + a·sin]` for x = [a, b].
 * Source: https://arxiv.org/abs/2104.09864; layout as in transformers' rotate_half.
 *
 * @param x         (B, H, T, D)
 * @param cos, sin  (T, D / 2)
 */
export function rotate(x: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor): tf.Tensor {
  // onnxruntime's operator takes one table for all rows; a table of each row's own runs by definition.
  const kernel = cos.rank === 2 ? "Rotate" : "Rotate by definition";
  const [rotated] = fused(kernel, { x, cos, sin }, {}, () => {
    const [a, b] = tf.split(x, 2, -1) as [tf.Tensor, tf.Tensor];
    return [tf.concat([tf.sub(tf.mul(a, cos), tf.mul(b, sin)), tf.add(tf.mul(b, cos), tf.mul(a, sin))], -1)];
  });
  return rotated!;
}

/** Angles of the rotary embedding for positions 0 … length - 1: `position / theta^(2 i / D)`. @returns (length, D / 2) each */
export function rotaryTables(
  length: number,
  headWidth: number,
  theta: number,
): { cos: Float32Array; sin: Float32Array } {
  const half = headWidth / 2;
  const cos = new Float32Array(length * half);
  const sin = new Float32Array(length * half);
  for (let position = 0; position < length; position++) {
    for (let i = 0; i < half; i++) {
      const angle = position / theta ** ((2 * i) / headWidth);
      cos[position * half + i] = Math.cos(angle);
      sin[position * half + i] = Math.sin(angle);
    }
  }
  return { cos, sin };
}

export interface Heads {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headWidth: number;
}

/** onnxruntime's attention takes head widths that are multiples of 16; others run by definition. */
const attentionKernel = (name: string, { headWidth }: Heads) => (headWidth % 16 === 0 ? name : `${name} by definition`);

/** Split packed (B, T, (H + 2K) · D) into queries (B, H, T, D), keys and values (B, K, T, D). */
function unpack(qkv: tf.Tensor, { heads, kvHeads, headWidth }: Heads): [tf.Tensor, tf.Tensor, tf.Tensor] {
  const [batch, length] = qkv.shape as [number, number];
  const parts = tf.split(qkv, [heads * headWidth, kvHeads * headWidth, kvHeads * headWidth], -1);
  return parts.map((part) => tf.transpose(tf.reshape(part, [batch, length, -1, headWidth]), [0, 2, 1, 3])) as never;
}

/** Heads back into rows: (B, H, T, D) to (B, T, H · D). */
function toRows(x: tf.Tensor): tf.Tensor {
  const [batch, heads, length, width] = x.shape as [number, number, number, number];
  return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [batch, length, heads * width]);
}

/** Above the diagonal a large negative number, so that softmax gives exactly 0 there. */
function causalMask(length: number): tf.Tensor {
  const mask = new Float32Array(length * length);
  for (let row = 0; row < length; row++) mask.fill(-1e30, row * length + row + 1, (row + 1) * length);
  return tf.tensor(mask, [length, length]);
}

/**
 * Causal self-attention with grouped key/value heads and rotary positions 0 … T-1.
 * Padding must be at the end of a row: causality then keeps it out of every real token.
 * Source: grouped-query attention, https://arxiv.org/abs/2305.13245.
 *
 * @param qkv       (B, T, (H + 2K) · D), queries first, then keys, then values
 * @param cos, sin  (T, D / 2)
 * @returns (B, T, H · D)
 */
export function attention(qkv: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor, shape: Heads): tf.Tensor {
  const { heads, kvHeads, headWidth } = shape;
  const [batch, length] = qkv.shape as [number, number];
  const grouped = [batch, kvHeads, (heads / kvHeads) * length, headWidth];
  const scale = 1 / Math.sqrt(headWidth);
  return tf.customGrad((...args) => {
    const save = args.pop() as unknown as tf.GradSaveFunc;
    const [qkv] = args as tf.Tensor[];
    const [out, keys, values, weights] = fused(
      attentionKernel("CausalAttention", shape),
      { qkv: qkv!, cos, sin },
      shape,
      () => {
        const [q, k, v] = unpack(qkv!, shape);
        const keys = rotate(k, cos, sin);
        const queries = tf.reshape(rotate(q, cos, sin), grouped);
        const scores = tf.reshape(tf.mul(tf.matMul(queries, keys, false, true), scale), [batch, heads, length, length]);
        const weights = tf.softmax(tf.add(scores, causalMask(length)), -1);
        const mixed = tf.matMul(tf.reshape(weights, [...grouped.slice(0, 3), length]), v);
        return [toRows(tf.reshape(mixed, [batch, heads, length, headWidth])), keys, v, weights];
      },
    );
    save([qkv!, out!, keys!, values!, weights!, cos, sin]);
    return {
      value: out!,
      gradFunc: (dOut: tf.Tensor, saved: tf.Tensor[]) => {
        const [qkv, out, keys, values, probabilities, cos, sin] = saved as Tensors;
        const byHead = (x: tf.Tensor) => tf.transpose(tf.reshape(x, [batch, length, heads, headWidth]), [0, 2, 1, 3]);
        const weights = tf.reshape(probabilities, [...grouped.slice(0, 3), length]);
        const q = byHead(tf.slice(qkv, [0, 0, 0], [-1, -1, heads * headWidth]));
        const queries = tf.reshape(rotate(q, cos, sin), grouped);
        const dMixed = tf.reshape(byHead(dOut), grouped);
        const dValues = tf.matMul(weights, dMixed, true, false);
        // Softmax backward needs sum(dWeights · weights) per row, which is sum(dOut · out) per row and head.
        const rowSum = tf.sum(tf.reshape(tf.mul(dOut, out), [batch, length, heads, headWidth]), -1);
        const along = tf.reshape(tf.transpose(rowSum, [0, 2, 1]), [...grouped.slice(0, 3), 1]);
        const dScores = tf.mul(weights, tf.sub(tf.matMul(dMixed, values, false, true), along));
        // The way back through the rotation is the rotation by minus the angle; the score's scale rides along in its table.
        const [cosBack, sinBack] = [tf.mul(cos, scale), tf.mul(sin, -scale)];
        const dQueries = tf.reshape(tf.matMul(dScores, keys), [batch, heads, length, headWidth]);
        const dKeys = tf.matMul(dScores, queries, true, false);
        const parts = [rotate(dQueries, cosBack, sinBack), rotate(dKeys, cosBack, sinBack), dValues];
        return [tf.concat(parts.map(toRows), -1)];
      },
    };
  })(qkv);
}

/**
 * Attention of new tokens over a cache, which is returned with them written into it.
 * Either one new token per row (S = 1, any B), or several for one row (B = 1).
 *
 * @param qkv          (B, S, (H + 2K) · D)
 * @param keys, values (B, K, C, D), C the capacity in tokens; rotated keys
 * @param last         (B) int32: index of each row's last token after this call
 * @param total        () int32: largest `last` + 1
 * @param cos, sin     (C, D / 2)
 * @returns (B, S, H · D), and the caches
 */
export function cachedAttention(
  qkv: tf.Tensor,
  keys: tf.Tensor,
  values: tf.Tensor,
  last: tf.Tensor,
  total: tf.Tensor,
  cos: tf.Tensor,
  sin: tf.Tensor,
  shape: Heads,
): [out: tf.Tensor, keys: tf.Tensor, values: tf.Tensor] {
  const { heads, kvHeads, headWidth } = shape;
  const [batch, added] = qkv.shape as [number, number];
  if (batch !== 1 && added !== 1)
    throw new RangeError(`cachedAttention takes one token per row or one row, got ${batch} rows of ${added} tokens`);
  const capacity = keys.shape[2]!;
  const result = fused(
    attentionKernel("CachedAttention", shape),
    { qkv, keys, values, last, total, cos, sin },
    shape,
    () => {
      const [q, k, v] = unpack(qkv, shape);
      // Rows times added tokens; position of token j of row b is last[b] - added + 1 + j.
      const steps = tf.reshape(tf.range(1 - added, 1, 1, "int32"), [1, added]);
      const positions = tf.add(tf.reshape(last, [batch, 1]), steps);
      const angle = (table: tf.Tensor) => tf.reshape(tf.gather(table, positions), [batch, 1, added, headWidth / 2]);
      const at = tf.cast(tf.oneHot(positions, capacity), "float32");
      const write = (cache: tf.Tensor, fresh: tf.Tensor) => {
        const taken = tf.reshape(tf.sum(at, 1), [batch, 1, capacity, 1]);
        const place = tf.tile(tf.reshape(at, [batch, 1, added, capacity]), [1, kvHeads, 1, 1]);
        return tf.add(tf.mul(cache, tf.sub(1, taken)), tf.matMul(place, fresh, true, false));
      };
      const nextKeys = write(keys, rotate(k, angle(cos), angle(sin)));
      const nextValues = write(values, v);
      const group = heads / kvHeads;
      const queries = tf.reshape(rotate(q, angle(cos), angle(sin)), [batch, kvHeads, group * added, headWidth]);
      const scores = tf.mul(tf.matMul(queries, nextKeys, false, true), 1 / Math.sqrt(headWidth));
      const columns = tf.reshape(tf.range(0, capacity, 1, "int32"), [1, 1, capacity]);
      const hidden = tf.cast(tf.greater(columns, tf.reshape(positions, [batch, added, 1])), "float32");
      const mask = tf.tile(tf.reshape(tf.mul(hidden, -1e30), [batch, 1, added, capacity]), [1, 1, group, 1]);
      const mixed = tf.matMul(tf.softmax(tf.add(scores, mask), -1), nextValues);
      return [toRows(tf.reshape(mixed, [batch, heads, added, headWidth])), nextKeys, nextValues];
    },
  );
  return result as [tf.Tensor, tf.Tensor, tf.Tensor];
}

/**
 * Log-probability of one token per row, and the entropy of the row's distribution, both in nats.
 *
 * @param logits   (M, V), already divided by the temperature
 * @param targets  (M) int32
 * @returns logProbs (M) and entropies (M)
 */
export function tokenLogProbs(logits: tf.Tensor, targets: tf.Tensor): { logProbs: tf.Tensor; entropies: tf.Tensor } {
  const [rows, vocabulary] = logits.shape as [number, number];
  const pair = tf.customGrad((...args) => {
    const save = args.pop() as unknown as tf.GradSaveFunc;
    const [logits] = args as tf.Tensor[];
    const all = tf.logSoftmax(logits!, -1);
    const probabilities = tf.exp(all);
    const chosen = tf.cast(tf.oneHot(targets as tf.Tensor1D, vocabulary), "float32");
    const logProb = tf.sum(tf.mul(all, chosen), -1, true);
    const entropy = tf.neg(tf.sum(tf.mul(probabilities, all), -1, true));
    save([all, probabilities, entropy, chosen]);
    return {
      value: tf.concat([logProb, entropy], 1),
      gradFunc: (dPair: tf.Tensor, saved: tf.Tensor[]) => {
        const [all, probabilities, entropy, chosen] = saved as [tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor];
        const [dLogProb, dEntropy] = tf.split(dPair, 2, 1) as [tf.Tensor, tf.Tensor];
        // d logProb = chosen - p;  d entropy = -p (log p + entropy)
        const pull = tf.add(tf.mul(dEntropy, tf.add(all, entropy)), dLogProb);
        return [tf.sub(tf.mul(chosen, dLogProb), tf.mul(probabilities, pull))];
      },
    };
  })(logits);
  const [logProbs, entropies] = tf.split(pair, 2, 1) as [tf.Tensor, tf.Tensor];
  return { logProbs: tf.reshape(logProbs, [rows]), entropies: tf.reshape(entropies, [rows]) };
}
