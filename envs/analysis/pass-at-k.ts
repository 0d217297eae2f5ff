/** pass@k: the probability that at least one of k tries solves a board, estimated from n >= k tries. */

/**
 * `1 - C(n - solved, k) / C(n, k)`: the probability that k of the n tries include a solved one. Unbiased, unlike
 * `1 - (1 - solved / n)^k`.
 *
 * Source: Chen et al. 2021, https://arxiv.org/abs/2107.03374, equation 1. RAGEN's pass@k is the case k = n.
 *
 * @param tries  n, at least k.
 * @throws {RangeError} unless 1 <= k <= n and 0 <= solved <= n.
 */
export function passAtK(tries: number, solved: number, k: number): number {
  if (!Number.isInteger(k) || k < 1 || k > tries)
    throw new RangeError(`pass@k of ${tries} tries needs k from 1 to ${tries}, got ${k}`);
  if (!(solved >= 0 && solved <= tries))
    throw new RangeError(`of ${tries} tries, 0 to ${tries} can be solved, got ${solved}`);
  let none = 1;
  for (let i = 0; i < k; i++) none *= Math.max(0, tries - solved - i) / (tries - i);
  return 1 - none;
}

export interface PassAtK {
  readonly k: number;
  /** Mean over boards. */
  readonly share: number;
}

/**
 * pass@k for k = 1, 2, 4, … and n.
 *
 * @param solved  successful tries of each board, of n each; at least one board.
 */
export function passCurve(solved: readonly number[], tries: number): PassAtK[] {
  if (solved.length === 0) throw new RangeError("pass@k needs at least one board, got none");
  const powers = Array.from({ length: Math.floor(Math.log2(tries)) + 1 }, (_, i) => 2 ** i);
  return [...new Set([...powers, tries])].map((k) => ({
    k,
    share: solved.reduce((sum, count) => sum + passAtK(tries, count, k), 0) / solved.length,
  }));
}
