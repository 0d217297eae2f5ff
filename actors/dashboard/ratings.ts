/**
 * People's ratings of episodes and turns: `ratings.jsonl` in the run's folder, one rating per line. A rating is never changed: if several
 * lines rate the same episode and turn, the last of them counts.
 */
import { z } from "zod";
import { appendJsonLine, readJsonLines } from "../checkpoint/json.ts";

export const RATINGS_MAX = 10_000;

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

/** The newest rating of each episode and turn, oldest first. @throws {Error} if a line of the file is no rating */
export function readRatings(file: string): Rating[] {
  const newest = new Map<string, Rating>();
  for (const rating of readJsonLines(file, Rating)) {
    const key = `${rating.id} ${rating.turn}`;
    newest.delete(key);
    newest.set(key, rating);
  }
  return [...newest.values()];
}

/** @returns false if the file has `RATINGS_MAX` ratings already */
export function addRating(file: string, rating: Rating): boolean {
  if (readJsonLines(file, Rating).length >= RATINGS_MAX) return false;
  appendJsonLine(file, rating, 0o600);
  return true;
}
