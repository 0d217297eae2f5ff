/**
 * SearchQA: questions whose documents are on a retrieval server. SearchQAMock: questions whose documents are in memory. Source: RAGEN-2
 * config/envs.yaml.
 */
import { z } from "zod";
import { cached } from "../data/cached.ts";
import { missingFile, readRows } from "../data/rows.ts";
import { itemsOfSplit, SplitChoice, splitOfSeed } from "../data/split.ts";
import { JsonServer, serverOptions, serverUrl } from "../outside/json-server.ts";
import { questionScorer } from "../questions/reasoning.ts";
import { defineTag, expectGame, type Parts, type Player, plainWording, type TagSource } from "../tag.ts";
import { SearchGame, type SearchQuestion, searchRules } from "./game.ts";
import { type Retriever, ragenRetriever, searchR1Retriever, wordRetriever } from "./retrieval.ts";
import { villageDocuments, villageQuestions } from "./village.ts";

const SearchConfig = z
  .strictObject({
    /** A parquet, jsonl or json file with `question` and `ground_truth`. */
    dataPath: z.string().min(1).nullable().default(null),
    split: SplitChoice.default("seed"),
    /** Maximum number of questions read from the file. */
    instancesMax: z.int().positive().default(20_000),
    url: serverUrl("http://127.0.0.1:8000"),
    ...serverOptions,
    /** The retrieval server's protocol. */
    api: z.enum(["ragen", "search-r1"]).default("ragen"),
    /** Play a made-up world that is in memory; this needs no server and no file. */
    mock: z.boolean().default(false),
    ...searchRules,
  })
  .refine(({ mock, dataPath }) => !mock || dataPath === null, {
    path: ["dataPath"],
    error: "the made-up world of mock has its own questions; leave dataPath out, or set mock to false",
  });
type SearchConfig = z.infer<typeof SearchConfig>;

const INSTRUCTION = `You are a search agent answering questions by searching for information.
Use search[your query] to find relevant documents, and finish[your answer] to submit your final answer.

You should first reason step-by-step about the current situation. This reasoning process MUST be enclosed within <think> </think> tags.
Then provide your action within <answer>...</answer> tags.

Examples:
  <think>I need to find information about Ben Platt's father.</think><answer>search[Ben Platt father parent]</answer>
  <think>Based on the search results, Ben Platt's father is Henry Platt.</think><answer>finish[Henry Platt]</answer>
`;

const GET_DATA =
  "write HotpotQA (https://huggingface.co/datasets/hotpotqa/hotpot_qa) with the columns question and ground_truth, " +
  "as RAGEN's scripts/prepare_search_data.py does, and set env.options.dataPath to it";
const GET_SERVER =
  "Start RAGEN's scripts/retrieval/server.py or Search-R1's retrieval_server.py, or set env.options.url; " +
  "SearchQAMock needs no server.";

const Row = z.object({
  question: z.string().min(1),
  ground_truth: z.union([z.string().transform((one) => [one]), z.array(z.string()).min(1)]),
});

const cache = cached<readonly SearchQuestion[]>(4);

/** @throws {DataError} if the file is invalid or has no question of the split. */
function questionsOf({ dataPath, split, instancesMax, mock }: SearchConfig, layout: number) {
  const part = splitOfSeed(split, layout);
  return cache(`${dataPath} ${instancesMax} ${part}`, () => {
    const rows = () => readRows(dataPath!, Row).take(instancesMax);
    const all = mock ? villageQuestions : rows().map(({ question, ground_truth: answers }) => ({ question, answers }));
    return itemsOfSplit(all, part, ({ question }) => question, dataPath ?? "the made-up world");
  });
}

function retrieverOf(config: SearchConfig): Retriever {
  if (config.mock) return wordRetriever(villageDocuments);
  const server = new JsonServer({ ...config, name: "the retrieval server", help: GET_SERVER });
  return config.api === "ragen" ? ragenRetriever(server) : searchR1Retriever(server);
}

/** Searches for two words of the question, or gives the answer to a random question. */
const random: Player = (game, _actionsLeft, uniform) => {
  const { question, all } = expectGame(game, SearchGame);
  const pick = <T>(items: readonly T[]): T => items[Math.floor(uniform() * items.length)]!;
  if (uniform() < 0.5) return `finish[${pick(pick(all).answers)}]`;
  const words = question.question.split(/\s+/);
  return `search[${pick(words)} ${pick(words)}]`;
};

function parts(tag: string, config: SearchConfig): Parts {
  const { mock, dataPath } = config;
  const retriever = retrieverOf(config);
  return {
    external: !mock,
    missing: () => (mock ? null : missingFile(dataPath, tag, GET_DATA)),
    wording: plainWording(INSTRUCTION, null, false),
    open({ layout }) {
      const all = questionsOf(config, layout);
      return new SearchGame(all[layout % all.length]!, all, retriever, config);
    },
    random,
    // The optimal player knows the answer and needs no search.
    optimal: (game) => `finish[${expectGame(game, SearchGame).question.answers[0]}]`,
    best: () => 1,
    reasoning: questionScorer((action) => /^finish\[(.*)\]$/s.exec(action)?.[1] ?? null),
  };
}

const search = (tag: string, defaults: Partial<SearchConfig>): TagSource =>
  defineTag({
    tag,
    type: "search",
    schema: SearchConfig,
    defaults,
    compatDefaults: { split: "all" },
    actionsMax: 10,
    replyWordsHint: 300,
    parts: (config: SearchConfig) => parts(tag, config),
  });

export const searchTags: readonly TagSource[] = [search("SearchQA", {}), search("SearchQAMock", { mock: true })];
