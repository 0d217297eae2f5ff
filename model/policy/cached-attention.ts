/**
 * Attention of new tokens over the cached keys and values of earlier ones. Caches have a fixed size.
 *
 * B batch, S new tokens of a row, H query heads, K key/value heads, G = H / K, D head width, C capacity in tokens, N slots,
 * R places of a cache that are read.
 *
 * - A row's result depends bit for bit on its own tokens and cache only: the number of rows does not change the order in which
 *   a product adds up.
 * - Caches are written in place if the engine's output array is the input array.
 */
import * as tf from "@tensorflow/tfjs-core";
import { type AttentionShape, fused, rotate, scoreScaleOf } from "./ops.ts";

export interface CachedAttention {
  /** (B, S, H · D) */
  readonly out: tf.Tensor;
  /** In the shape of the input caches, with the new tokens written. */
  readonly keys: tf.Tensor;
  readonly values: tf.Tensor;
}

/** Tables of the rotary embedding, (C, D / 2) each. */
export interface Rotary {
  readonly cos: tf.Tensor;
  readonly sin: tf.Tensor;
}

/**
 * One new token for each row.
 *
 * @param qkv          (B, 1, (H + 2K) · D)
 * @param keys, values (B, K, C, D); keys are rotated
 * @param last         (B) int32: the new token's index in its sequence
 * @param total        () int32: largest `last` + 1
 */
export function stepAttention(
  qkv: tf.Tensor,
  keys: tf.Tensor,
  values: tf.Tensor,
  last: tf.Tensor,
  total: tf.Tensor,
  { cos, sin }: Rotary,
  shape: AttentionShape,
): CachedAttention {
  const [batch, , capacity] = keys.shape as [number, number, number];
  // onnxruntime's attention takes head widths that are multiples of 16; for others the definition runs.
  const kernel = shape.headWidth % 16 === 0 ? "CachedAttention" : "CachedAttention by definition";
  const results = fused(kernel, { qkv, keys, values, last, total, cos, sin }, shape, () => {
    const flat = (cache: tf.Tensor) => tf.reshape(cache, [-1, shape.headWidth]);
    const positions = tf.reshape(last, [batch, 1]);
    const places = { capacity, placesRead: capacity };
    const result = appendAttention(qkv, flat(keys), flat(values), null, positions, { cos, sin }, shape, places);
    return [result.out, tf.reshape(result.keys, keys.shape), tf.reshape(result.values, values.shape)];
  });
  const [out, nextKeys, nextValues] = results as [tf.Tensor, tf.Tensor, tf.Tensor];
  return { out, keys: nextKeys, values: nextValues };
}

/**
 * Several new tokens in each of the given slots.
 *
 * @param qkv          (B, S, (H + 2K) · D)
 * @param keys, values (N · K · C, D), of all slots; keys are rotated
 * @param slots        (B) int32: the slot of each row; null: row i is slot i, for all slots
 * @param positions    (B, S) int32: each token's index in its sequence; ascending, except for padding at the end of a row
 * @param places       C, and R of at least the highest position + 1
 */
export function appendAttention(
  qkv: tf.Tensor,
  keys: tf.Tensor,
  values: tf.Tensor,
  slots: tf.Tensor | null,
  positions: tf.Tensor,
  { cos, sin }: Rotary,
  shape: AttentionShape,
  { capacity, placesRead }: { readonly capacity: number; readonly placesRead: number },
): CachedAttention {
  const { heads, kvHeads, headWidth, window = null } = shape;
  const [batch, added] = qkv.shape as [number, number];
  const widths = [heads * headWidth, kvHeads * headWidth, kvHeads * headWidth];
  const [q, k, v] = tf.split(qkv, widths, -1) as [tf.Tensor, tf.Tensor, tf.Tensor];
  const [c, s] = [tf.gather(cos, positions), tf.gather(sin, positions)];
  // (slot, head, position) as one row number of the cache, for each (row, token, head) in the order of the projections.
  const [headCount, length] = [tf.scalar(kvHeads, "int32"), tf.scalar(capacity, "int32")];
  const owner = tf.add(
    tf.mul(tf.reshape(slots ?? tf.range(0, batch, 1, "int32"), [batch, 1, 1]), headCount),
    tf.range(0, kvHeads, 1, "int32"),
  );
  const places = tf.add(tf.mul(owner, length), tf.reshape(positions, [batch, added, 1]));
  const write = (cache: tf.Tensor, fresh: tf.Tensor) =>
    tf.tensorScatterUpdate(cache, tf.reshape(places, [-1, 1]), tf.reshape(fresh, [-1, headWidth]));
  const nextKeys = write(keys, rotate(k, c, s));
  const nextValues = write(values, v);
  const read = tf.add(
    tf.mul(tf.reshape(owner, [-1, kvHeads, 1]), length),
    tf.reshape(tf.range(0, placesRead, 1, "int32"), [1, 1, placesRead]),
  );
  /** (B, K, R, D) */
  const own = (cache: tf.Tensor) => tf.gather(cache, read);
  const group = heads / kvHeads;
  const byHead = tf.transpose(tf.reshape(rotate(q, c, s), [batch, added, heads, headWidth]), [0, 2, 1, 3]);
  const queries = tf.reshape(byHead, [batch, kvHeads, group * added, headWidth]);
  const scores = tf.mul(tf.matMul(queries, own(nextKeys), false, true), scoreScaleOf(shape));
  const columns = tf.reshape(tf.range(0, placesRead, 1, "int32"), [1, 1, placesRead]);
  const rows = tf.reshape(positions, [batch, added, 1]);
  const later = tf.cast(tf.greater(columns, rows), "float32");
  const unseen =
    window === null
      ? later
      : tf.add(later, tf.cast(tf.lessEqual(columns, tf.sub(rows, tf.scalar(window, "int32"))), "float32"));
  const mask = tf.tile(tf.reshape(tf.mul(unseen, -1e30), [batch, 1, added, placesRead]), [1, 1, group, 1]);
  const mixed = tf.matMul(tf.softmax(tf.add(scores, mask), -1), own(nextValues));
  const byToken = tf.transpose(tf.reshape(mixed, [batch, heads, added, headWidth]), [0, 2, 1, 3]);
  return {
    out: tf.reshape(byToken, [batch, added, heads * headWidth]),
    keys: nextKeys,
    values: nextValues,
  };
}
