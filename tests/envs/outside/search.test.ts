/** SearchQA against RAGEN's own numbers, and against local servers that speak the protocols of RAGEN and Search-R1. */
import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { evaluatePlayer } from "../../../envs/analysis/evaluate.ts";
import type { OutsideGame } from "../../../envs/env.ts";
import { envTag } from "../../../envs/registry.ts";
import { answerIn, normalizeAnswer } from "../../../envs/search/answer.ts";
import { SearchGame, type SearchQuestion, type SearchRules } from "../../../envs/search/game.ts";
import { documentsText, type Retriever, wordRetriever } from "../../../envs/search/retrieval.ts";
import { villageDocuments, villageQuestions } from "../../../envs/search/village.ts";
import { pythonFixed } from "../../../envs/text/numbers.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { expectNoWaitOnceClosed, jsonService } from "./json-service.ts";
import ragen from "./ragen-search.json";

const folder = temporaryFolder();

const dataPath = join(folder, "questions.jsonl");
writeFileSync(dataPath, ragen.data.map((row) => JSON.stringify(row)).join("\n"));

const open = (options: object, layout = 0, tag = "SearchQA") =>
  envTag(tag, { split: "all", dataPath, retryMs: 1, ...options }).open({ layout, dynamics: 0 }) as OutsideGame;

const keys = {
  max_steps: "stepsMax",
  correct_reward: "correctReward",
  incorrect_reward: "incorrectReward",
  f1_threshold: "f1Threshold",
} as const;

/** RAGEN's mock client, which gives every query the same two documents. */
const ragenMock: Retriever = async (query) => [
  {
    id: "mock_1",
    score: 0.9,
    content: `Mock search result for query: '${query}'. This is a placeholder document for testing purposes.`,
  },
  {
    id: "mock_2",
    score: 0.75,
    content: `Another mock document related to: '${query}'. Replace with real retrieval server for actual training.`,
  },
];

test("the best of several right answers counts, without the spaces around it", async () => {
  const rules = envTag("SearchQA").config as unknown as SearchRules;
  const question = { question: "Who?", answers: ["Ada Byron", " Lovelace ", "no"] };
  const given = async (answer: string) => {
    const { reward, success, extra } = await new SearchGame(question, [question], ragenMock, rules).act(
      `finish[${answer}]`,
    );
    return [reward, success, extra];
  };
  expect(await given("lovelace")).toEqual([1, true, {}]);
  expect(await given("Byron")).toEqual([2 / 3, true, {}]);
  expect(await given("Babbage")).toEqual([0, false, { premature_stop: 1 }]);
});

describe("SearchQA, as RAGEN", () => {
  test.each(ragen.episodes)("plays episode %#", async ({ seed, config, opening, turns }) => {
    const options = Object.fromEntries(
      Object.entries(config).map(([name, value]) => [keys[name as keyof typeof keys], value]),
    );
    const opened = open(options, seed) as SearchGame;
    const rules = envTag("SearchQA", options).config as unknown as SearchRules;
    const game = new SearchGame(opened.question, opened.all as readonly SearchQuestion[], ragenMock, rules);
    await game.start();
    expect(game.render()).toBe(opening);
    for (const { action, observation, ...effect } of turns) {
      // Why an episode failed is ours to say.
      const { extra: _, ...given } = await game.act(action);
      expect(given).toEqual(effect);
      expect(game.render()).toBe(observation);
    }
  });

  test.each(ragen.extract as [string, string][])("finds in %j the answer %j", (text, answer) => {
    expect(answerIn(text)).toBe(answer);
  });

  test.each(ragen.normalise as [string, string][])("normalizes %j to %j", (text, plain) => {
    expect(normalizeAnswer(text)).toBe(plain);
  });

  test.each(ragen.format)("shows documents %#", ({ results, config, text }) => {
    const { max_results = 10, max_total_chars = 4000 } = config as { max_results?: number; max_total_chars?: number };
    const documents = results.map(({ id, ...rest }, i) => ({ id: id ?? `doc_${i + 1}`, ...rest }));
    expect(documentsText(documents.slice(0, max_results), max_total_chars)).toBe(text);
  });
});

