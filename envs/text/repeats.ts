/** Repeats in lists that people write. */

/** The first value that the list has a second time; undefined if there is none. */
export const firstRepeated = <T>(values: readonly T[]): T | undefined =>
  values.find((value, i) => values.indexOf(value) !== i);
