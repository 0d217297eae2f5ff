/** The starts of a run: `starts.jsonl` in its folder has a line for its first start and for each resume. */
import { join } from "node:path";
import { z } from "zod";
import { appendJsonLine, readJsonLines } from "../checkpoint/json.ts";

export const RunStart = z.strictObject({
  at: z.iso.datetime(),
  command: z.string().describe("The command as typed in a shell; secrets are hidden"),
  commit: z.string().nullable().describe("Git commit of the code, with + if files differ from it; null if unknown"),
  versions: z.record(z.string(), z.string()).describe("Versions of Bunraku, Bun and onnxruntime-node"),
  machine: z.string(),
});
export type RunStart = z.infer<typeof RunStart>;

const fileIn = (folder: string) => join(folder, "starts.jsonl");

export const addStart = (folder: string, start: RunStart): void => appendJsonLine(fileIn(folder), start);

/** The starts, oldest first; empty if an older Bunraku made the run. @throws {Error} if a line is not a start; the message names the line */
export const readStarts = (folder: string): RunStart[] => readJsonLines(fileIn(folder), RunStart);
