/**
 * `bun run chaos`: a real training run whose processes are killed at moments that a seed decides, and what it kept of its promises.
 * Exit code 0 only if nothing was lost, trained twice, mixed or left behind, and everything came back.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { Elsewhere } from "./chaos/elsewhere.ts";
import { inspect } from "./chaos/inspect.ts";
import { KINDS, type Killing, kill } from "./chaos/kill.ts";
import { type Command, helped, parseOptions, UsageError } from "./cli/options.ts";

const command = {
  name: "chaos",
  flags: {
    minutes: { type: "number", value: "M", text: "Time in which processes are killed, every 5 to 20 s; 2 if left out" },
    seed: { type: "count", value: "S", text: "Of the run, and of who is killed when; 1 if left out" },
    "cut-seconds": {
      type: "number",
      value: "S",
      text: "Lend the run two guests on hosts of their own (network namespaces, as root), whose network is cut for so long",
    },
    only: { type: "text", value: "ACTOR", text: `Whom alone to kill, as often as all: ${KINDS.join(", ")}` },
    "run-dir": {
      type: "text",
      value: "DIR",
      text: "Folder of the run, kept; a temporary one if left out, kept on failure",
    },
    json: { type: "switch", text: "End standard output with one JSON object" },
  },
  examples: [
    "bun run chaos",
    "bun run chaos --minutes 30 --seed 7 --json",
    "bun run chaos --cut-seconds 30",
    "bun run chaos --run-dir runs/chaos-1",
  ],
} as const satisfies Command;

/** In less there might be no kill, and nothing would be shown. */
const MINUTES_MIN = 0.5;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const { flags } = parseOptions(command, args);
  const { minutes = 2, seed = 1, json = false, "run-dir": wanted, "cut-seconds": cutSeconds, only = null } = flags;
  if (minutes < MINUTES_MIN) throw new UsageError(`--minutes takes ${MINUTES_MIN} or more, got ${minutes}`);
  if (only !== null && !KINDS.includes(only))
    throw new UsageError(`--only takes one of ${KINDS.join(", ")}, got ${only}`);
  const scratch = mkdtempSync(join(tmpdir(), "bunraku-chaos-"));
  // A name of its own, by which its files in shared memory are known.
  const folder = wanted ?? join(scratch, basename(scratch));
  const say = (text: string) => console.error(text);
  const elsewhere = cutSeconds === undefined ? null : Elsewhere.make();
  const killing = await kill({ folder, scratch, minutes, seed, say, elsewhere, cutMs: 1000 * (cutSeconds ?? 0), only });
  const found = inspect(folder, killing);
  const { kills, detectionMs, recoveryMs, longestMs, rssBytesPerMinute, updates, problems } = killing;
  const result = {
    kills,
    detectionMs,
    recoveryMs,
    longestMs,
    ...found,
    unrecovered: killing.unrecovered,
    updates,
    rssBytesPerMinute,
  };
  const { episodesLost, duplicatesTrained, mixedVersions, orphans } = found;
  const bad = episodesLost + duplicatesTrained + mixedVersions + orphans + killing.unrecovered + problems.length;
  for (const problem of problems) say(`problem: ${problem}`);
  console.log(table(killing, found));
  if (bad > 0) console.log(`the run is in ${folder}`);
  if (bad === 0 || wanted !== undefined) rmSync(scratch, { recursive: true });
  if (json) console.log(JSON.stringify({ minutes, seed, ok: bad === 0, ...result, problems }));
  return bad === 0 ? 0 : 1;
}

function table(
  { kills, detectionMs, recoveryMs, longestMs, updates, unrecovered }: Killing,
  found: ReturnType<typeof inspect>,
): string {
  const times = ({ p50, p99, max }: Killing["detectionMs"]) => `p50 ${p50}, p99 ${p99}, max ${max} ms`;
  const { episodesLost, duplicatesTrained, mixedVersions, orphans } = found;
  return [
    `${updates} updates`,
    ...Object.entries(longestMs).map(([who, { noticed, recovered }]) => {
      return `${who} ${kills[who]}: noticed after ${noticed} ms at most, serving again after ${recovered} ms at most`;
    }),
    `all: noticed after ${times(detectionMs)}; serving again after ${times(recoveryMs)}; ${unrecovered} not`,
    `episodes lost ${episodesLost}, trained twice ${duplicatesTrained}, mixed versions ${mixedVersions}, orphans ${orphans}`,
  ].join("\n");
}
