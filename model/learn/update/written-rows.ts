/** Written tokens of episodes as the rows that estimators and aggregations take, and back. Arrays only. */
import type { Rows } from "../advantage/rows.ts";
import type { Samples } from "../sequences.ts";

export interface Grid extends Rows {
  /** (B) arrays of a row's written tokens as one (B, W), padded with 0. */
  lay(values: readonly ArrayLike<number>[]): Float32Array;
  /** The same back: (B) arrays, each as long as its row. */
  split(laid: Float32Array): Float32Array[];
}

/** One row an episode, the written tokens of all its contexts left-aligned. */
export function gridOf(samples: readonly Samples[]): Grid {
  const lengths = samples.map((own) => own.reduce((sum, { written }) => sum + written.length, 0));
  const width = Math.max(...lengths);
  const written = new Uint8Array(lengths.length * width);
  lengths.forEach((length, row) => {
    written.fill(1, row * width, row * width + length);
  });
  return {
    width,
    written,
    lay(values) {
      const laid = new Float32Array(written.length);
      values.forEach((row, i) => {
        laid.set(row as Float32Array, i * width);
      });
      return laid;
    },
    split: (laid) => lengths.map((length, row) => laid.slice(row * width, row * width + length)),
  };
}
