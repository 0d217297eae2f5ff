/**
 * Documents for a query: from a retrieval server of RAGEN or Search-R1, or from a few documents in memory. Knows no
 * question.
 *
 * Unlike RAGEN's client, a server that fails is an error of the env, never a text for the agent to read.
 *
 * Source: RAGEN-2 ragen/env/search/retrieval_client.py and scripts/retrieval/server.py; Search-R1
 * search_r1/search/retrieval_server.py.
 */
import { z } from "zod";
import type { JsonServer } from "../outside/json-server.ts";

export interface Document {
  readonly id: string;
  readonly content: string;
  readonly score: number;
}

export interface Retriever {
  /** At most `count` documents, the best first. @throws {Error} if they cannot be had; the reason of `signal` if it fired. */
  search(query: string, count: number, signal: AbortSignal): Promise<readonly Document[]>;
}

const RagenAnswer = z.object({
  results: z.array(z.object({ id: z.string().optional(), content: z.string(), score: z.number().default(0) })),
});

/** RAGEN's dense retrieval server: `POST /retrieve {query, top_k}`. It takes no more than 50. */
export function ragenRetriever(server: JsonServer): Retriever {
  return {
    async search(query, count, signal) {
      const body = { query, top_k: Math.min(count, 50) };
      const { results } = await server.ask("/retrieve", body, RagenAnswer, { signal });
      return results.map(({ id, content, score }, i) => ({ id: id ?? `doc_${i + 1}`, content, score }));
    },
  };
}

const SearchR1Answer = z.object({
  result: z
    .array(
      z.array(
        z.object({
          document: z.object({ id: z.union([z.string(), z.number()]).optional(), contents: z.string() }),
          score: z.number(),
        }),
      ),
    )
    .length(1),
});

/** Search-R1's: `POST /retrieve {queries, topk, return_scores}`, a list of queries at a time; here of one. */
export function searchR1Retriever(server: JsonServer): Retriever {
  return {
    async search(query, count, signal) {
      const body = { queries: [query], topk: count, return_scores: true };
      const { result } = await server.ask("/retrieve", body, SearchR1Answer, { signal });
      return result[0]!.map(({ document, score }, i) => ({
        id: String(document.id ?? `doc_${i + 1}`),
        content: document.contents,
        score,
      }));
    },
  };
}

/** What RAGEN's mock client says to any query. */
export const cannedRetriever: Retriever = {
  search: async (query) => [
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
  ],
};

/** Of documents in memory: those that share the most words with the query, rare words first. */
export function wordRetriever(documents: readonly string[]): Retriever {
  const words = documents.map((text) => new Set(wordsOf(text)));
  const frequency = new Map<string, number>();
  for (const of of words) for (const word of of) frequency.set(word, (frequency.get(word) ?? 0) + 1);
  const weight = (word: string) => Math.log(1 + documents.length / (frequency.get(word) ?? documents.length));
  return {
    async search(query, count) {
      const asked = [...new Set(wordsOf(query))];
      return documents
        .map((content, i) => {
          const shared = asked.filter((word) => words[i]!.has(word));
          return { id: `doc_${i + 1}`, content, score: shared.reduce((sum, word) => sum + weight(word), 0) };
        })
        .filter(({ score }) => score > 0)
        .sort((a, b) => b.score - a.score)
        .slice(0, count);
    },
  };
}

const wordsOf = (text: string): string[] => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];

/** Longest part of one document that is shown, in characters. */
const CONTENT_MAX = 800;

/** Documents as the agent reads them, in at most `charactersMax` characters. */
export function documentsText(documents: readonly Document[], charactersMax: number): string {
  if (documents.length === 0) return "No relevant documents found for the query.";
  const texts = documents.map(({ id, content, score }, i) => {
    return `[Document ${i + 1}] (ID: ${id}, Score: ${score.toFixed(3)})\n${cut(content, CONTENT_MAX)}`;
  });
  return cut(texts.join("\n\n"), charactersMax);
}

/** The first characters of a text, as Python counts them: a character outside the basic plane is one. */
function cut(text: string, max: number): string {
  if (text.length <= max) return text;
  const characters = [...text];
  return characters.length <= max ? text : `${characters.slice(0, max).join("")}...`;
}