describe("a retrieval server", () => {
  const hits = [
    { id: "doc_1", content: "Rousseau wrote Émile.", score: 0.875 },
    { id: "doc_2", content: "Émile is a treatise.", score: 0.5 },
  ];
  const shown =
    "Search results for 'author of Émile':\n[Document 1] (ID: doc_1, Score: 0.875)\nRousseau wrote Émile.\n\n" +
    "[Document 2] (ID: doc_2, Score: 0.500)\nÉmile is a treatise.\n\nAvailable actions: search[<query>], finish[<answer>]";

  test("of RAGEN gets the requests of its own client", async () => {
    await using server = jsonService(({ body }) => {
      const { query } = body as { query: string };
      return { query, method: "dense", results: hits, num_results: hits.length };
    });
    const game = open({ url: server.url, resultsMax: 2 });
    await game.start();
    expect(await game.act("search[author of Émile]")).toMatchObject({ reward: 0, done: false, valid: true });
    expect(game.render()).toBe(shown);
    expect(server.asked.map(({ path, body }) => [path, body])).toEqual([
      ["/retrieve", { query: "author of Émile", top_k: 2 }],
    ]);
    expect(await game.act("finish[Jean Jacques Rousseau]")).toMatchObject({ done: true, success: true, valid: true });
    await expect(game.act("finish[again]")).rejects.toThrow("this question is answered; open a new one");
  });

  test("of Search-R1 gets the requests of its own client", async () => {
    await using server = jsonService(() => ({
      result: [hits.map(({ id, content, score }) => ({ document: { id, contents: content }, score }))],
    }));
    const game = open({ url: server.url, api: "search-r1", resultsMax: 2 });
    await game.start();
    await game.act("search[author of Émile]");
    expect(game.render()).toBe(shown);
    expect(server.asked[0]!.body).toEqual({ queries: ["author of Émile"], topk: 2, return_scores: true });
  });

  test("that fails is an error, and no text for the agent", async () => {
    await using server = jsonService(() => Response.json({ error: "CUDA out of memory" }, { status: 500 }));
    const game = open({ url: server.url, retriesMax: 1 });
    await game.start();
    const opening = game.render();
    const error = await game.act("search[x]").catch(String);
    expect(error).toContain("the retrieval server at");
    expect(error).toContain(
      "after 2 tries: answers 500: CUDA out of memory. Start RAGEN's scripts/retrieval/server.py",
    );
    expect(game.render()).toBe(opening);
  });

  test("is no longer waited for once the episode is closed", () =>
    expectNoWaitOnceClosed((url) => open({ url }), "search[x]"));

  test("plays 64 random episodes beside a player who knows the answers", async () => {
    await using server = jsonService(() => ({ results: hits }));
    const tag = envTag("SearchQA", { split: "all", dataPath, url: server.url });
    const options = { episodes: 64, seed: 123 };
    expect(await evaluatePlayer(tag, tag.optimal!, options)).toMatchObject({ success: 1, meanActions: 1 });
    const { success } = await evaluatePlayer(tag, tag.random, options);
    expect(success).toBeWithin(0.05, 0.6);
  });
});

