/**
 * `bun run chaos`: starts a real training run, kills or freezes its processes at seeded moments, and checks the run's promises. The exit code
 * is 0 only if all of these hold: the run loses no episode and trains on no episode twice, no update mixes policy versions, every actor
 * recovers, and no process or file remains.
 */
import { existsSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { type ChaosResult, injectFaults, KINDS, type Percentiles } from "./chaos/inject.ts";
import { inspect } from "./chaos/inspect.ts";
import { makeTemporaryFolder } from "./cli/make-folder.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { onStopSignal } from "./cli/stop-signals.ts";

export const command = {
  flags: {
    minutes: flag.number("M", "For M minutes, kill a process or freeze an env server every 5 to 20 s (default: 2)"),
    seed: flag.count("S", "Seed of the run and of the faults (default: 1)"),
    only: flag.text(
      "ACTOR",
      `Kill or freeze only this kind of actor; the rate of faults stays the same: ${KINDS.join(", ")}`,
    ),
    "run-dir": flag.text("DIR", "Folder of the run (default: a temporary folder, removed unless a check fails)"),
    json: flag.switch("End standard output with one JSON object"),
  },
  examples: ["bun run chaos", "bun run chaos --minutes 30 --seed 7 --json", "bun run chaos --run-dir runs/chaos-1"],
} as const satisfies Command;

/** A shorter run may end before the first kill. */
const MINUTES_MIN = 0.5;

export async function main({ flags }: Parsed<typeof command>): Promise<number> {
  const { minutes = 2, seed = 1, json = false, "run-dir": runDir, only = null } = flags;
  if (minutes < MINUTES_MIN) throw new UsageError(`--minutes takes ${MINUTES_MIN} or more, got ${minutes}`);
  if (only !== null && !KINDS.includes(only)) {
    throw new UsageError(`--only takes one of ${KINDS.join(", ")}, got ${only}`);
  }
  if (runDir !== undefined && existsSync(runDir)) throw new UsageError(`${runDir} exists; choose another --run-dir`);
  const scratch = makeTemporaryFolder("bunraku-chaos-");
  // The names of the run's files in shared memory contain the folder's name, so this name must be unique.
  const folder = runDir ?? join(scratch, basename(scratch));
  const say = (text: string) => console.error(text);
  onStopSignal(() => process.exit(1));
  const result = await injectFaults({ folder, scratch, minutes, seed, say, only });
  const violations = inspect(folder, result);
  const { learnerStartsMs: _, pids: __, problems, ...numbers } = result;
  const counts = [...Object.values(violations), result.unrecovered, problems.length];
  const ok = counts.every((count) => count === 0);
  for (const problem of problems) say(`problem: ${problem}`);
  console.log(table(result, violations));
  if (!ok) console.log(`the run is in ${folder}`);
  if (ok || runDir !== undefined) rmSync(scratch, { recursive: true });
  if (json) console.log(JSON.stringify({ minutes, seed, ok, ...numbers, ...violations, problems }));
  return ok ? 0 : 1;
}

function table(result: ChaosResult, violations: ReturnType<typeof inspect>): string {
  const { kills, detectionMs, recoveryMs, longestMs, updates, unrecovered } = result;
  const times = ({ p50, p99, max }: Percentiles) => `p50 ${p50}, p99 ${p99}, max ${max} ms`;
  const { episodesLost, duplicatesTrained, mixedVersions, orphans } = violations;
  return [
    `${updates} updates`,
    ...Object.entries(longestMs).map(([fault, { noticed, recovered }]) => {
      return `${fault} ${kills[fault]}: noticed within ${noticed} ms, recovered within ${recovered} ms`;
    }),
    `all: noticed ${times(detectionMs)}; recovered ${times(recoveryMs)}; not recovered ${unrecovered}`,
    `episodes lost ${episodesLost}, trained twice ${duplicatesTrained}, mixed versions ${mixedVersions}, orphans ${orphans}`,
  ].join("\n");
}
