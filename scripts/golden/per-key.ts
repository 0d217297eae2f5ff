/** Many checks from one record. */
import type { Check } from "./check.ts";

/** One check per key of `expected`; a key that we do not have fails as undefined. */
export function perKey(
  prefix: string,
  expected: Readonly<Record<string, unknown>>,
  got: Readonly<Record<string, unknown>>,
): Check[] {
  return Object.entries(expected).map(([key, value]) => ({ name: `${prefix}${key}`, expected: value, got: got[key] }));
}
