/** Reads Countdown instances from a file as RAGEN does: it takes the first rows, and keeps those that + and - alone can solve. */
import { z } from "zod";
import { cached } from "../data/cached.ts";
import { readRows } from "../data/rows.ts";
import { itemsOfSplit, type Split } from "../data/split.ts";
import { type Countdown, instanceText, signedSolution } from "./game.ts";

export const COUNTDOWN_HOME = "https://huggingface.co/datasets/Jiayi-Pan/Countdown-Tasks-3to4";

const Row = z.object({ target: z.int(), nums: z.array(z.int().nonnegative()).min(1).max(6) });

const cache = cached<readonly Countdown[]>(4);

/** @throws {DataError} if the file is invalid or has no instance of the split. */
export function countdownInstances(path: string, instancesMax: number, split: Split | "all"): readonly Countdown[] {
  return cache(`${path} ${instancesMax} ${split}`, () => {
    const solvable = readRows(path, Row)
      .take(instancesMax)
      .filter((instance) => signedSolution(instance) !== null);
    return itemsOfSplit(solvable, split, instanceText, path);
  });
}
