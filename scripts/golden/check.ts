/**
 * What one comparison of a golden file is, and when it holds. Knows no env and no algorithm: the area files
 * (envs.ts, algorithms.ts) turn a case's body into checks by running the project's code on its inputs.
 *
 * - `expected` comes from the file and `got` from our code; neither is ever copied from the other.
 * - Nothing is skipped: a vector that cannot be run is a check that fails, or a throw (the command counts it as one).
 */

export interface Check {
  /** Where in the case: "vectors[3] seed 123: observation". */
  readonly name: string;
  readonly expected: unknown;
  readonly got: unknown;
  /** Largest absolute difference allowed between numbers; 1e-5 (the file's convention) if left out. */
  readonly tolerance?: number;
}

/** By case id ("H1", "X0"). The body is the case as the file has it, unchecked; `file` is all of it, for shared inputs. */
export type Checks = Readonly<Record<string, (body: unknown, file: unknown) => Check[]>>;

const TOLERANCE = 1e-5;

/** True if expected and got agree: strings and structure exactly, numbers within the tolerance. */
export function holds(check: Check): boolean {
  return same(check.expected, check.got, check.tolerance ?? TOLERANCE);
}

function same(expected: unknown, got: unknown, tolerance: number): boolean {
  if (typeof expected === "number" && typeof got === "number") {
    return Object.is(expected, got) || Math.abs(expected - got) <= tolerance;
  }
  if (Array.isArray(expected) && Array.isArray(got)) {
    return expected.length === got.length && expected.every((value, i) => same(value, got[i], tolerance));
  }
  if (isRecord(expected) && isRecord(got)) {
    const keys = Object.keys(expected);
    return (
      keys.length === Object.keys(got).length &&
      keys.every((key) => Object.hasOwn(got, key) && same(expected[key], got[key], tolerance))
    );
  }
  return Object.is(expected, got);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
