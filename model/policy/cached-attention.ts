/**
 * Attention of new tokens over the cached keys and values of earlier tokens. Caches have a fixed size.
 *
 * B batch, S new tokens of a row, H query heads, K key/value heads, G = H / K, D head width, C capacity in tokens.
 *
 * - A row's result depends bit for bit on its own tokens and cache only: the number of rows does not change the order in which
 *   a product adds up.
 * - The engine writes a cache in place if the output's array is the input's array.
 */
import * as tf from "@tensorflow/tfjs-core";
import { type AttentionShape, fused, halfCachesUnread, rotate, scoreScaleOf } from "./ops.ts";

export interface CachedAttention<Caches = tf.Tensor> {
  /** (B, S, H · D) */
  readonly out: tf.Tensor;
  /** In the shape of the input caches, with the new tokens written. */
  readonly keys: Caches;
  readonly values: Caches;
}

/** Tables of the rotary embedding, (C, D / 2) each. */
export interface Rotary {
  readonly cos: tf.Tensor;
  readonly sin: tf.Tensor;
}

/** The kernels take head widths and capacities that are multiples of 16. For other sizes the definition runs. */
function kernelFor(name: string, { headWidth, halfCaches = false }: AttentionShape, { shape }: tf.Tensor): string {
  const capacity = halfCaches ? 2 * shape[2]! : shape[2]!;
  return headWidth % 16 === 0 && capacity % 16 === 0 ? name : `${name} by definition`;
}

/** The inputs of attention over caches that all rows share. */
export interface CachedInputs extends Rotary {
  /** (B, S, (H + 2K) · D) */
  readonly qkv: tf.Tensor;
  /** (N, K, C, D) each; keys are rotated. */
  readonly keys: tf.Tensor;
  readonly values: tf.Tensor;
  /** (B) int32: for each row, the index of its last new token in its sequence. */
  readonly last: tf.Tensor;
  /** (B) int32: the slot of each row, from 0 to N - 1, all different. Default: row i has slot i, N is B, and S is 1. */
  readonly slots?: tf.Tensor;
  /** Needed without `slots`. () int32: largest `last` + 1. */
  readonly total?: tf.Tensor;
  /**
   * Only with `slots`. (B) int32: for each row, the index among S of the only token whose result the caller reads. The results of the other
   * tokens may be any numbers. Default: the caller reads all results.
   */
  readonly read?: tf.Tensor;
}

/** New tokens of rows that share caches, so an engine runs a few large kernels. */
export function cachedAttention(inputs: CachedInputs, shape: AttentionShape): CachedAttention {
  const kernel = inputs.slots === undefined ? "CachedAttention" : "AttentionInSlots";
  const [out, keys, values] = fused(kernelFor(kernel, shape, inputs.keys), { ...inputs }, shape, () =>
    byDefinition(inputs, shape),
  );
  return { out: out!, keys: keys!, values: values! };
}

/**
 * Several new tokens for each row. The caches of each row are tensors of their own, so the rows may be any slots of the decoder.
 *
 * @param qkv          (B, S, (H + 2K) · D)
 * @param keys, values B tensors (1, K, C, D); keys are rotated
 * @param last         (B) int32: for each row, the index of its last new token in its sequence
 */
export function appendAttention(
  qkv: tf.Tensor,
  keys: readonly tf.Tensor[],
  values: readonly tf.Tensor[],
  last: tf.Tensor,
  rotary: Rotary,
  shape: AttentionShape,
): CachedAttention<readonly tf.Tensor[]> {
  const rows = keys.length;
  const named = (name: string, caches: readonly tf.Tensor[]) => caches.map((cache, row) => [`${name}.${row}`, cache]);
  const caches = Object.fromEntries(named("keys", keys).concat(named("values", values)));
  const inputs = { qkv, last, ...rotary, ...caches };
  const results = fused(kernelFor("CachedAppend", shape, keys[0]!), inputs, shape, () => {
    const together = (caches: readonly tf.Tensor[]) => tf.concat([...caches], 0);
    const shared = { qkv, keys: together(keys), values: together(values), last, ...rotary };
    const [out, nextKeys, nextValues] = byDefinition(shared, shape);
    return [out, ...tf.split(nextKeys, rows), ...tf.split(nextValues, rows)];
  });
  return { out: results[0]!, keys: results.slice(1, 1 + rows), values: results.slice(1 + rows) };
}

