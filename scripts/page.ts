/** `bun run page`: serves the page of a recorded run, or of a folder of runs. The command reads the records, and writes only ratings of episodes. */
import { existsSync, statSync } from "node:fs";
import { hasRecord } from "../actors/record/recorded-run.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { runsFolder } from "./cli/presets.ts";
import { serveRecorded } from "./cli/recorded-page.ts";
import { stopSignal } from "./cli/stop-signals.ts";
import { tokenIn } from "./cli/token-file.ts";

export const command = {
  words: {
    show: "RUN",
    text: "Folder of a run, or a folder of runs to list (default: runs/, or runsFolder of bunraku.config.ts)",
    max: 1,
  },
  flags: {
    host: flag.text(
      "HOST",
      "Address to listen on (default: 127.0.0.1); an address other than loopback needs --token-file",
    ),
    port: flag.port("N", "Port; 0 for any free port (default: 7001)"),
    "token-file": flag.text("FILE", "File with the secret that the page asks for"),
  },
  examples: ["bun run page", "bun run page runs/2026-11-20-simplesokoban-1", "bun run page runs/a --port 0"],
} as const satisfies Command;

const PORT = 7001;

export async function main({ flags, words }: Parsed<typeof command>): Promise<number> {
  const [folder = runsFolder()] = words;
  if (!existsSync(folder) || !statSync(folder).isDirectory()) {
    throw new UsageError(`there is no folder ${folder}; name the folder of a run, or a folder of runs`);
  }
  if (existsSync(`${folder}/config.json`) && !hasRecord(folder)) {
    throw new UsageError(`no run in ${folder}: there is no run.sqlite`);
  }
  const { host = "127.0.0.1", port = PORT } = flags;
  const page = await serveRecorded(folder, { host, port, token: tokenIn(flags["token-file"]) });
  const ended = stopSignal();
  console.log(`page: ${page.url}`);
  await ended;
  await page.stop();
  return 0;
}
