/** Types of values that many settings share. */
import { z } from "zod";

export const positiveInt = z.int().positive();
export const nonnegativeInt = z.int().nonnegative();
export const positiveNumber = z.number().positive();
export const nonnegativeNumber = z.number().nonnegative();
export const share = z.number().min(0).max(1);
export const partialShare = z.number().min(0).lt(1);
/** A name or a path; null means that there is none. */
export const optionalText = z.string().min(1).nullable().default(null);
