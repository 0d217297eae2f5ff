/** DeepCoder: settings, prompt and limits. Source: RAGEN config/envs.yaml. */
import { z } from "zod";
import { missingFile } from "../data/rows.ts";
import { SplitChoice, splitOfSeed } from "../data/split.ts";
import type { Uniform } from "../env.ts";
import { type Limiter, limiter } from "../outside/json-server.ts";
import { PythonRandom } from "../rng/mt19937.ts";
import { defineTag, type Parts, plainWording, type TagSource } from "../tag.ts";
import { DeepCoderGame } from "./game.ts";
import { DEEP_CODER_HOME, readProblems } from "./problem.ts";
import { missingForSandbox, sandboxLimits } from "./sandbox.ts";

const DeepCoderConfig = z.strictObject({
  /** A parquet, jsonl or json file with `problem`, `tests` and optionally `starter_code` and `metadata`. */
  dataPath: z.string().min(1).nullable().default(null),
  /** Maximum number of rows read from the file. */
  problemsMax: z.int().positive().default(1000),
  split: SplitChoice.default("seed"),
  /** True: the whole answer is the program. False: the program ends at the first `||`, as in RAGEN. */
  wholeAnswer: z.boolean().default(true),
  /** Maximum number of answers to one problem. */
  maxSteps: z.int().positive().default(1),
  /** A program runs once for all tests of a problem, within these limits. */
  ...sandboxLimits,
  /** Maximum number of programs that this process runs at the same time; further programs wait. */
  sandboxesMax: z.int().positive().default(4),
});
type DeepCoderConfig = z.infer<typeof DeepCoderConfig>;

const INSTRUCTION =
  "You are solving a coding task. Provide a complete Python function solution only. Format: <answer>...</answer>";

function missing({ dataPath }: DeepCoderConfig): string | null {
  const how = `download one from ${DEEP_CODER_HOME} and set env.options.dataPath to it`;
  const lack = missingForSandbox();
  return missingFile(dataPath, "DeepCoder", how) ?? (lack === null ? null : `DeepCoder: ${lack}`);
}

/** The limiters by `sandboxesMax`, because a run may have several envs of this tag. */
const limiters = new Map<number, Limiter>();

function parts(config: DeepCoderConfig): Parts {
  const { dataPath, problemsMax, split, wholeAnswer, maxSteps: stepsMax, sandboxesMax, ...limits } = config;
  const limit = limiters.getOrInsertComputed(sandboxesMax, limiter);
  return {
    external: true,
    missing: () => missing(config),
    wording: plainWording(INSTRUCTION, null, false),
    open({ layout }) {
      const problems = readProblems(dataPath!, problemsMax, splitOfSeed(split, layout));
      return new DeepCoderGame(new PythonRandom(layout).choice(problems), { wholeAnswer, stepsMax, limits, limit });
    },
    random: (_game, _actionsLeft, uniform) => randomProgram(uniform),
  };
}

/** A program that prints its own input, or a program that prints a random digit. */
function randomProgram(uniform: Uniform): string {
  if (uniform() < 0.5) return "import sys\nprint(sys.stdin.read())";
  return `print(${Math.floor(uniform() * 10)})`;
}

export const deepCoderTags: readonly TagSource[] = [
  defineTag({
    tag: "DeepCoder",
    type: "deepcoder",
    schema: DeepCoderConfig,
    compatDefaults: { wholeAnswer: false },
    actionsMax: 1,
    replyWordsHint: 8000,
    parts,
  }),
];
