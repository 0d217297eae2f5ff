/**
 * Finished episodes of an evaluation on disk, so that one that ended early goes on and pays nothing twice. One JSON object per
 * line: the settings, then an episode each, written when it has ended.
 *
 * - A file of other settings is refused; boards that are in it are not played again.
 * - The last line may be half written: whoever wrote it was killed. It is cut off. Any other bad line is an error.
 */
import { appendFileSync, existsSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { StopReason, TurnRecord } from "../../protocol.ts";

const Count = z.number().int().nonnegative();

/** Files of version 0.1 have no `dropped`. */
const HostedTurn = TurnRecord.extend({ dropped: Count.default(0) });

export const HostedEpisode = z.strictObject({
  /** Its place among the boards. */
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

/** Everything that an episode depends on. JSON. */
export type HostedSettings = Readonly<Record<string, unknown>>;

/** Results that cannot be gone on with. */
export class ResultsError extends Error {
  override readonly name = "ResultsError";
}

export class Results {
  readonly #file: string | null;
  /** By index. */
  readonly episodes = new Map<number, HostedEpisode>();

  private constructor(file: string | null) {
    this.#file = file;
  }

  /** Kept nowhere: gone when the process ends. */
  static none(): Results {
    return new Results(null);
  }

  /** @throws {ResultsError} naming the file and the line, or the first setting that differs. */
  static open(file: string, settings: HostedSettings): Results {
    const results = new Results(file);
    if (!existsSync(file) || readFileSync(file, "utf8") === "") {
      writeFileSync(file, `${JSON.stringify({ settings })}\n`);
      return results;
    }
    const text = readFileSync(file, "utf8");
    const whole = text.slice(0, text.lastIndexOf("\n") + 1);
    const [head = "", ...lines] = whole.split("\n").slice(0, -1);
    checkSettings(file, head, settings);
    lines.forEach((line, i) => {
      const episode = HostedEpisode.safeParse(json(line));
      if (!episode.success)
        throw new ResultsError(`${file}: line ${i + 2} is no episode; mend it, or name another file`);
      results.episodes.set(episode.data.index, episode.data);
    });
    if (whole.length < text.length) truncateSync(file, Buffer.byteLength(whole));
    return results;
  }

  add(episode: HostedEpisode): void {
    this.episodes.set(episode.index, episode);
    if (this.#file !== null) appendFileSync(this.#file, `${JSON.stringify(episode)}\n`);
  }
}

function checkSettings(file: string, head: string, wanted: HostedSettings): void {
  const found = (json(head) as { settings?: HostedSettings } | null)?.settings;
  if (typeof found !== "object" || found === null) {
    throw new ResultsError(`${file} holds no results of an evaluation; name another file`);
  }
  // As it would be read back: what JSON leaves out is not a difference.
  const asked = JSON.parse(JSON.stringify(wanted)) as HostedSettings;
  const differs = [...new Set([...Object.keys(asked), ...Object.keys(found)])].find(
    (key) => !isDeepStrictEqual(asked[key], found[key]),
  );
  if (differs === undefined) return;
  const values = `${differs} ${JSON.stringify(found[differs])}, and not ${JSON.stringify(asked[differs])}`;
  throw new ResultsError(`${file} is of another evaluation: it has ${values}; name another file`);
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
