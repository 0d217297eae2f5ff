/** Kinds of values that many settings share. The argument of a kind is the setting's default. If the default is null, the setting may be null. */
import { z } from "zod";

interface Kind<T> {
  (standard: T): z.ZodDefault<z.ZodType<T, T>>;
  (standard: null): z.ZodDefault<z.ZodType<T | null, T | null>>;
}

const kind = <T>(schema: z.ZodType<T, T>) =>
  ((standard: z.core.util.NoUndefined<T> | null) =>
    standard === null ? schema.nullable().default(null) : schema.default(standard)) as Kind<T>;

export const positiveInt = kind(z.int().positive());
export const nonnegativeInt = kind(z.int().nonnegative());
export const positiveNumber = kind(z.number().positive());
export const nonnegativeNumber = kind(z.number().nonnegative());
export const share = kind(z.number().min(0).max(1));
export const positiveShare = kind(z.number().positive().max(1));
/** A share below 1. */
export const partialShare = kind(z.number().min(0).lt(1));
export const nullableShare = kind(z.number().min(0).max(1).nullable());
export const seed = kind(z.uint32());
/** A name or a path. */
export const text = kind(z.string().min(1));
export const nullableText = kind(z.string().min(1).nullable());
export const httpUrl = kind(z.url({ protocol: /^https?$/ }));
export const flag = kind(z.boolean());
/** A list of any length. */
export const listOf = <S extends z.ZodType>(item: S, standard: z.input<S>[]) =>
  z.array(item).default(standard as never);
export const oneOf = <const T extends string>(values: readonly T[], standard: NoInfer<T>) =>
  z.enum(values).default(standard as never);
