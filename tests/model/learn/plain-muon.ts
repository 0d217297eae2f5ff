/** Muon in float64, by plain loops. */
import type { OptimizerSettings } from "../../../model/learn/optimizer.ts";

/** Muon's move of one matrix, row by row, by Keller Jordan's loop. @returns the matrix after all steps */
export function plainMuon(
  start: Float64Array,
  gradients: readonly Float64Array[],
  [rows, columns]: readonly [number, number],
  given: OptimizerSettings,
): Float64Array {
  const momentum = new Float64Array(rows * columns);
  const after = start.slice();
  type Rows = number[][];
  const product = (a: Rows, b: Rows) =>
    a.map((row) => {
      const sums = b[0]!.map(() => 0);
      for (const [k, x] of row.entries()) {
        const terms = b[k]!;
        for (let j = 0; j < sums.length; j++) sums[j]! += x * terms[j]!;
      }
      return sums;
    });
  const turned = (a: Rows) => a[0]!.map((_, j) => a.map((row) => row[j]!));
  const sum = (...terms: (readonly [number, Rows])[]) =>
    terms[0]![1].map((row, i) =>
      row.map((_, j) => terms.reduce((all, [factor, term]) => all + factor * term[i]![j]!, 0)),
    );
  for (const gradient of gradients) {
    const norm = Math.hypot(...gradient);
    const clip = norm > given.clipNorm ? given.clipNorm / norm : 1;
    const ahead = Array.from(gradient, (value, i) => {
      momentum[i] = 0.95 * momentum[i]! + clip * value;
      return clip * value + 0.95 * momentum[i]!;
    });
    const length = Math.hypot(...ahead) + given.epsilon;
    let x: Rows = Array.from({ length: rows }, (_, i) =>
      ahead.slice(i * columns, (i + 1) * columns).map((value) => value / length),
    );
    // The iteration works on whichever side is longer; here always on X Xt.
    for (let i = 0; i < 5; i++) {
      const gram = product(x, turned(x));
      x = sum([3.4445, x], [1, product(sum([-4.775, gram], [2.0315, product(gram, gram)]), x)]);
    }
    const size = given.learningRate * 0.2 * Math.sqrt(Math.max(rows, columns));
    x.flat().forEach((value, i) => {
      after[i] = after[i]! * (1 - given.learningRate * given.weightDecay) - size * value;
    });
  }
  return after;
}
