/** Log-probabilities of a row of logits under softmax(logits): temperature, top-p and top-k do not change them. */

export interface TokenLogProb {
  readonly token: number;
  /** Natural log; 0 or less. */
  readonly logProb: number;
}

/** A written token, and the likeliest tokens at its position. */
export interface TokenChoice extends TokenLogProb {
  /** Likeliest first; of equally likely tokens, the lower id first. */
  readonly top: readonly TokenLogProb[];
}

/** @param logits  holds the row at `[offset, offset + vocabulary)` */
export function tokenChoice(
  logits: Float32Array,
  offset: number,
  vocabulary: number,
  token: number,
  count: number,
): TokenChoice {
  const row = logits.subarray(offset, offset + vocabulary);
  let highest = Number.NEGATIVE_INFINITY;
  for (const logit of row) highest = Math.max(highest, logit);
  let total = 0;
  for (const logit of row) total += Math.exp(logit - highest);
  const logTotal = highest + Math.log(total);
  const likeliest: number[] = [];
  for (let id = 0; id < vocabulary && count > 0; id++) {
    if (likeliest.length === count && row[id]! <= row[likeliest.at(-1)!]!) continue;
    const at = likeliest.findIndex((other) => row[other]! < row[id]!);
    likeliest.splice(at < 0 ? likeliest.length : at, 0, id);
    if (likeliest.length > count) likeliest.pop();
  }
  const of = (id: number): TokenLogProb => ({ token: id, logProb: Math.min(0, row[id]! - logTotal) });
  return { ...of(token), top: likeliest.map(of) };
}
