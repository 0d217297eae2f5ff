/**
 * Trajectories cut into micro-batches of few shapes: rows of similar length together, right-padded. Plain arrays; knows no
 * tensors, no losses and no engine.
 *
 * Beside the padded tokens (B, T) a micro-batch names its written tokens, left-aligned as (B, W): everything a loss needs is
 * per written token, and the output layer runs on those alone.
 */

/** One sequence to learn from. */
export interface Sequence {
  /** (T) */
  readonly tokens: Int32Array;
  /** (W) ascending positions of the written tokens in `tokens`; never 0, as nothing predicts the first token. */
  readonly written: Int32Array;
}

export interface MicroBatch {
  /** B, T and W. */
  readonly rows: number;
  readonly length: number;
  readonly width: number;
  /** Which sequence each row is; rows beyond are padding. */
  readonly members: readonly number[];
  /** Written tokens of each member; beyond them a row is padding. */
  readonly counts: readonly number[];
  /** (B, T) */
  readonly tokens: Int32Array;
  /** (B · W) index into the B · T states of the state that predicts each written token. */
  readonly picks: Int32Array;
  /** (B · W) the written tokens themselves. */
  readonly targets: Int32Array;
}

export interface BatchLimits {
  /** Largest B · T; a longer sequence is alone in its micro-batch. */
  readonly tokensMax: number;
  /** T is padded to a multiple of this, W likewise to a multiple of `widthMultiple`. */
  readonly lengthMultiple: number;
  readonly widthMultiple: number;
}

/** Rows are padded to a multiple of this, so that few shapes are compiled. */
const ROW_MULTIPLE = 4;

const roundUp = (value: number, multiple: number) => Math.ceil(value / multiple) * multiple;

/**
 * @returns micro-batches that hold every sequence once, longest first.
 * @throws {RangeError} if a sequence has no written token, one where nothing predicts it, or they do not ascend.
 */
export function microBatches(sequences: readonly Sequence[], limits: BatchLimits): MicroBatch[] {
  const { tokensMax, lengthMultiple, widthMultiple } = limits;
  sequences.forEach(({ written, tokens }, i) => {
    const fits = written.length > 0 && written[0]! > 0 && written.at(-1)! < tokens.length;
    if (!fits)
      throw new RangeError(`sequence ${i}: written tokens must lie in 1 … ${tokens.length - 1}, got ${written}`);
    if (written.some((position, at) => at > 0 && position <= written[at - 1]!))
      throw new RangeError(`sequence ${i}: written tokens must ascend, got ${written}`);
  });
  const order = sequences
    .map((_, i) => i)
    .sort((a, b) => sequences[b]!.tokens.length - sequences[a]!.tokens.length || a - b);
  const batches: MicroBatch[] = [];
  for (let at = 0; at < order.length; ) {
    const length = roundUp(sequences[order[at]!]!.tokens.length, lengthMultiple);
    // As many micro-batches as the limit asks for, and no fuller than the sequences fill them evenly.
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

/** Lay per-written-token values of each sequence out as (B, W), padded with 0. @param values  (W) for each sequence */
export function layRows(batch: MicroBatch, values: readonly ArrayLike<number>[]): Float32Array {
  const laid = new Float32Array(batch.rows * batch.width);
  batch.members.forEach((member, row) => {
    laid.set(values[member]! as Float32Array, row * batch.width);
  });
  return laid;
}
