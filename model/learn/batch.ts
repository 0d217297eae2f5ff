/**
 * Splits sequences into micro-batches of few shapes. This file computes with plain arrays; it knows no tensors, no losses and no engine.
 *
 * A micro-batch lists the tokens that the network reads, in one of two layouts: as padded rows, or as a prefix tree (prefix-tree.ts), in
 * which sequences share the tokens that they begin with. In both layouts equal sequences are computed once.
 *
 * The loss's inputs have the shape (B, W): a row holds one number for each written token of its sequence, then padding. A state is the
 * network's hidden vector after it has read a token. A pick is a pair of a state and the written token that follows. Equal pairs share a
 * pick. The output layer runs only for the picks.
 */
import { roundUp } from "../engine/graph.ts";

/** One sequence that the network reads. */
export interface Sequence {
  /** (T) */
  readonly tokens: Int32Array;
  /** (W) ascending positions of the written tokens in `tokens`; never 0, because nothing predicts the first token. */
  readonly written: Int32Array;
}

/** Where the sequences lie among the tokens of a prefix tree. `PrefixTree` (policy/attention.ts) explains the arrays. */
export interface TreeArrays {
  /** (branches, 2) */
  readonly branches: Int32Array;
  /** (branches, T) */
  readonly tokenOfPath: Int32Array;
  /** (N) */
  readonly pathOfToken: Int32Array;
  /** (N / 4) */
  readonly isPicked: Int32Array;
}

export interface MicroBatch {
  /** (N) the tokens that the network reads, row after row or branch after branch. */
  readonly tokens: Int32Array;
  /** T: the padded length of the longest sequence. */
  readonly length: number;
  /** null: the tokens are rows of T tokens. */
  readonly tree: TreeArrays | null;
  /** (M) index of the picked state among the N states. */
  readonly picks: Int32Array;
  /** (M) the written token that follows each picked state. */
  readonly targets: Int32Array;
  /** B and W. */
  readonly rows: number;
  readonly width: number;
  /** (B · W) the pick of each written token; 0 for padding. */
  readonly pickOfWritten: Int32Array;
  /** The index of each row's sequence. If there are more rows than members, the last rows are padding. */
  readonly members: readonly number[];
  /** Number of written tokens of each member; the rest of a row is padding. */
  readonly counts: readonly number[];
}

export interface BatchLimits {
  /** Largest number of tokens of a micro-batch, N; a longer sequence gets a micro-batch of its own. */
  readonly tokensMax: number;
  /** T of rows is padded to a multiple of this. */
  readonly lengthMultiple: number;
  /** W of rows is padded to a multiple of this. */
  readonly widthMultiple: number;
}

/**
 * Default of `tokensMax`. cpu: for a small model, larger micro-batches are not faster per token, and are harder to divide evenly between
 * two cores. gpu: a smaller micro-batch takes about as long.
 */
export const MICRO_TOKENS_MAX = { cpu: 512, gpu: 4096 } as const;

/** The number of rows of tokens is rounded up to a multiple of this, unless that would exceed `tokensMax`. */
const ROW_MULTIPLE = 4;
/** B, the number of rows of the loss's inputs, is rounded up to a multiple of this. */
const LOSS_ROW_MULTIPLE = 16;
/** M is padded to a multiple of this. Matrix products take multiples of 16. */
const PICK_MULTIPLE = 32;

/** @throws {RangeError} if a sequence has no written token, its first token is written, or its written positions do not ascend. */
export function checkSequences(sequences: readonly Sequence[]): void {
  sequences.forEach(({ written, tokens }, i) => {
    const fits = written[0]! > 0 && written.at(-1)! < tokens.length;
    if (!fits)
      throw new RangeError(`sequence ${i}: written tokens must lie in 1 … ${tokens.length - 1}, got ${written}`);
    if (written.some((position, at) => at > 0 && position <= written[at - 1]!))
      throw new RangeError(`sequence ${i}: written tokens must ascend, got ${written}`);
  });
}

