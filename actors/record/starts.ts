/** The starts of a run: `starts.jsonl` in its folder has a line for its first start and for each resume. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { appendJsonLine, jsonLines } from "../checkpoint/json.ts";
import { messageOf } from "../errors.ts";

export const RunStart = z.strictObject({
  at: z.iso.datetime(),
  command: z.string().describe("The command as typed in a shell; secrets are hidden"),
  commit: z
    .string()
    .nullable()
    .describe("Git commit of the code; ends in + if files differ from the commit; null if unknown"),
  versions: z.record(z.string(), z.string()).describe("Versions of Bunraku, Bun and onnxruntime-node"),
  machine: z.string(),
});
export type RunStart = z.infer<typeof RunStart>;

const fileIn = (folder: string) => join(folder, "starts.jsonl");

export const addStart = (folder: string, start: RunStart): void => appendJsonLine(fileIn(folder), start);

/** The starts, oldest first; empty if an older Bunraku made the run. @throws {Error} if a line is not a start; the message names the line */
export function readStarts(folder: string): RunStart[] {
  const file = fileIn(folder);
  if (!existsSync(file)) return [];
  return jsonLines(file).flatMap((line, i) => {
    if (line === "") return [];
    try {
      return [RunStart.parse(JSON.parse(line))];
    } catch (error) {
      throw new Error(`cannot read ${file}, line ${i + 1}: ${messageOf(error)}`, { cause: error });
    }
  });
}
