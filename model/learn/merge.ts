/**
 * Finds equal sequences, so that the network computes them once. The members of a group play one board. So a policy that is nearly certain
 * writes many equal episodes: in the default run three of five trained episodes equal an earlier one.
 */
import { type BatchLimits, type MicroBatch, microBatches, type Sequence } from "./batch.ts";
import { type TokenInputs, WEIGHT_INPUTS } from "./objective.ts";

interface Distinct {
  /** The index of the first sequence of each kind. */
  readonly firsts: readonly number[];
  /** The kind of each sequence, an index in `firsts`. */
  readonly kinds: readonly number[];
}

/** Sequences are of one kind if their tokens, written positions and inputs are equal. */
function distinct(sequences: readonly Sequence[], inputs: readonly (readonly ArrayLike<number>[])[]): Distinct {
  const known = new Map<string, number>();
  const firsts: number[] = [];
  const kinds = sequences.map(({ tokens, written }, i) => {
    const arrays = [tokens, written, ...inputs.map((values) => Float32Array.from(values[i]!))];
    const key = arrays.map(({ buffer, byteOffset, byteLength }) => {
      return `${byteLength} ${Buffer.from(buffer, byteOffset, byteLength).toString("latin1")}`;
    });
    return known.getOrInsertComputed(key.join(" "), () => firsts.push(i) - 1);
  });
  return { firsts, kinds };
}

/**
 * Merges equal sequences of a minibatch into one with the sum of their weights. A loss is a sum of weights times numbers that follow from
 * tokens and other inputs. So loss, gradient and metrics change by rounding only.
 *
 * @param inputs [sequence][written token]
 */
export function mergeEqual(
  sequences: readonly Sequence[],
  inputs: TokenInputs,
): { readonly sequences: readonly Sequence[]; readonly inputs: TokenInputs } {
  const others = Object.entries(inputs).filter(([name]) => !WEIGHT_INPUTS.has(name));
  const { firsts, kinds } = distinct(
    sequences,
    others.map(([, values]) => values),
  );
  const merged = Object.entries(inputs).map(([name, values]) => {
    const first = firsts.map((i) => values[i]!);
    if (!WEIGHT_INPUTS.has(name)) return [name, first] as const;
    const sums = first.map(({ length }) => new Float32Array(length));
    for (const [i, kind] of kinds.entries()) {
      const sum = sums[kind]!;
      for (let at = 0; at < sum.length; at++) sum[at]! += values[i]![at]!;
    }
    return [name, sums] as const;
  });
  return { sequences: firsts.map((i) => sequences[i]!), inputs: Object.fromEntries(merged) };
}

/**
 * Computes numbers of sequences, once for equal sequences.
 *
 * @param compute  returns the numbers of each sequence of these micro-batches
 * @returns the numbers of each sequence; equal sequences share an array
 */
export async function computeOnce(
  sequences: readonly Sequence[],
  limits: BatchLimits,
  compute: (batches: readonly MicroBatch[]) => Promise<readonly Float32Array[]>,
): Promise<Float32Array[]> {
  const { firsts, kinds } = distinct(sequences, []);
  const computed = await compute(
    microBatches(
      firsts.map((i) => sequences[i]!),
      limits,
    ),
  );
  return kinds.map((kind) => computed[kind]!);
}
