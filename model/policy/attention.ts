/**
 * Causal self-attention over whole sequences, with its gradient: over rows of tokens, and over a prefix tree, in which sequences share
 * the tokens that they begin with.
 *
 * B batch, T tokens, N tokens of a tree, H query heads, K key/value heads, G = H / K, D head width.
 *
 * - The definition computes queries in blocks; a block sees no keys after its end. At T 256 this saves a quarter of the products and of
 *   the (T, T) memory. (The step of bench/step.bench.ts takes 149, 132 and 144 ms in blocks of 64, 128 and 256.)
 * - `matMul(a, b, transposeA)` is slow if a has T columns. So `backward` computes the gradients of keys and values transposed, as (D, T):
 *   then a has D columns.
 */
import * as tf from "@tensorflow/tfjs-core";
import { type AttentionShape, hasKernel, rotate, runKernel, scoreScaleOf, withGradient } from "./ops.ts";

/** Maximum number of queries of a block. */
const BLOCK = 128;

/** Queries [start, end). */
interface Block {
  readonly start: number;
  readonly end: number;
}

/** Results of the forward pass that the gradient needs. */
interface Forward {
  /** (B, T, H · D) */
  readonly out: tf.Tensor;
  /** (B, H, T, D) */
  readonly queries: tf.Tensor;
  /** (B, K, T, D) each */
  readonly keys: tf.Tensor;
  readonly values: tf.Tensor;
  /** (B, K, G · block, end) of each block */
  readonly weights: readonly tf.Tensor[];
}

/**
 * Causal self-attention with grouped key/value heads and rotary positions 0 … T-1.
 * Padding must be at the end of a row; then the causal mask hides it from every real token.
 * Source: grouped-query attention, https://arxiv.org/abs/2305.13245.
 *
 * @param qkv       (B, T, (H + 2K) · D), queries first, then keys, then values
 * @param cos, sin  (T, D / 2)
 * @returns (B, T, H · D)
 */
export function attention(qkv: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor, shape: AttentionShape): tf.Tensor {
  return withGradient(
    [qkv],
    (qkv) => {
      const { out, queries, keys, values, weights } = forward(qkv, cos, sin, shape);
      return [out, cos, sin, out, queries, keys, values, ...weights];
    },
    (dOut, cos, sin, out, queries, keys, values, ...weights) =>
      backward(dOut, { out, queries, keys, values, weights }, cos, sin, shape),
  );
}

/**
 * A prefix tree. Its N tokens lie branch after branch. The path of a branch is a whole sequence: the tokens that it shares with the path
 * before it, then the branch.
 */
export interface PrefixTree {
  /**
   * (branches, 2) int32: the number of shared tokens, and the number of tokens of the path. Both are multiples of 4. A row of zeros
   * follows the last branch.
   */
  readonly branches: tf.Tensor;
  /** (branches, T) int32: for each token of a path, its index among the N tokens; any index for padding. */
  readonly tokenOfPath: tf.Tensor;
  /** (N) int32: the index of each token among the branches · T entries of `tokenOfPath`. */
  readonly pathOfToken: tf.Tensor;
  /** (N / 4) int32: for each four tokens, 0 if no pick is among them, else 1. */
  readonly isPicked: tf.Tensor;
}

/** Longest path that the kernel takes, in tokens. The kernel's stack holds the scores of four queries. */
const TREE_LENGTH_MAX = 4096;

/** True if the kernels of attention over a tree take heads of this shape and paths of up to `length` tokens. */
export const hasTreeKernel = (
  { headWidth, window }: Pick<AttentionShape, "headWidth" | "window">,
  length: number,
): boolean => headWidth % 16 === 0 && (window ?? null) === null && length <= TREE_LENGTH_MAX;

/**
 * `attention` over a prefix tree.
 *
 * @param qkv       (N, (H + 2K) · D)
 * @param cos, sin  (T, D / 2)
 * @param isLast    true if only the picked rows of the result are read: the kernels leave out four queries if no pick is among them
 * @returns (N, H · D)
 */
