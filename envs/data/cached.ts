/** Keeps loaded data sets and generated boards in memory for the episodes of one process. */

/** A cache of at most `entriesMax` values; it evicts the least recently used value. */
export function cached<T>(entriesMax: number): (key: string, load: () => T) => T {
  const kept = new Map<string, T>();
  return (key, load) => {
    const value = kept.has(key) ? kept.get(key)! : load();
    kept.delete(key);
    kept.set(key, value);
    if (kept.size > entriesMax) kept.delete(kept.keys().next().value!);
    return value;
  };
}
