/**
 * People's ratings of episodes and turns. `ratings.jsonl` in the run's folder has one rating per line. `Ratings` only appends lines. If
 * several lines rate the same episode and turn, `list` returns the last of these ratings.
 *
 * - ratings.jsonl has at most `RATINGS_MAX` lines. A line that is not a rating is an error that names the line.
 */
import { existsSync } from "node:fs";
import { z } from "zod";
import { appendJsonLine, jsonLines, parsedJson } from "../checkpoint/json.ts";
import { schemaFaults } from "../errors.ts";

const RATINGS_MAX = 10_000;

export const NewRating = z
  .strictObject({
    id: z.int().positive().describe("Id of the episode in /api/episodes"),
    turn: z.int().positive().nullable().default(null).describe("Number of the turn, from 1; null: the whole episode"),
    score: z.int().min(1).max(5).nullable().default(null).describe("1: bad, 5: good; null: a note alone"),
    note: z.string().max(2000).default(""),
  })
  .refine(({ score, note }) => score !== null || note.trim() !== "", "a rating has a score or a note");

export const Rating = z.strictObject({
  ...NewRating.shape,
  episode: z.string().describe("Name of the episode"),
  atMs: z.number().describe("Milliseconds since the epoch"),
});
export type Rating = z.infer<typeof Rating>;

export class TooManyRatings extends Error {
  override readonly name = "TooManyRatings";
}

export class Ratings {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /** The newest rating of each episode and turn, oldest first. @throws {Error} if a line of the file is no rating */
  list(): Rating[] {
    const newest = new Map<string, Rating>();
    for (const rating of this.#lines()) {
      const key = `${rating.id} ${rating.turn}`;
      newest.delete(key);
      newest.set(key, rating);
    }
    return [...newest.values()];
  }

  /** @throws {TooManyRatings} */
  add(rating: Rating): void {
    if (this.#lines().length >= RATINGS_MAX)
      throw new TooManyRatings(`${this.#path} has ${RATINGS_MAX} ratings, the most allowed; move it elsewhere`);
    appendJsonLine(this.#path, rating, 0o600);
  }

  #lines(): Rating[] {
    if (!existsSync(this.#path)) return [];
    return jsonLines(this.#path).flatMap((line, i) => (line === "" ? [] : [this.#parsed(line, i + 1)]));
  }

  #parsed(line: string, number: number): Rating {
    const found = Rating.safeParse(parsedJson(line));
    if (found.success) return found.data;
    throw new Error(`${this.#path}, line ${number}: no rating: ${schemaFaults(found.error, "line")}`);
  }
}
