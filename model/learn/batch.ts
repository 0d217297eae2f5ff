/**
 * Splits sequences into micro-batches of few shapes. The rows of a micro-batch have similar lengths and are padded at the end. This
 * file computes with plain arrays; it knows no tensors, no losses and no engine.
 *
 * Beside the padded tokens (B, T) a micro-batch lists its written tokens, left-aligned as (B, W). All inputs of a loss are per
 * written token. The output layer runs only for written tokens.
 */
import { roundUp } from "../engine/graph.ts";

/** One sequence that the network reads. */
export interface Sequence {
  /** (T) */
  readonly tokens: Int32Array;
  /** (W) ascending positions of the written tokens in `tokens`; never 0, because nothing predicts the first token. */
  readonly written: Int32Array;
}

export interface MicroBatch {
  /** B, T and W. */
  readonly rows: number;
  readonly length: number;
  readonly width: number;
  /** The index of each row's sequence; further rows are padding. */
  readonly members: readonly number[];
  /** Number of written tokens of each member; the rest of a row is padding. */
  readonly counts: readonly number[];
  /** (B, T) */
  readonly tokens: Int32Array;
  /** (B · W) index of the state that predicts each written token, among all B · T states. */
  readonly picks: Int32Array;
  /** (B · W) the written tokens themselves. */
  readonly targets: Int32Array;
}

export interface BatchLimits {
  /** Largest B · T; a longer sequence gets a micro-batch of its own. */
  readonly tokensMax: number;
  /** T is padded to a multiple of this. */
  readonly lengthMultiple: number;
  /** W is padded to a multiple of this. */
  readonly widthMultiple: number;
}

/**
 * Default of `tokensMax`. cpu: a core's cache holds the activations of this many tokens of a small model. gpu: a GPU takes about as long
 * for a micro-batch with fewer tokens.
 */
export const MICRO_TOKENS_MAX = { cpu: 256, gpu: 4096 } as const;

/** B is padded to a multiple of this where `tokensMax` allows. */
const ROW_MULTIPLE = 4;

/**
 * @returns micro-batches that hold every sequence once, longest first.
 * @throws {RangeError} if a sequence has no written token, its first token is written, or its written positions do not ascend.
 */
export function microBatches(sequences: readonly Sequence[], limits: BatchLimits): MicroBatch[] {
  const { tokensMax, lengthMultiple, widthMultiple } = limits;
  sequences.forEach(({ written, tokens }, i) => {
    const fits = written[0]! > 0 && written.at(-1)! < tokens.length;
    if (!fits)
      throw new RangeError(`sequence ${i}: written tokens must lie in 1 … ${tokens.length - 1}, got ${written}`);
    if (written.some((position, at) => at > 0 && position <= written[at - 1]!))
      throw new RangeError(`sequence ${i}: written tokens must ascend, got ${written}`);
  });
  const order = sequences.map((_, i) => i).sort((a, b) => sequences[b]!.tokens.length - sequences[a]!.tokens.length);
  const batches: MicroBatch[] = [];
  for (let at = 0; at < order.length; ) {
    const length = roundUp(sequences[order[at]!]!.tokens.length, lengthMultiple);
    // The fewest micro-batches that the limit allows, filled evenly.
    const rowsMax = Math.max(1, Math.floor(tokensMax / length));
    const left = order.length - at;
    const even = Math.ceil(left / Math.ceil(left / rowsMax));
    const rows = Math.min(rowsMax, roundUp(even, ROW_MULTIPLE));
    const members = order.slice(at, at + rows);
    const counts = members.map((i) => sequences[i]!.written.length);
    const width = roundUp(Math.max(...counts), widthMultiple);
    const batch = {
      rows,
      length,
      width,
      members,
      counts,
      tokens: new Int32Array(rows * length),
      picks: new Int32Array(rows * width),
      targets: new Int32Array(rows * width),
    };
    members.forEach((member, row) => {
      const { tokens, written } = sequences[member]!;
      batch.tokens.set(tokens, row * length);
      written.forEach((position, column) => {
        batch.picks[row * width + column] = row * length + position - 1;
        batch.targets[row * width + column] = tokens[position]!;
      });
    });
    batches.push(batch);
    at += rows;
  }
  return batches;
}

/** (B, W) from values of each sequence's written tokens, padded with 0. @param values  (W) for each sequence */
export function layRows(batch: MicroBatch, values: readonly ArrayLike<number>[]): Float32Array {
  const laid = new Float32Array(batch.rows * batch.width);
  for (const [row, member] of batch.members.entries()) laid.set(values[member]! as Float32Array, row * batch.width);
  return laid;
}
