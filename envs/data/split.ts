/**
 * Splits the items of a data set into training and validation, which share no item. RAGEN uses the same rows for both.
 * Knows no data set.
 */
import { z } from "zod";
import { DataError } from "./rows.ts";

export type Split = "train" | "validation";

/** Layout seeds below this number are for validation: RAGEN validates from seed 123 and trains from seed 10,000. */
const VALIDATION_SEEDS_BELOW = 10_000;

/** One item in this many items is for validation. */
const VALIDATION_ONE_IN = 8;

/**
 * The env option `split`. `seed`: layout seeds below 10,000 play validation items, and other seeds training items. `all`: all seeds play all
 * items, as in RAGEN.
 */
export const SplitChoice = z.enum(["seed", "train", "validation", "all"]);
export type SplitChoice = z.infer<typeof SplitChoice>;

export function splitOfSeed(choice: SplitChoice, layoutSeed: number): Split | "all" {
  if (choice !== "seed") return choice;
  return layoutSeed < VALIDATION_SEEDS_BELOW ? "validation" : "train";
}

/** The split of an item. The item's content decides, so the order of items and duplicate items do not matter. */
export function splitOfItem(content: string): Split {
  return fnv1a(content) % VALIDATION_ONE_IN === 0 ? "validation" : "train";
}

/**
 * The items whose content belongs to a split.
 *
 * @param path  the file that an error names
 * @throws {DataError} if the split has no items
 */
export function itemsOfSplit<T>(
  items: Iterable<T>,
  split: Split | "all",
  contentOf: (item: T) => string,
  path: string,
): T[] {
  const all = [...items];
  const chosen = split === "all" ? all : all.filter((item) => splitOfItem(contentOf(item)) === split);
  if (chosen.length > 0) return chosen;
  if (all.length === 0) throw new DataError(`${path}: has no usable row; an env needs at least one`);
  throw new DataError(`${path}: none of ${all.length} usable rows is in the split ${split}; set split to all`);
}

/** A uint32 digest. Source: Fowler, Noll, Vo, FNV-1a, over UTF-16 units. */
function fnv1a(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  // Two more rounds of mixing: the low bits of FNV-1a depend mostly on the last letters.
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 13)) >>> 0;
}