/** `cachedAttention` for any number of new tokens, by tfjs ops. */
function byDefinition(
  { qkv, keys, values, last, cos, sin, slots }: CachedInputs,
  shape: AttentionShape,
): [out: tf.Tensor, keys: tf.Tensor, values: tf.Tensor] {
  const { heads, kvHeads, headWidth, window = null, halfCaches = false } = shape;
  if (halfCaches) throw halfCachesUnread();
  const [batch, added] = qkv.shape as [number, number];
  const capacity = keys.shape[2]!;
  const widths = [heads * headWidth, kvHeads * headWidth, kvHeads * headWidth];
  const [q, k, v] = tf.split(qkv, widths, -1) as [tf.Tensor, tf.Tensor, tf.Tensor];
  /** (B, S) */
  const positions = tf.add(tf.reshape(last, [batch, 1]), tf.range(1 - added, 1, 1, "int32"));
  const [c, s] = [tf.gather(cos, positions), tf.gather(sin, positions)];
  // For each (row, token, head), in the order of the projections: the row of the flat cache that takes this token's key or value.
  const firstHeads = tf.mul(slots ?? tf.range(0, batch, 1, "int32"), tf.scalar(kvHeads, "int32"));
  const owner = tf.add(
    tf.reshape(firstHeads, [batch, 1, 1]),
    tf.reshape(tf.range(0, kvHeads, 1, "int32"), [1, 1, kvHeads]),
  );
  const places = tf.add(tf.mul(owner, tf.scalar(capacity, "int32")), tf.reshape(positions, [batch, added, 1]));
  const write = (cache: tf.Tensor, fresh: tf.Tensor) => {
    const flat = tf.reshape(cache, [-1, headWidth]);
    const written = tf.tensorScatterUpdate(flat, tf.reshape(places, [-1, 1]), tf.reshape(fresh, [-1, headWidth]));
    return tf.reshape(written, cache.shape);
  };
  const nextKeys = write(keys, rotate(k, c, s));
  const nextValues = write(values, v);
  const group = heads / kvHeads;
  const byHead = tf.transpose(tf.reshape(rotate(q, c, s), [batch, added, heads, headWidth]), [0, 2, 1, 3]);
  const queries = tf.reshape(byHead, [batch, kvHeads, group * added, headWidth]);
  const ofRows = (cache: tf.Tensor) => (slots === undefined ? cache : tf.gather(cache, slots));
  const scores = tf.mul(tf.matMul(queries, ofRows(nextKeys), false, true), scoreScaleOf(shape));
  const columns = tf.reshape(tf.range(0, capacity, 1, "int32"), [1, 1, capacity]);
  const rows = tf.reshape(positions, [batch, added, 1]);
  const later = tf.cast(tf.greater(columns, rows), "float32");
  const unseen =
    window === null
      ? later
      : tf.add(later, tf.cast(tf.lessEqual(columns, tf.sub(rows, tf.scalar(window, "int32"))), "float32"));
  const mask = tf.tile(tf.reshape(tf.mul(unseen, -1e30), [batch, 1, added, capacity]), [1, 1, group, 1]);
  const mixed = tf.matMul(tf.softmax(tf.add(scores, mask), -1), ofRows(nextValues));
  const byToken = tf.transpose(tf.reshape(mixed, [batch, heads, added, headWidth]), [0, 2, 1, 3]);
  return [tf.reshape(byToken, [batch, added, heads * headWidth]), nextKeys, nextValues];
}
