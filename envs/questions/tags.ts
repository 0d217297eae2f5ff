/** MetamathQA and StaticQA: questions of local files. Source: RAGEN config/envs.yaml, which lists no tag for RAGEN's static env. */
import { z } from "zod";
import { missingFile } from "../data/rows.ts";
import { SplitChoice, splitOfSeed } from "../data/split.ts";
import { PythonRandom } from "../rng/mt19937.ts";
import { defineTag, expectGame, type Parts, plainWording, type TagSource } from "../tag.ts";
import { type DataSetName, dataSets, questions } from "./data-set.ts";
import { QuestionGame } from "./game.ts";
import { type Judge, judgeExact } from "./judge.ts";
import { questionScorer } from "./reasoning.ts";

const MetaMathConfig = z.strictObject({
  /** A parquet, jsonl or json file with the data set's own columns. */
  dataPath: z.string().min(1).nullable().default(null),
  split: SplitChoice.default("seed"),
});

const StaticConfig = MetaMathConfig.extend({
  dataSet: z.enum(["metamathqa", "gsm8k", "mmlu"]).default("gsm8k"),
  /** True: use RAGEN's labels and RAGEN's judges. Their errors: "2,500" reads as 2, and the A of "answer" as a choice. */
  ragenJudge: z.boolean().default(false),
});

interface Source {
  readonly tag: string;
  readonly name: DataSetName;
  readonly dataPath: string | null;
  readonly split: SplitChoice;
  readonly judge: Judge;
  /** Read labels as RAGEN's static env does. */
  readonly ragen: boolean;
}

function parts(instruction: string, source: Source): Parts {
  const { name, dataPath, split, judge, ragen } = source;
  const how = `download one from ${dataSets[name].home} and set env.options.dataPath to it`;
  return {
    wording: plainWording(instruction, null, false),
    missing: () => missingFile(dataPath, source.tag, how),
    open({ layout }) {
      const all = questions(name, dataPath!, splitOfSeed(split, layout), ragen);
      return new QuestionGame(new PythonRandom(layout).choice(all), judge, all);
    },
    reasoning: questionScorer(),
    // "Incorrect" does not identify a state: the wrong answers before it may differ.
    stateOf: () => null,
    // A random answer is the answer to a random question.
    random: (game, _actionsLeft, uniform) => {
      const { all } = expectGame(game, QuestionGame);
      return all[Math.floor(uniform() * all.length)]!.answer ?? "";
    },
    optimal: (game) => expectGame(game, QuestionGame).question.answer ?? "",
    best: (game) => (expectGame(game, QuestionGame).question.answer === null ? 0 : 1),
  };
}

export const questionTags: readonly TagSource[] = [
  defineTag({
    tag: "MetamathQA",
    type: "metamathqa",
    schema: MetaMathConfig,
    compatDefaults: { split: "all" },
    actionsMax: 1,
    replyWordsHint: 100,
    parts: (config) =>
      parts("You are solving Math problems. ", {
        tag: "MetamathQA",
        name: "metamathqa",
        ...config,
        judge: judgeExact,
        ragen: false,
      }),
  }),
  defineTag({
    tag: "StaticQA",
    type: "static",
    schema: StaticConfig,
    compatDefaults: { split: "all", ragenJudge: true },
    actionsMax: 1,
    replyWordsHint: 100,
    parts: ({ dataSet, ragenJudge, ...config }) =>
      parts(INSTRUCTIONS[dataSet], {
        tag: "StaticQA",
        name: dataSet,
        ...config,
        ragen: ragenJudge,
        judge: ragenJudge ? dataSets[dataSet].ragenJudge : dataSets[dataSet].judge,
      }),
  }),
];

const INSTRUCTIONS: Record<DataSetName, string> = {
  metamathqa: "You are solving math problems. Answer with the result alone, like <answer>42</answer>.",
  gsm8k: "You are solving math problems. Answer with the number alone, like <answer>42</answer>.",
  mmlu: "You are answering multiple choice questions. Answer with the letter alone, like <answer>B</answer>.",
};