describe("SearchQAMock", () => {
  const mock = (layout: number) => open({ dataPath: null }, layout, "SearchQAMock");

  test("can be solved by searching alone", async () => {
    const retriever = wordRetriever(villageDocuments);
    const never = new AbortController().signal;
    const best = async (query: string) => (await retriever(query, 5, never))[0]!.content;
    for (let layout = 0; layout < villageQuestions.length; layout++) {
      const game = mock(layout);
      const book = /of (The \w+ \w+)/.exec(game.render())![1]!;
      const author = /written by (.+)\.$/.exec(await best(`${book} novel written`))![1]!;
      const town = /town of (\w+)\.$/.exec(await best(`${author} writer born`))![1]!;
      const place = await best(`${town} river`);
      const [, river, country] = /on the river (\w+) in (.+)\.$/.exec(place)!;
      const answer = game.render().includes("In which town") ? town : game.render().includes("river") ? river : country;
      expect(await game.act(`finish[${answer}]`)).toMatchObject({ reward: 1, success: true });
    }
  });

  test("needs neither server nor file, and plays 64 random episodes", async () => {
    const tag = envTag("SearchQAMock");
    expect([tag.external, tag.missing?.()]).toEqual([false, null]);
    const options = { episodes: 64, seed: 123 };
    expect((await evaluatePlayer(tag, tag.optimal!, options)).success).toBe(1);
    expect((await evaluatePlayer(tag, tag.random, options)).success).toBeWithin(0.01, 0.3);
  });

  test("takes no file, which it would not read", () => {
    expect(() => open({ mock: true })).toThrow("the made-up world of mock has its own questions; leave dataPath out");
  });

  test("asks other questions in training than in validation", () => {
    const tag = envTag("SearchQAMock");
    const asked = (first: number) =>
      new Set(Array.from({ length: 400 }, (_, i) => tag.open({ layout: first + i, dynamics: 0 }).render()));
    const [validation, training] = [asked(123), asked(10_000)];
    expect([...validation].filter((question) => training.has(question))).toEqual([]);
    expect(validation.size + training.size).toBe(villageQuestions.length);
  });
});

test("SearchQA says which file it lacks, and how to get it", () => {
  expect(envTag("SearchQA").missing?.()).toMatch(
    /^SearchQA needs a file: write HotpotQA .* set env\.options\.dataPath to it$/,
  );
  expect(() => open({ dataPath: join(folder, "absent.parquet") })).toThrow("there is no file");
});

test("a wrong answer is no success, whatever it earns", async () => {
  const finished = async (answer: string, options: object) => {
    const game = open(options, 0, "SearchQAMock") as SearchGame;
    return game.act(`finish[${answer === "" ? game.question.answers[0]! : answer}]`);
  };
  const paid = { dataPath: null, correctReward: 0, incorrectReward: 0.1 };
  expect(await finished("no such answer", paid)).toMatchObject({ reward: 0.1, success: false });
  expect(await finished("", paid)).toMatchObject({ reward: 0, success: true });
});

test("wordRetriever ranks a rare word above common ones, and gives at most as many documents as asked for", async () => {
  const retriever = wordRetriever(["a red house", "a red boat", "a red house and a red boat", "a green owl"]);
  const found = async (query: string, count: number) =>
    (await retriever(query, count, new AbortController().signal)).map(({ id }) => id);
  expect(await found("red owl", 2)).toEqual(["doc_4", "doc_1"]);
  expect(await found("nothing", 5)).toEqual([]);
});

test("documents are cut after as many characters as Python counts", () => {
  const shown = (content: string, max: number) => documentsText([{ id: "d", content, score: 1 }], max).split("\n")[1];
  const owls = "🦉".repeat(800);
  expect([shown(owls, 4000), shown(`${owls}x`, 4000)]).toEqual([owls, `${owls}...`]);
  const header = "[Document 1] (ID: d, Score: 1.000)\n".length;
  expect([shown("abcd", header + 4), shown("abcd", header + 3)]).toEqual(["abcd", "abc..."]);
});

test("pythonFixed rounds ties to even, and nothing else differently from toFixed", () => {
  // Python: [format(x, ".2f") for x in (0.625, 0.375, 0.125, 2.5, 0.615, 1.005, -0.625, 0.665)]
  const values = [0.625, 0.375, 0.125, 2.5, 0.615, 1.005, -0.625, 0.665];
  expect(values.map((value) => pythonFixed(value, 2))).toEqual([
    "0.62",
    "0.38",
    "0.12",
    "2.50",
    "0.61",
    "1.00",
    "-0.62",
    "0.67",
  ]);
  // Python: [format(x, ".0f") for x in (-0.5, -1.5, -0.0)] + [format(-0.0, ".2f")]
  const negative = [-0.5, -1.5, -0].map((value) => pythonFixed(value, 0));
  expect([...negative, pythonFixed(-0, 2)]).toEqual(["-0", "-2", "-0", "-0.00"]);
});