/** The tokens that the network reads: all tokens before the last written token. Later tokens predict no written token. */
export const readTokens = ({ tokens, written }: Sequence): Int32Array => tokens.subarray(0, written.at(-1)!);

/** Micro-batches of padded rows of similar lengths, longest first. */
export function rowBatches(sequences: readonly Sequence[], limits: BatchLimits): MicroBatch[] {
  const { tokensMax, lengthMultiple, widthMultiple } = limits;
  const distinct = [...Map.groupBy(sequences.keys(), (i) => keyOf(readTokens(sequences[i]!))).values()]
    .map((members) => ({ members, tokens: readTokens(sequences[members[0]!]!) }))
    .sort((a, b) => b.tokens.length - a.tokens.length);
  const batches: MicroBatch[] = [];
  for (let at = 0; at < distinct.length; ) {
    const length = roundUp(distinct[at]!.tokens.length, lengthMultiple);
    // The fewest micro-batches that the limit allows, filled evenly.
    const rowsMax = Math.max(1, Math.floor(tokensMax / length));
    const left = distinct.length - at;
    const even = Math.ceil(left / Math.ceil(left / rowsMax));
    const rows = Math.min(rowsMax, roundUp(even, ROW_MULTIPLE));
    const tokens = new Int32Array(rows * length);
    const placed: Placed[] = [];
    for (const [row, kind] of distinct.slice(at, at + rows).entries()) {
      tokens.set(kind.tokens, row * length);
      for (const member of kind.members) placed.push({ member, stateOf: (position) => row * length + position });
    }
    batches.push({ tokens, length, tree: null, ...pickStates(sequences, placed, widthMultiple) });
    at += rows;
  }
  return batches;
}

const keyOf = ({ buffer, byteOffset, byteLength }: Int32Array): string =>
  Buffer.from(buffer, byteOffset, byteLength).toString("latin1");

/** A sequence of a micro-batch, and the index of its state at each position among the N states. */
export interface Placed {
  readonly member: number;
  readonly stateOf: (position: number) => number;
}

/** The picks of a micro-batch, and the rows of its loss. */
export function pickStates(
  sequences: readonly Sequence[],
  placed: readonly Placed[],
  widthMultiple: number,
): Omit<MicroBatch, "tokens" | "length" | "tree"> {
  const members = placed.map(({ member }) => member);
  const counts = members.map((member) => sequences[member]!.written.length);
  const rows = roundUp(members.length, LOSS_ROW_MULTIPLE);
  const width = roundUp(Math.max(...counts), widthMultiple);
  const pickOfWritten = new Int32Array(rows * width);
  const picks: number[] = [];
  const targets: number[] = [];
  /** The picks of each state, by the token that follows. */
  const known = new Map<number, Map<number, number>>();
  for (const [row, { member, stateOf }] of placed.entries()) {
    const { tokens, written } = sequences[member]!;
    for (const [column, position] of written.entries()) {
      const [state, target] = [stateOf(position - 1), tokens[position]!];
      const ofState = known.getOrInsertComputed(state, () => new Map());
      pickOfWritten[row * width + column] = ofState.getOrInsertComputed(target, () => {
        targets.push(target);
        return picks.push(state) - 1;
      });
    }
  }
  const padding = new Array<number>(roundUp(picks.length, PICK_MULTIPLE) - picks.length).fill(0);
  return {
    picks: Int32Array.from([...picks, ...padding]),
    targets: Int32Array.from([...targets, ...padding]),
    rows,
    width,
    pickOfWritten,
    members,
    counts,
  };
}

/** (B, W) from values of each sequence's written tokens, padded with 0. @param values  (W) for each sequence */
export function layRows(batch: MicroBatch, values: readonly ArrayLike<number>[]): Float32Array {
  const padded = new Float32Array(batch.rows * batch.width);
  for (const [row, member] of batch.members.entries()) padded.set(values[member]! as Float32Array, row * batch.width);
  return padded;
}
