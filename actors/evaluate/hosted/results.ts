/**
 * Stores the finished episodes of an evaluation in a file. So an evaluation that continues after an interruption plays no finished episode
 * again. Each line of the file is one JSON object: the first line has the settings; each later line has one episode.
 *
 * - `open` refuses a file with other settings.
 * - `open` removes an incomplete last line, which a killed process leaves. Any other invalid line is an error.
 */
import { existsSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { type Append, appendWhole } from "../../checkpoint/disk.ts";
import { parsedJson } from "../../checkpoint/json.ts";
import { StopReason, TurnRecord } from "../../protocol.ts";

const Count = z.number().int().nonnegative();

/** The default is for files of Bunraku 0.1, which have no `dropped`. */
const HostedTurn = TurnRecord.extend({ dropped: Count.default(0) });

export const HostedEpisode = z.strictObject({
  /** Index of the episode's ticket in the evaluation. */
  index: Count,
  layoutSeed: Count,
  stop: StopReason,
  success: z.boolean(),
  turns: z.array(HostedTurn).min(1),
  finalObservation: z.string(),
  extra: z.record(z.string(), z.number()),
  inputTokens: Count,
  outputTokens: Count,
});
export type HostedEpisode = z.infer<typeof HostedEpisode>;

/** All settings that may change an episode, as a JSON object. */
export type HostedSettings = Readonly<Record<string, unknown>>;

export class ResultsError extends Error {
  override readonly name = "ResultsError";
}

export class Results {
  readonly #file: string | null;
  readonly #append: Append | undefined;
  readonly episodes = new Map<number, HostedEpisode>();

  private constructor(file: string | null, append?: Append) {
    this.#file = file;
    this.#append = append;
  }

  /** Makes results that stay in memory only. */
  static none(): Results {
    return new Results(null);
  }

  /** @throws {ResultsError} if a line is invalid or a setting differs; the message names the file, and the line or the first such setting */
  static open(file: string, settings: HostedSettings, append?: Append): Results {
    const results = new Results(file, append);
    const text = existsSync(file) ? readFileSync(file, "utf8") : "";
    if (text === "") {
      writeFileSync(file, `${JSON.stringify({ settings })}\n`);
      return results;
    }
    const whole = text.slice(0, text.lastIndexOf("\n") + 1);
    const [head = "", ...lines] = whole.split("\n").slice(0, -1);
    checkSettings(file, head, settings);
    lines.forEach((line, i) => {
      const episode = HostedEpisode.safeParse(parsedJson(line));
      if (!episode.success)
        throw new ResultsError(`${file}: line ${i + 2} is not an episode; correct it, or name another file`);
      results.episodes.set(episode.data.index, episode.data);
    });
    if (whole.length < text.length) truncateSync(file, Buffer.byteLength(whole));
    return results;
  }

  /** @throws {Error} if the episode cannot be written whole. Then the file has no part of the episode, so that later lines stay valid */
  add(episode: HostedEpisode): void {
    if (this.#file !== null) appendWhole(this.#file, `${JSON.stringify(episode)}\n`, this.#append);
    this.episodes.set(episode.index, episode);
  }
}

function checkSettings(file: string, head: string, wanted: HostedSettings): void {
  const found = (parsedJson(head) as { settings?: HostedSettings } | null | undefined)?.settings;
  if (typeof found !== "object" || found === null) {
    throw new ResultsError(`${file} does not contain results of an evaluation; name another file`);
  }
  // JSON drops undefined values, so the file has none. This line drops them from the wanted settings too.
  const asked = JSON.parse(JSON.stringify(wanted)) as HostedSettings;
  const differs = [...new Set([...Object.keys(asked), ...Object.keys(found)])].find(
    (key) => !isDeepStrictEqual(asked[key], found[key]),
  );
  if (differs === undefined) return;
  const values = `${differs} is ${JSON.stringify(found[differs])} there and ${JSON.stringify(asked[differs])} here`;
  throw new ResultsError(`${file} belongs to another evaluation: ${values}; name another file`);
}
