/** Largest absolute difference between two equally long arrays; NaN counts as infinitely far. */
export function farthest(a: ArrayLike<number | bigint>, b: ArrayLike<number | bigint>): number {
  if (a.length !== b.length) throw new RangeError(`${a.length} values against ${b.length}`);
  let most = 0;
  for (let i = 0; i < a.length; i++) {
    const gap = Math.abs(Number(a[i]) - Number(b[i]));
    most = Math.max(most, Number.isNaN(gap) ? Number.POSITIVE_INFINITY : gap);
  }
  return most;
}
