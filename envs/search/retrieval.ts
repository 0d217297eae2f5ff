/**
 * Retrieves documents for a query: from a server of RAGEN or Search-R1, or from documents in memory. Knows no question.
 *
 * Unlike in RAGEN, a failure of the server is an error of the env, not an observation.
 *
 * Source: RAGEN-2 ragen/env/search/retrieval_client.py and scripts/retrieval/server.py; Search-R1
 * search_r1/search/retrieval_server.py.
 */
import { z } from "zod";
import type { JsonServer } from "../outside/json-server.ts";
import { pythonFixed } from "../text/numbers.ts";

export interface Document {
  readonly id: string;
  readonly content: string;
  readonly score: number;
}

/** Returns at most `count` documents, best first. @throws {Error} if retrieval fails. Throws the reason of an aborted `signal`. */
export type Retriever = (query: string, count: number, signal: AbortSignal) => Promise<readonly Document[]>;

const RagenAnswer = z.object({
  results: z.array(z.object({ id: z.string().optional(), content: z.string(), score: z.number().default(0) })),
});

/** RAGEN's dense retrieval server: `POST /retrieve {query, top_k}` with top_k at most 50. */
export function ragenRetriever(server: JsonServer): Retriever {
  return async (query, count, signal) => {
    const body = { query, top_k: Math.min(count, 50) };
    const { results } = await server.ask("/retrieve", body, RagenAnswer, signal);
    return results.map(({ id, content, score }, i) => ({ id: id ?? `doc_${i + 1}`, content, score }));
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

/** Search-R1's server: `POST /retrieve {queries, topk, return_scores}`, here with one query. */
export function searchR1Retriever(server: JsonServer): Retriever {
  return async (query, count, signal) => {
    const body = { queries: [query], topk: count, return_scores: true };
    const { result } = await server.ask("/retrieve", body, SearchR1Answer, signal);
    return result[0]!.map(({ document, score }, i) => ({
      id: String(document.id ?? `doc_${i + 1}`),
      content: document.contents,
      score,
    }));
  };
}

/** Ranks documents in memory by the words they share with the query, weighted by rarity. */
export function wordRetriever(documents: readonly string[]): Retriever {
  const words = documents.map((text) => new Set(wordsOf(text)));
  const frequency = new Map<string, number>();
  for (const own of words) for (const word of own) frequency.set(word, (frequency.get(word) ?? 0) + 1);
  const weight = (word: string) => Math.log(1 + documents.length / (frequency.get(word) ?? documents.length));
  return async (query, count) => {
    const wanted = [...new Set(wordsOf(query))];
    return documents
      .map((content, i) => {
        const shared = wanted.filter((word) => words[i]!.has(word));
        return { id: `doc_${i + 1}`, content, score: shared.reduce((sum, word) => sum + weight(word), 0) };
      })
      .filter(({ score }) => score > 0)
      .sort((a, b) => b.score - a.score)
      .slice(0, count);
  };
}

const wordsOf = (text: string): string[] => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];

/** Maximum number of characters shown of one document. */
const CONTENT_MAX = 800;

/** The documents as an observation, cut after `charactersMax` characters. */
export function documentsText(documents: readonly Document[], charactersMax: number): string {
  if (documents.length === 0) return "No relevant documents found for the query.";
  const texts = documents.map(({ id, content, score }, i) => {
    return `[Document ${i + 1}] (ID: ${id}, Score: ${pythonFixed(score, 3)})\n${cut(content, CONTENT_MAX)}`;
  });
  return cut(texts.join("\n\n"), charactersMax);
}

/** The first `max` characters and "...", or the whole text. Counts characters as Python does: one for each code point. */
function cut(text: string, max: number): string {
  if (text.length <= max) return text;
  const characters = [...text];
  return characters.length <= max ? text : `${characters.slice(0, max).join("")}...`;
}
