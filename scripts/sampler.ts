/** `bun run sampler`: lends a sampler to a run on another machine. The sampler may leave at any time; other samplers then play its tickets. */
import type { RunConfig } from "../actors/config/config.ts";
import { sampler } from "../actors/sampler/start.ts";
import { lend, lendFlags } from "./cli/lend.ts";
import { type Command, flag, type Parsed } from "./cli/options.ts";

export const command = {
  flags: {
    ...lendFlags,
    slots: flag.positive(
      "N",
      "Maximum number of episodes that the sampler decodes in one batch (default: the run's sampler.slots)",
    ),
    threads: flag.positive("N", "Threads of the engine (default: the run's sampler.threads)"),
  },
  examples: [
    "BUNRAKU_TOKEN=… bun run sampler --join wss://learner.example:7000 --ca ca.pem",
    "bun run sampler --join ws://127.0.0.1:7000 --token-file runs/NAME/join.token --slots 32 --threads 4",
  ],
} as const satisfies Command;

export async function main({ flags }: Parsed<typeof command>): Promise<number> {
  return lend(sampler, flags, (config) => adapted(config, flags));
}

/** The run's config, with the settings of this machine from the flags. */
export function adapted(config: RunConfig, { slots, threads }: { slots?: number; threads?: number }): RunConfig {
  const { sampler } = config;
  return { ...config, sampler: { ...sampler, slots: slots ?? sampler.slots, threads: threads ?? sampler.threads } };
}
