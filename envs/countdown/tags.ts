/** The Countdown tag. Source: RAGEN config/envs.yaml. */
import { z } from "zod";
import { cached } from "../data/cached.ts";
import { missingFile, readRows } from "../data/rows.ts";
import { itemsOfSplit, type Split, splitOfSeed } from "../data/split.ts";
import type { Uniform } from "../env.ts";
import { defineTag, expectGame, plainWording, type TagSource } from "../tag.ts";
import {
  type Countdown,
  CountdownConfig,
  CountdownGame,
  generateCountdown,
  instanceText,
  signedSolution,
} from "./game.ts";

const COUNTDOWN_HOME = "https://huggingface.co/datasets/Jiayi-Pan/Countdown-Tasks-3to4";

const Row = z.object({ target: z.int(), nums: z.array(z.int().nonnegative()).min(1).max(6) });

const cache = cached<readonly Countdown[]>(4);

/**
 * Reads Countdown instances from a file as RAGEN does: it takes the first `instancesMax` rows, and keeps the rows that + and - alone can
 * solve.
 *
 * @throws {DataError} if the file is invalid or has no instance of the split.
 */
function countdownInstances(path: string, instancesMax: number, split: Split | "all"): readonly Countdown[] {
  return cache(`${path} ${instancesMax} ${split}`, () => {
    const solvable = readRows(path, Row)
      .take(instancesMax)
      .filter((instance) => signedSolution(instance) !== null);
    return itemsOfSplit(solvable, split, instanceText, path);
  });
}

const INSTRUCTION =
  "You are solving the Countdown puzzle. You should use the num list to create an equation that equals the target. Example answer format: <think> To find an equation using [3, 5, 2] to get 4. Let's check 2 + 5 = 7, 7 - 3 = 4. So the answer is 2 + 5 - 3 = 4. </think><answer>2 + 5 - 3</answer>";

export const countdownTags: readonly TagSource[] = [
  defineTag({
    tag: "Countdown",
    type: "countdown",
    schema: CountdownConfig,
    compatDefaults: { split: "all" },
    actionsMax: 1,
    replyWordsHint: 100,
    parts: (config) => ({
      wording: plainWording(INSTRUCTION, null, true),
      missing: () => missingData(config),
      open: ({ layout }) => new CountdownGame(instance(config, layout), config),
      brief: (observation) => observation.replace(/^Target: (\d+), nums: \[(.*)\]$/, "$1 = $2").replaceAll(", ", " "),
      random: (game, _actionsLeft, uniform) => randomExpression(expectGame(game, CountdownGame).instance.nums, uniform),
      optimal: (game) => signedSolution(expectGame(game, CountdownGame).instance)!,
      best: () => 1,
    }),
  }),
];

function missingData({ dataPath }: CountdownConfig): string | null {
  const how = `download one from ${COUNTDOWN_HOME}, or set env.options.dataPath to null for generated instances`;
  return dataPath === null ? null : missingFile(dataPath, "Countdown", how);
}

/** The instance of a seed: RAGEN's choice from the file, or a generated instance if there is no file. */
function instance(config: CountdownConfig, seed: number): Countdown {
  const { dataPath, instancesMax } = config;
  if (dataPath === null) return generateCountdown(config, seed);
  const instances = countdownInstances(dataPath, instancesMax, splitOfSeed(config.split, seed));
  return instances[seed % instances.length]!;
}

/** The numbers in random order with random operators. */
function randomExpression(nums: readonly number[], uniform: Uniform): string {
  const left = [...nums];
  let text = "";
  while (left.length > 0) {
    const [num] = left.splice(Math.floor(uniform() * left.length), 1);
    text += text === "" ? String(num) : ` ${["+", "-", "*", "/"][Math.floor(uniform() * 4)]} ${num}`;
  }
  return text;
}
