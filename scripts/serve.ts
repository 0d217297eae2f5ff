/**
 * `bun run serve`: serves a run's policy through OpenAI's chat completions API. The command serves one checkpoint: by default the newest
 * checkpoint at its start.
 */
import { basename, resolve } from "node:path";
import { serveHttp } from "../actors/dashboard/port.ts";
import { readRunConfig } from "../actors/policy/saved-policy.ts";
import { isLoopback } from "../actors/transport/address.ts";
import { loadPolicy, QUEUE_MAX, SLOTS } from "../library/policy.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { warn } from "./cli/print.ts";
import { stopSignal } from "./cli/stop-signals.ts";
import { tokenIn } from "./cli/token-file.ts";

const PORT = 8000;

export const command = {
  words: { show: "RUN", text: "Folder of the run", max: 1 },
  flags: {
    checkpoint: flag.text("NAME", "Checkpoint of the run, such as u000120 (default: the newest)"),
    host: flag.text(
      "HOST",
      "Address to listen on (default: 127.0.0.1); an address other than loopback needs --token-file",
    ),
    port: flag.port("N", `Port; 0 for any free port (default: ${PORT})`),
    "token-file": flag.text("FILE", "File with the secret that clients send as their API key"),
    slots: flag.positive("N", `Maximum number of replies that the policy writes at once (default: ${SLOTS})`),
    queue: flag.count(
      "N",
      `Maximum number of replies that may wait for a slot; further requests get 429 (default: ${QUEUE_MAX})`,
    ),
    temperature: flag.number(
      "T",
      "Temperature of requests without a temperature (default: the run's rollout.temperature)",
    ),
  },
  examples: [
    "bun run serve runs/2026-11-20-simplesokoban-1",
    "bun run serve runs/a --checkpoint u000120 --port 0 --temperature 0",
    "bun run serve runs/a --host 0.0.0.0 --token-file ~/.bunraku-token",
    "bun run eval --env SimpleSokoban --policy openai:a --base-url http://127.0.0.1:8000/v1",
  ],
} as const satisfies Command;

export async function main({ flags, words }: Parsed<typeof command>): Promise<number> {
  const [given] = words;
  if (given === undefined) throw new UsageError("name the folder of a run");
  const { host = "127.0.0.1", port = PORT, slots = SLOTS, queue = QUEUE_MAX, checkpoint } = flags;
  const token = tokenIn(flags["token-file"]);
  if (token === null && !isLoopback(host))
    throw new UsageError(
      `--host ${host}: other machines could use the policy without a secret; set --token-file, or use 127.0.0.1`,
    );
  const folder = resolve(given);
  const config = readRunConfig(folder);
  const { temperature = config.rollout.temperature } = flags;
  if (!(temperature >= 0 && temperature <= 2))
    throw new UsageError(`--temperature must be from 0 to 2, got ${temperature}`);
  using policy = await loadPolicy(folder, {
    slots,
    queueMax: queue,
    temperature,
    token,
    notice: warn,
    ...(checkpoint !== undefined && { checkpoint }),
  });
  // A reply may take long until its first byte.
  const server = serveHttp("the policy", { hostname: host, port, idleTimeout: 255, fetch: policy.fetch });
  const shown = host.includes(":") ? `[${host}]` : host;
  const ended = stopSignal();
  console.log(`serving ${basename(folder)}, ${policy.checkpoint}: http://${shown}:${server.port}/v1`);
  await Promise.race([ended, policy.died]);
  await server.stop(true);
  return 0;
}
