/** How likely k tries at one board solve it at least once, estimated from more tries than k. */

/**
 * `1 - C(n - solved, k) / C(n, k)`: the chance that k tries drawn from these n hold a solved one. Unbiased, which
 * `1 - (1 - solved / n)^k` is not.
 *
 * Source: Chen et al. 2021, https://arxiv.org/abs/2107.03374, equation 1. RAGEN's pass@k is the case k = n.
 *
 * @param tries  n, at least k.
 * @throws {RangeError} if k is none of 1 … n, or more were solved than tried.
 */
export function passAtK(tries: number, solved: number, k: number): number {
  if (!Number.isInteger(k) || k < 1 || k > tries) throw new RangeError(`pass@${k} cannot be told from ${tries} tries`);
  if (!(solved >= 0 && solved <= tries)) throw new RangeError(`${solved} of ${tries} tries cannot have been solved`);
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
 * For k = 1, 2, 4, … and n.
 *
 * @param solved  tries that solved each board, of n each; at least one board.
 */
export function passCurve(solved: readonly number[], tries: number): PassAtK[] {
  if (solved.length === 0) throw new RangeError("there is no pass@k of no boards");
  const powers = Array.from({ length: Math.floor(Math.log2(tries)) + 1 }, (_, i) => 2 ** i);
  return [...new Set([...powers, tries])].map((k) => ({
    k,
    share: solved.reduce((sum, count) => sum + passAtK(tries, count, k), 0) / solved.length,
  }));
}
