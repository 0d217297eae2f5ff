/**
 * `bun run sampler`: lends a sampler to a run on another machine, for as long as you like. It may leave at any time: what it had
 * been given to play is played by others.
 */
import { sampler } from "../actors/sampler/start.ts";
import { lend, lendFlags } from "./cli/lend.ts";
import { type Command, helped, parseOptions } from "./cli/options.ts";

const command = {
  name: "sampler",
  flags: {
    ...lendFlags,
    slots: { type: "count", value: "N", text: "Episodes decoded in one batch; the run's sampler.slots if left out" },
    threads: { type: "count", value: "N", text: "Threads of its engine; the run's sampler.threads if left out" },
  },
  examples: [
    "BUNRAKU_TOKEN=… bun run sampler --join wss://learner.example:7000 --ca ca.pem",
    "bun run sampler --join ws://127.0.0.1:7000 --token-file runs/NAME/join.token --slots 32 --threads 4",
  ],
} as const satisfies Command;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const { flags } = parseOptions(command, args);
  const { slots, threads } = flags;
  return lend(sampler, flags, (config) => ({
    ...config,
    sampler: { ...config.sampler, ...(slots ? { slots } : {}), ...(threads ? { threads } : {}) },
  }));
}
