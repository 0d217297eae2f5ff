/**
 * Lays sequences out as prefix trees, so that the network computes a common beginning once. The members of a group play one board, so their
 * episodes begin with equal tokens. Of the tokens that padded rows of distinct sequences would have, 72 % remain in
 * the default run's updates.
 *
 * The sequences of a micro-batch are in lexicographic order. Each sequence then shares its longest beginning with the sequence before
 * it. The rest of the sequence is its branch. A sequence shares a multiple of 4 tokens, and a branch is padded to a multiple of 4
 * tokens, because the kernel of attention computes 4 tokens at a time.
 *
 * Source: Prefix Grouper, https://arxiv.org/abs/2506.05433, which shares a group's prompt; AReaL's tree training (Zhang et al., "Dynamic
 * tree attention", PMLR 306), which shares turns too.
 */
import { roundUp } from "../engine/graph.ts";
import { type BatchLimits, type MicroBatch, type Placed, pickStates, readTokens, type Sequence } from "./batch.ts";

/** A branch begins and ends at a multiple of this many tokens. */
const BRANCH_MULTIPLE = 4;

/** N, T, W and the number of branches are padded to multiples of these, so that there are few shapes. */
const TOKEN_MULTIPLE = 32;
const LENGTH_MULTIPLE = 128;
const WIDTH_MULTIPLE = 64;
const BRANCHES_MULTIPLE = 16;

/** With fewer tokens per lane than this, the number of micro-batches need not be a multiple of the number of lanes. */
const LANE_TOKENS_MIN = 64;

/** A sequence in lexicographic order. */
interface Ordered {
  readonly member: number;
  /** The tokens that the network reads, padded. */
  readonly tokens: Int32Array;
  /** Number of tokens that the sequence shares with the sequence before it. */
  readonly shared: number;
}

/** Micro-batches of prefix trees, the one with most tokens first. @param lanes  number of micro-batches that run at once */
export function treeBatches(
  sequences: readonly Sequence[],
  { tokensMax }: Pick<BatchLimits, "tokensMax">,
  lanes: number,
): MicroBatch[] {
  const ordered = order(sequences);
  const total = ordered.reduce((sum, one) => sum + ownTokens(one), 0);
  // Each lane gets the same number of parts.
  const step = total < lanes * LANE_TOKENS_MIN ? 1 : lanes;
  let count = roundUp(Math.ceil(total / tokensMax), step);
  let parts = split(ordered, count, tokensMax);
  while (parts.length > count && parts.length < ordered.length) {
    count += step;
    parts = split(ordered, count, tokensMax);
  }
  const batches = parts.map((part) => treeBatch(sequences, part));
  return batches.sort((a, b) => b.tokens.length - a.tokens.length);
}

const ownTokens = ({ tokens, shared }: Ordered) => tokens.length - shared;

/**
 * Splits sequences into `count` parts of about equal size, or more parts if one would have more than `tokensMax` tokens. The first sequence
 * of a part shares no tokens.
 */
function split(ordered: readonly Ordered[], count: number, tokensMax: number): Ordered[][] {
  const total = ordered.reduce((sum, one) => sum + ownTokens(one), 0);
  const parts: Ordered[][] = [];
  let size = 0;
  let before = 0;
  for (const one of ordered) {
    const own = ownTokens(one);
    const part = parts.at(-1);
    const isFull = before + own / 2 > (total * parts.length) / count;
    if (part === undefined || isFull || roundUp(size + own, TOKEN_MULTIPLE) > tokensMax) {
      parts.push([{ ...one, shared: 0 }]);
      size = one.tokens.length;
    } else {
      part.push(one);
      size += own;
    }
    before += own;
  }
  return parts;
}

function order(sequences: readonly Sequence[]): Ordered[] {
  const sorted = sequences
    .map((sequence, member) => {
      const read = readTokens(sequence);
      const tokens = new Int32Array(roundUp(read.length, BRANCH_MULTIPLE));
      tokens.set(read);
      return { member, tokens };
    })
    .sort((a, b) => {
      const at = sharedTokens(a.tokens, b.tokens);
      return (a.tokens[at] ?? -1) - (b.tokens[at] ?? -1);
    });
  return sorted.map((one, i) => {
    const shared = i === 0 ? 0 : sharedTokens(sorted[i - 1]!.tokens, one.tokens);
    return { ...one, shared: shared - (shared % BRANCH_MULTIPLE) };
  });
}

/** Number of equal tokens at the beginning. */
function sharedTokens(a: Int32Array, b: Int32Array): number {
  const most = Math.min(a.length, b.length);
  let at = 0;
  while (at < most && a[at] === b[at]) at++;
  return at;
}

function treeBatch(sequences: readonly Sequence[], part: readonly Ordered[]): MicroBatch {
  const tokens: number[] = [];
  /** `path` has one entry for each token from the first token to the end of the branch: the token's index among the N tokens. */
  const branches: { shared: number; path: Int32Array }[] = [];
  const addBranch = (shared: number, read: Int32Array): Int32Array => {
    const before = branches.at(-1)?.path;
    const path = read.map((token, position) => (position < shared ? before![position]! : tokens.push(token) - 1));
    branches.push({ shared, path });
    return path;
  };
  const placed = part.map(({ member, tokens: read, shared }): Placed => {
    // A sequence without tokens of its own equals the sequence before it.
    const path = shared === read.length ? branches.at(-1)!.path : addBranch(shared, read);
    return { member, stateOf: (position) => path[position]! };
  });
  const missing = roundUp(tokens.length, TOKEN_MULTIPLE) - tokens.length;
  if (missing > 0) addBranch(0, new Int32Array(missing));
  const length = roundUp(Math.max(...branches.map(({ path }) => path.length)), LENGTH_MULTIPLE);
  // At least one row of zeros follows the last branch.
  const rows = roundUp(branches.length + 1, BRANCHES_MULTIPLE);
  const picked = pickStates(sequences, placed, WIDTH_MULTIPLE);
  const tree = {
    branches: new Int32Array(rows * 2),
    tokenOfPath: new Int32Array(rows * length),
    pathOfToken: new Int32Array(tokens.length),
    isPicked: new Int32Array(tokens.length / BRANCH_MULTIPLE),
  };
  for (const token of picked.picks) tree.isPicked[Math.floor(token / BRANCH_MULTIPLE)] = 1;
  for (const [row, { shared, path }] of branches.entries()) {
    tree.branches.set([shared, path.length], row * 2);
    tree.tokenOfPath.set(path, row * length);
    for (let at = shared; at < path.length; at++) tree.pathOfToken[path[at]!] = row * length + at;
  }
  return {
    tokens: Int32Array.from(tokens),
    length,
    tree,
    ...picked,
  };
}
