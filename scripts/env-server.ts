/** `bun run env-server`: lends an env server to a run on another machine. It connects to the run, so this machine needs no open port. */
import type { RunConfig } from "../actors/config/config.ts";
import { envServer } from "../actors/env-server/start.ts";
import { lend, lendFlags } from "./cli/lend.ts";
import { type Command, flag, type Parsed } from "./cli/options.ts";

export const command = {
  flags: {
    ...lendFlags,
    episodes: flag.positive("N", "Maximum number of open episodes (default: the run's envServer.episodesMax)"),
  },
  examples: [
    "BUNRAKU_TOKEN=… bun run env-server --join wss://learner.example:7000 --ca ca.pem",
    "bun run env-server --join ws://127.0.0.1:7000 --token-file runs/NAME/join.token",
  ],
} as const satisfies Command;

export async function main({ flags }: Parsed<typeof command>): Promise<number> {
  return lend(envServer, flags, (config) => adapted(config, flags));
}

/** The run's config, with the settings of this machine from the flags. */
export function adapted(config: RunConfig, { episodes }: { episodes?: number }): RunConfig {
  const { envServer } = config;
  return { ...config, envServer: { ...envServer, episodesMax: episodes ?? envServer.episodesMax } };
}
