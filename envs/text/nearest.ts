/** Suggestions for mistyped words. */

/**
 * The candidate with the smallest edit distance, ignoring case. Of several such candidates, the function returns the first. It returns null if
 * the smallest distance is above 2 and also above a third of the word's length.
 */
export function nearest(word: string, candidates: Iterable<string>): string | null {
  let best: string | null = null;
  let bestDistance = Math.max(2, Math.floor(word.length / 3)) + 1;
  for (const candidate of candidates) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/** The end of an error message: `; did you mean X?`. The text is empty if `near` is null. */
export function didYouMean(near: string | null): string {
  return near === null ? "" : `; did you mean ${near}?`;
}

/**
 * The number of insertions, deletions, substitutions and swaps of neighbors that turn `a` into `b`.
 * Source: optimal string alignment, Damerau 1964.
 */
export function editDistance(a: string, b: string): number {
  let [beforeLast, last] = [[] as number[], Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = last[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row.push(
        Math.min(changed, last[j]! + 1, row[j - 1]! + 1, swapped ? beforeLast[j - 2]! + 1 : Number.POSITIVE_INFINITY),
      );
    }
    [beforeLast, last] = [last, row];
  }
  return last[b.length]!;
}
