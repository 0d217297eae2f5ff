/** Reads Countdown instances from a file as RAGEN does: of the first rows, those that + and - solve. */
import { z } from "zod";
import { cached } from "../data/cached.ts";
import { DataError, readRows } from "../data/rows.ts";
import type { Split } from "../data/split.ts";
import { type Countdown, signedSolution, splitOfInstance } from "./game.ts";

export const COUNTDOWN_HOME = "https://huggingface.co/datasets/Jiayi-Pan/Countdown-Tasks-3to4";

const Row = z.object({ target: z.int(), nums: z.array(z.int().nonnegative()).min(1).max(6) });

const cache = cached<readonly Countdown[]>(4);

/** @throws {DataError} if the file is invalid or has no instance of the split. */
export function countdownInstances(path: string, instancesMax: number, split: Split | "all"): readonly Countdown[] {
  return cache(`${path} ${instancesMax} ${split}`, () => {
    const chosen: Countdown[] = [];
    let rows = 0;
    for (const instance of readRows(path, Row)) {
      if (rows++ === instancesMax) break;
      if (split !== "all" && splitOfInstance(instance) !== split) continue;
      if (signedSolution(instance) !== null) chosen.push(instance);
    }
    if (chosen.length > 0) return chosen;
    throw new DataError(
      `${path}: none of ${rows} rows is in the split ${split} and solvable by + and -; set split to all`,
    );
  });
}
