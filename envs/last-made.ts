/**
 * Remembers what was made last, by its seed. The members of a group, and the random plays of a board, open one board many times, and
 * to make it takes ten times as long as to play it.
 */
export function lastMade<T>(make: (seed: number) => T): (seed: number) => T {
  let last: { readonly seed: number; readonly made: T } | null = null;
  return (seed) => {
    if (last?.seed !== seed) last = { seed, made: make(seed) };
    return last.made;
  };
}
