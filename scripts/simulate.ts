/**
 * `bun run simulate`: simulates whole runs in one thread, with faults drawn from a seed, and checks the invariants after every event.
 * The simulation is in simulate/.
 */
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { simulateSeeds } from "./simulate/simulate.ts";

export const command = {
  flags: {
    seeds: flag.positive("N", "Number of runs (default: 200)"),
    seed: flag.count("S", "Seed of the first run (default: 1); each further run takes the next seed"),
    json: flag.switch("End standard output with one JSON object"),
  },
  examples: ["bun run simulate", "bun run simulate --seeds 10000 --seed 1001", "bun run simulate --seed 77 --seeds 1"],
} as const satisfies Command;

/** Seeds between two lines of progress. */
const LINE_EVERY = 20;

export async function main({ flags }: Parsed<typeof command>): Promise<number> {
  const { seeds = 200, seed = 1, json = false } = flags;
  const last = Number.MAX_SAFE_INTEGER - seeds + 1;
  if (seed > last) throw new UsageError(`--seed takes at most ${last} with ${seeds} seeds, got ${seed}`);
  const began = performance.now();
  const summary = await simulateSeeds(seed, seeds, (result) => {
    const done = result.seed - seed + 1;
    if (result.broken !== null) console.error(`seed ${result.seed}: ${result.broken}`);
    else if (done % LINE_EVERY === 0) console.error(`${done} of ${seeds} seeds`);
  });
  const seconds = (performance.now() - began) / 1000;
  for (const { seed, broken, tail } of summary.failed.slice(0, 1)) {
    console.log([`seed ${seed}: ${broken}; its last events:`, ...tail.map((line) => `  ${line}`)].join("\n"));
    console.log(`again: bun run simulate --seed ${seed} --seeds 1`);
  }
  const { events, simulatedMs, faults, failed } = summary;
  const counts = Object.entries(faults).map(([kind, count]) => `${count} × ${kind}`);
  const times = `${(simulatedMs / 3_600_000).toFixed(1)} h of simulated time, ${seconds.toFixed(0)} s of real time`;
  const passed = `${seeds - failed.length} of ${seeds} seeds passed`;
  console.log(`${passed}: ${events} events in ${times}; ${counts.join(", ")}`);
  if (json) {
    const named = failed.map(({ seed, broken }) => ({ seed, broken }));
    console.log(JSON.stringify({ seeds, first: seed, failed: named, events, simulatedMs, faults, seconds }));
  }
  return failed.length === 0 ? 0 : 1;
}
