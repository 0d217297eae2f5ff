/** Lean: theorems of a local file, checked by a Kimina Lean server. Source: RAGEN-2 config/envs.yaml. */
import { z } from "zod";
import { cached } from "../data/cached.ts";
import { missingFile, readRows } from "../data/rows.ts";
import { itemsOfSplit, SplitChoice, splitOfSeed } from "../data/split.ts";
import { JsonServer, serverOptions, serverUrl } from "../outside/json-server.ts";
import { PythonRandom } from "../rng/mt19937.ts";
import { defineTag, type Parts, plainWording, type TagSource } from "../tag.ts";
import { LeanGame, leanRules } from "./game.ts";
import { checkLean } from "./kimina.ts";
import { readTheorem, type Theorem } from "./theorem.ts";

const LeanConfig = z
  .strictObject({
    /** A parquet, jsonl or json file with `formal_statement` and `natural_language_statement`. */
    dataPath: z.string().min(1).nullable().default(null),
    split: SplitChoice.default("seed"),
    url: serverUrl("http://127.0.0.1:8000"),
    ...serverOptions,
    timeoutMs: z.int().positive().default(60_000),
    /** Lean's time limit for one check. If a check takes longer, the tactic counts as rejected. `timeoutMs` must be longer than this limit. */
    leanSecondsMax: z.int().positive().default(30),
    ...leanRules,
  })
  .refine(({ timeoutMs, leanSecondsMax }) => timeoutMs > 1000 * leanSecondsMax, {
    path: ["timeoutMs"],
    message: "must be longer than leanSecondsMax; otherwise the client stops waiting before Lean's limit",
  });
type LeanConfig = z.infer<typeof LeanConfig>;

const INSTRUCTION =
  "You are a Lean theorem prover. Given a Lean theorem statement, propose a sequence of tactics that completes the proof. Think step by step about which tactics to apply next. Provide tactics separated by '||', for example <answer>intro || simp || rfl</answer>.";

const GET_DATA =
  "download one from https://huggingface.co/datasets/CoderBak/minif2f and set env.options.dataPath to it";
const GET_SERVER =
  "Start a Kimina Lean server (https://github.com/project-numina/kimina-lean-server), or set env.options.url.";

const Row = z.object({ formal_statement: z.string().min(1), natural_language_statement: z.string().nullish() });

/** The random player's tactics. They need no arguments from the goal. */
const TACTICS =
  "simp, norm_num, linarith, nlinarith, ring_nf, omega, positivity, field_simp, aesop, intro h, constructor, rfl, trivial, decide, assumption".split(
    ", ",
  );

const cache = cached<readonly Theorem[]>(4);

/** @throws {DataError} if the file is invalid or has no theorem of the split. */
function theorems({ dataPath, split }: LeanConfig, layout: number): readonly Theorem[] {
  const part = splitOfSeed(split, layout);
  return cache(`${dataPath} ${part}`, () =>
    itemsOfSplit(readRows(dataPath!, Row), part, (row) => row.formal_statement, dataPath!).map((row) =>
      readTheorem(row.formal_statement, row.natural_language_statement ?? ""),
    ),
  );
}

function parts(config: LeanConfig): Parts {
  const server = new JsonServer({ ...config, name: "the Lean server", help: GET_SERVER });
  return {
    external: true,
    missing: () => missingFile(config.dataPath, "Lean", GET_DATA),
    wording: plainWording(INSTRUCTION, null, false),
    open({ layout }) {
      const theorem = new PythonRandom(layout).choice(theorems(config, layout));
      return new LeanGame(theorem, (code, signal) => checkLean(server, code, config.leanSecondsMax, signal), config);
    },
    // The code with the accepted tactics, without steps, log and messages.
    stateOf: (observation) => /\nProof transcript:\n(.*?)(?:\n\n|$)/s.exec(observation)![1]!,
    random: (_game, _actionsLeft, uniform) => TACTICS[Math.floor(uniform() * TACTICS.length)]!,
  };
}

export const leanTags: readonly TagSource[] = [
  defineTag({
    tag: "Lean",
    type: "lean",
    schema: LeanConfig,
    compatDefaults: { split: "all" },
    actionsMax: 30,
    replyWordsHint: 512,
    parts,
  }),
];
