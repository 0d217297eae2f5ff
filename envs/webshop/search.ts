/**
 * Full text search with Lucene's default ranking: BM25 over one field. Documents are numbers.
 *
 * - Equal scores rank by document number, as in Lucene.
 * - A posting (a document's number and a word's count in the document) takes 4 bytes. The index rounds the lengths of documents as Lucene
 *   does.
 *
 * Source: Robertson and Zaragoza (2009); Lucene BM25Similarity with pyserini's k1 = 0.9, b = 0.4.
 */
import { analyzed } from "./text.ts";

const K1 = 0.9;
const B = 0.4;

/** Bits of a posting that hold the word's count in the document. The index stores a larger count as `COUNT_MAX`. */
const COUNT_BITS = 8;
const COUNT_MAX = 2 ** COUNT_BITS - 1;
const DOCUMENTS_MAX = 2 ** (32 - COUNT_BITS);

/** The documents that contain a word, in ascending order, with the word's count in each document. */
interface Postings {
  packed: Uint32Array;
  length: number;
}

export class SearchIndex {
  readonly #postings = new Map<string, Postings>();
  readonly #lengths: number[] = [];
  #lengthSum = 0;

  /** @returns the document's number, from 0. @throws {RangeError} beyond 2^24 documents. */
  add(text: string): number {
    const document = this.#lengths.length;
    if (document >= DOCUMENTS_MAX) throw new RangeError(`an index holds ${DOCUMENTS_MAX} documents at most`);
    const counts = new Map<string, number>();
    const terms = analyzed(text);
    for (const term of terms) counts.set(term, (counts.get(term) ?? 0) + 1);
    for (const [term, count] of counts) this.#append(term, document * (COUNT_MAX + 1) + Math.min(count, COUNT_MAX));
    this.#lengths.push(rounded(terms.length));
    this.#lengthSum += terms.length;
    return document;
  }

  /** The best `hitsMax` documents that contain at least one word of the query, best first. */
  search(query: string, hitsMax: number): number[] {
    const scores = new Map<number, number>();
    const documents = this.#lengths.length;
    const meanLength = this.#lengthSum / documents;
    for (const term of analyzed(query)) {
      const postings = this.#postings.get(term);
      if (postings === undefined) continue;
      const idf = Math.log(1 + (documents - postings.length + 0.5) / (postings.length + 0.5));
      for (let i = 0; i < postings.length; i++) {
        const packed = postings.packed[i]!;
        const document = packed >>> COUNT_BITS;
        const count = packed & COUNT_MAX;
        const norm = K1 * (1 - B + (B * this.#lengths[document]!) / meanLength);
        scores.set(document, (scores.get(document) ?? 0) + (idf * count) / (count + norm));
      }
    }
    return [...scores]
      .sort(([a, scoreA], [b, scoreB]) => scoreB - scoreA || a - b)
      .slice(0, hitsMax)
      .map(([document]) => document);
  }

  #append(term: string, packed: number): void {
    const postings = this.#postings.get(term) ?? { packed: new Uint32Array(2), length: 0 };
    if (postings.length === postings.packed.length) {
      const grown = new Uint32Array(2 * postings.length);
      grown.set(postings.packed);
      postings.packed = grown;
    }
    postings.packed[postings.length++] = packed;
    this.#postings.set(term, postings);
  }
}

/** A length as Lucene stores it in one byte (SmallFloat): exact below 40. From 40 on, only the four highest bits of (length - 24) remain. */
function rounded(length: number): number {
  if (length < 24) return length;
  const above = length - 24;
  const shift = Math.max(0, 28 - Math.clz32(above));
  return 24 + ((above >>> shift) << shift);
}
