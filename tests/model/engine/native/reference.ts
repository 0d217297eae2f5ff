/**
 * Attention and its gradient in float64, loop by loop, slow and obvious on purpose: nothing here is from model/.
 *
 * B rows, T tokens, H query heads, K key/value heads, D head width; qkv is (B, T, (H + 2K) · D).
 */

/** Shape of a test; a query sees the last `window` tokens, itself included, or all. */
export interface ReferenceShape {
  readonly rows: number;
  readonly tokens: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headWidth: number;
  readonly scale: number;
  readonly window?: number | null;
  /** Rotated keys and values are rounded to 16-bit floats. */
  readonly half?: boolean;
}

/** (T, D / 2) each. */
export interface Tables {
  readonly cos: ArrayLike<number>;
  readonly sin: ArrayLike<number>;
}

/** [a · cos - b · sin, b · cos + a · sin] for x = [a, b]; `sign` -1 is the transposed map. */
function rotated(x: ArrayLike<number>, from: number, width: number, token: number, { cos, sin }: Tables, sign = 1) {
  const half = width / 2;
  return Array.from({ length: width }, (_, i) => {
    const [c, s] = [cos[token * half + (i % half)]!, sign * sin[token * half + (i % half)]!];
    return i < half ? x[from + i]! * c - x[from + i + half]! * s : x[from + i]! * c + x[from + i - half]! * s;
  });
}

const dot = (a: readonly number[], b: readonly number[]) => {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
};

/** One query of a row, with the keys and values that the query sees. */
interface Query {
  readonly token: number;
  /** First token that the query sees. */
  readonly first: number;
  /** Places of the query in qkv, and of its result. */
  readonly at: number;
  readonly out: number;
  readonly rotated: readonly number[];
  readonly keys: readonly (readonly number[])[];
  readonly keysAt: number;
  readonly valuesAt: number;
  readonly scores: readonly number[];
  readonly weights: readonly number[];
}

function eachQuery(qkv: ArrayLike<number>, tables: Tables, shape: ReferenceShape, body: (query: Query) => void): void {
  const { rows, tokens, heads, kvHeads, headWidth, scale, window, half = false } = shape;
  const tokenSize = (heads + 2 * kvHeads) * headWidth;
  for (let row = 0; row < rows; row++) {
    for (let head = 0; head < heads; head++) {
      const shared = Math.floor(head / (heads / kvHeads));
      const start = row * tokens * tokenSize;
      const keysAt = start + (heads + shared) * headWidth;
      const keys = Array.from({ length: tokens }, (_, t) =>
        rotated(qkv, keysAt + t * tokenSize, headWidth, t, tables).map((value) =>
          half ? Math.f16round(value) : value,
        ),
      );
      for (let token = 0; token < tokens; token++) {
        const first = Math.max(0, token + 1 - (window ?? tokens));
        const at = start + token * tokenSize + head * headWidth;
        const query = rotated(qkv, at, headWidth, token, tables);
        const scores = keys.slice(first, token + 1).map((key) => scale * dot(query, key));
        const most = scores.reduce((a, b) => Math.max(a, b));
        const exponentials = scores.map((score) => Math.exp(score - most));
        const total = exponentials.reduce((a, b) => a + b);
        body({
          token,
          first,
          at,
          out: ((row * tokens + token) * heads + head) * headWidth,
          rotated: query,
          keys,
          keysAt,
          valuesAt: keysAt + kvHeads * headWidth,
          scores,
          weights: exponentials.map((value) => value / total),
        });
      }
    }
  }
}

/** @returns (B, T, H · D) */
export function referenceAttention(qkv: ArrayLike<number>, tables: Tables, shape: ReferenceShape): Float64Array {
  const { rows, tokens, heads, kvHeads, headWidth, half = false } = shape;
  const rounded = (value: number) => (half ? Math.f16round(value) : value);
  const out = new Float64Array(rows * tokens * heads * headWidth);
  eachQuery(qkv, tables, shape, (query) => {
    for (const [i, weight] of query.weights.entries()) {
      const value = query.valuesAt + (query.first + i) * (heads + 2 * kvHeads) * headWidth;
      for (let d = 0; d < headWidth; d++) out[query.out + d]! += weight * rounded(qkv[value + d]!);
    }
  });
  return out;
}

/** The largest score and 1 / the sum of exponentials of each query, (B, H, T, 2). */
export function referenceStatistics(qkv: ArrayLike<number>, tables: Tables, shape: ReferenceShape): Float64Array {
  const found: number[] = [];
  eachQuery(qkv, tables, shape, ({ scores, weights }) => {
    found.push(Math.max(...scores), Math.max(...weights));
  });
  return Float64Array.from(found);
}

/** The gradient of qkv for the gradient of the result. */
export function referenceGradient(
  qkv: ArrayLike<number>,
  dOut: ArrayLike<number>,
  tables: Tables,
  shape: ReferenceShape,
): Float64Array {
  const { rows, tokens, heads, kvHeads, headWidth, scale } = shape;
  const tokenSize = (heads + 2 * kvHeads) * headWidth;
  const gradient = new Float64Array(rows * tokens * tokenSize);
  const addRotatedBack = (values: ArrayLike<number>, to: number, token: number) => {
    for (const [d, value] of rotated(values, 0, headWidth, token, tables, -1).entries()) gradient[to + d]! += value;
  };
  eachQuery(qkv, tables, shape, ({ token, first, at, out, rotated: query, keys, keysAt, valuesAt, weights }) => {
    const dWeights = weights.map((weight, i) => {
      const value = valuesAt + (first + i) * tokenSize;
      let sum = 0;
      for (let d = 0; d < headWidth; d++) {
        sum += dOut[out + d]! * qkv[value + d]!;
        gradient[value + d]! += weight * dOut[out + d]!;
      }
      return sum;
    });
    const mean = dot(weights, dWeights);
    const dQuery = new Array<number>(headWidth).fill(0);
    for (const [i, weight] of weights.entries()) {
      const dScore = scale * weight * (dWeights[i]! - mean);
      const key = keys[first + i]!;
      for (let d = 0; d < headWidth; d++) dQuery[d]! += dScore * key[d]!;
      addRotatedBack(
        query.map((value) => dScore * value),
        keysAt + (first + i) * tokenSize,
        first + i,
      );
    }
    addRotatedBack(dQuery, at, token);
  });
  return gradient;
}
