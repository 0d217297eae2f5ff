/** `bun run doctor`: checks whether this machine has everything that a run needs. Exit code 1 if something is broken. */
import { join } from "node:path";
import { RunConfig } from "../actors/config/config.ts";
import { type Command, flag, type Parsed } from "./cli/options.ts";
import { runsFolder } from "./cli/presets.ts";
import { findings } from "./doctor/findings.ts";

const root = join(import.meta.dir, "..");
const DEFAULT_PORT = RunConfig.parse({}).metrics.port;

export const command = {
  flags: {
    port: flag.port("N", `Port of a run's page, to check that it is free (default: ${DEFAULT_PORT})`),
    json: flag.switch("Print one JSON object: {ok, findings}"),
  },
  examples: ["bun run doctor", "bun run doctor --json"],
} as const satisfies Command;

export async function main({ flags }: Parsed<typeof command>): Promise<number> {
  const found = await findings(root, runsFolder(), flags.port ?? DEFAULT_PORT);
  const broken = found.filter(({ state }) => state === "broken");
  if (flags.json) console.log(JSON.stringify({ ok: broken.length === 0, findings: found }));
  else {
    const width = Math.max(...found.map(({ name }) => name.length));
    for (const { name, state, found: what, means } of found) {
      console.log(`${state.padEnd(6)}  ${name.padEnd(width)}  ${what}: ${means}`);
    }
    const names = broken.map(({ name }) => name).join(", ");
    console.log(broken.length === 0 ? "\nready to run" : `\nto fix before a run: ${names}`);
  }
  return broken.length === 0 ? 0 : 1;
}