export function treeAttention(
  qkv: tf.Tensor,
  { branches, tokenOfPath, pathOfToken, isPicked }: PrefixTree,
  cos: tf.Tensor,
  sin: tf.Tensor,
  shape: AttentionShape,
  isLast: boolean,
): tf.Tensor {
  const [paths, length] = tokenOfPath.shape as [number, number];
  if (!hasTreeKernel(shape, length) || length % 16 !== 0 || !hasKernel("TreeAttention")) {
    const rows = tf.reshape(tf.gather(qkv, tf.reshape(tokenOfPath, [-1])), [paths, length, -1]);
    const out = tf.reshape(attention(rows, cos, sin, shape), [paths * length, -1]);
    return tf.gather(out, pathOfToken);
  }
  return withGradient(
    [qkv],
    (qkv) => {
      const isRead = isLast ? isPicked : tf.ones(isPicked.shape, "int32");
      const [out, statistics] = runKernel("TreeAttention", { qkv, branches, cos, sin, isRead }, shape);
      return [out!, qkv, branches, cos, sin, isRead, out!, statistics!];
    },
    (dOut, qkv, branches, cos, sin, isRead, out, statistics) => {
      const inputs = { qkv, branches, cos, sin, isRead, out, statistics, dOut };
      return runKernel("TreeAttentionGradient", inputs, shape);
    },
  );
}

function forward(qkv: tf.Tensor, cos: tf.Tensor, sin: tf.Tensor, shape: AttentionShape): Forward {
  const { heads, kvHeads, headWidth } = shape;
  const widths = [heads * headWidth, kvHeads * headWidth, kvHeads * headWidth];
  const [q, k, v] = tf.split(qkv, widths, -1) as [tf.Tensor, tf.Tensor, tf.Tensor];
  const scale = scoreScaleOf(shape);
  // The rotation of the queries also applies the scale of the scores.
  const queries = byHead(rotate(q, tf.mul(cos, scale), tf.mul(sin, scale)), shape);
  const keys = byHead(rotate(k, cos, sin), shape);
  const values = byHead(v, shape);
  const blocks = blocksOf(qkv.shape[1]!);
  const weights = blocks.map((block) => {
    const scores = tf.matMul(blockRows(queries, block, shape), cut(keys, 0, block.end), false, true);
    return tf.softmax(tf.add(scores, causalMask(block, shape)), -1);
  });
  const mixed = weights.map((weight, i) => tf.matMul(weight, cut(values, 0, blocks[i]!.end)));
  return { out: toRows(fromBlocks(mixed, blocks, shape)), queries, keys, values, weights };
}

/** @returns the gradient of `qkv`. */
function backward(dOut: tf.Tensor, forward: Forward, cos: tf.Tensor, sin: tf.Tensor, shape: AttentionShape): tf.Tensor {
  const { out, queries, keys, values, weights } = forward;
  const { heads, headWidth } = shape;
  const [batch, length] = dOut.shape as [number, number];
  const blocks = blocksOf(length);
  const dMixed = byHead(dOut, shape);
  // Softmax backward needs sum(dWeights · weights) per row, which is sum(dOut · out) per row and head.
  const perHead = tf.sum(tf.reshape(tf.mul(dOut, out), [batch, length, heads, headWidth]), -1, true);
  const along = tf.transpose(perHead, [0, 2, 1, 3]);
  const parts = blocks.map((block, i) => {
    const [dBlock, weight] = [blockRows(dMixed, block, shape), weights[i]!];
    const dWeights = tf.matMul(dBlock, cut(values, 0, block.end), false, true);
    const dScores = tf.mul(weight, tf.sub(dWeights, blockRows(along, block, shape)));
    return {
      queries: tf.matMul(dScores, cut(keys, 0, block.end)),
      keys: tf.matMul(blockRows(queries, block, shape), dScores, true, false),
      values: tf.matMul(dBlock, weight, true, false),
    };
  });
  // Pads (B, K, D, end) of each block to (B, K, D, T), adds the blocks up, and returns (B, T, K · D).
  const total = (name: "keys" | "values") => {
    const padded = parts.map((part, i) =>
      tf.pad(part[name], [
        [0, 0],
        [0, 0],
        [0, 0],
        [0, length - blocks[i]!.end],
      ]),
    );
    const sum = padded.reduce((a, b) => tf.add(a, b));
    return tf.reshape(tf.transpose(sum, [0, 3, 1, 2]), [batch, length, -1]);
  };
  const scale = scoreScaleOf(shape);
  const dQueries = parts.map((part) => part.queries);
  // The gradient of a rotation is the rotation by minus the angle.
  const dq = rotate(toRows(fromBlocks(dQueries, blocks, shape)), tf.mul(cos, scale), tf.mul(sin, -scale));
  return tf.concat([dq, rotate(total("keys"), cos, tf.neg(sin)), total("values")], -1);
}

