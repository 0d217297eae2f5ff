/**
 * One comparison of a golden file. This file knows no env and no algorithm: the other files of this folder run the project's code on a
 * case's inputs, and so turn the case into checks.
 *
 * - `expected` comes from the file and `got` from our code.
 * - Nothing is skipped: a vector that throws is one failed check, and the other vectors of its case still run.
 */
import { z } from "zod";
import { isTree } from "../../../actors/config/layers.ts";
import { messageOf, schemaFaults } from "../../../actors/errors.ts";

export interface Check {
  /** Where in the case: "vectors[3] seed 123: observation". */
  readonly name: string;
  readonly expected: unknown;
  readonly got: unknown;
  /** Largest allowed difference between numbers. Default: 1e-5, the file's convention. */
  readonly tolerance?: number;
}

/** By case id ("H1", "X0"). The body is the unchecked case; `file` is the whole file, for shared inputs. */
export type Checks = Readonly<Record<string, (body: unknown, file: unknown) => Check[]>>;

/** Vectors that `eachVector` checks one by one. */
export const Vectors = z.array(z.unknown());
export const Matrix = z.array(z.array(z.number()));
/** What a file has of every action. */
export const Outcome = z.object({
  observation: z.string(),
  reward: z.number(),
  done: z.boolean(),
  success: z.boolean(),
});

/** The values as rows of this width. */
export const matrixOf = (values: ArrayLike<number>, width: number): number[][] =>
  Array.from({ length: values.length / width }, (_, row) => Array.from(values).slice(row * width, (row + 1) * width));

/** The checks of one vector, or of a whole case. A vector or case that throws is one failed check. */
export function vectorChecks(name: string, run: () => Check[], what: "vector" | "case" = "vector"): Check[] {
  try {
    return run();
  } catch (error) {
    const reason = error instanceof z.ZodError ? schemaFaults(error, what) : messageOf(error);
    return [{ name, expected: `a ${what} that runs`, got: reason }];
  }
}

/** The checks of each vector of a list. A vector that does not fit the schema is one failed check. */
export function eachVector<T>(
  name: string,
  vectors: readonly unknown[],
  schema: z.ZodType<T>,
  run: (vector: T, index: number) => Check[],
): Check[] {
  return vectors.flatMap((raw, i) => vectorChecks(`${name}[${i}]`, () => run(schema.parse(raw), i)));
}

const TOLERANCE = 1e-5;

/** Strings and structure must be equal, numbers equal within the tolerance. */
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
  if (isTree(expected) && isTree(got)) {
    const keys = Object.keys(expected);
    return (
      keys.length === Object.keys(got).length &&
      keys.every((key) => Object.hasOwn(got, key) && same(expected[key], got[key], tolerance))
    );
  }
  return Object.is(expected, got);
}

export function perKey(
  prefix: string,
  expected: Readonly<Record<string, unknown>>,
  got: Readonly<Record<string, unknown>>,
): Check[] {
  return Object.entries(expected).map(([key, value]) => ({ name: `${prefix}${key}`, expected: value, got: got[key] }));
}