function blocksOf(length: number): Block[] {
  const count = Math.ceil(length / BLOCK);
  return Array.from({ length: count }, (_, i) => ({ start: i * BLOCK, end: Math.min((i + 1) * BLOCK, length) }));
}

/** (G · block, end): 0 where a query sees the key, elsewhere a number so low that softmax gives 0 or a subnormal number (engine/subnormals.ts). */
function causalMask({ start, end }: Block, { heads, kvHeads, window }: AttentionShape): tf.Tensor {
  const [group, rows] = [heads / kvHeads, end - start];
  const mask = new Float32Array(group * rows * end);
  for (let row = 0; row < group * rows; row++) {
    const behind = start + (row % rows) + 1;
    mask.fill(-1e30, row * end + behind, (row + 1) * end);
    mask.fill(-1e30, row * end, row * end + Math.max(0, behind - (window ?? end)));
  }
  return tf.tensor(mask, [group * rows, end]);
}

/** (B, T, heads · D) to (B, heads, T, D). */
function byHead(rows: tf.Tensor, { headWidth }: AttentionShape): tf.Tensor {
  const [batch, length] = rows.shape as [number, number];
  return tf.transpose(tf.reshape(rows, [batch, length, -1, headWidth]), [0, 2, 1, 3]);
}

/** (B, heads, T, D) to (B, T, heads · D). */
function toRows(x: tf.Tensor): tf.Tensor {
  const [batch, , length] = x.shape as [number, number, number];
  return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [batch, length, -1]);
}

/** Tokens [start, end) of (B, heads, T, width). */
function cut(x: tf.Tensor, start: number, end: number): tf.Tensor {
  return start === 0 && end === x.shape[2] ? x : tf.slice(x, [0, 0, start, 0], [-1, -1, end - start, -1]);
}

/** The block's rows of (B, H, T, width) as (B, K, G · block, width): rows of the same key/value head are adjacent. */
function blockRows(x: tf.Tensor, { start, end }: Block, { heads, kvHeads }: AttentionShape): tf.Tensor {
  const rows = (heads / kvHeads) * (end - start);
  return tf.reshape(cut(x, start, end), [x.shape[0]!, kvHeads, rows, x.shape[3]!]);
}

/** The inverse of `blockRows` for all blocks: (B, K, G · block, D) each to (B, H, T, D). */
function fromBlocks(
  parts: readonly tf.Tensor[],
  blocks: readonly Block[],
  { heads, headWidth }: AttentionShape,
): tf.Tensor {
  const perHead = parts.map((part, i) =>
    tf.reshape(part, [part.shape[0]!, heads, blocks[i]!.end - blocks[i]!.start, headWidth]),
  );
  return perHead.length === 1 ? perHead[0]! : tf.concat(perHead, 2);
}
