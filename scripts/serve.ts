/**
 * `bun run serve`: serves a run's policy by OpenAI's chat completions API. It serves the checkpoint that is the newest when it starts.
 */
import { basename, resolve } from "node:path";
import { completionsApp } from "../actors/policy/completions.ts";
import { readRunConfig, savedPolicy, startSavedPolicy } from "../actors/policy/saved-policy.ts";
import { servedCard } from "../actors/policy/served-card.ts";
import { startThread } from "../actors/process/worker-rpc.ts";
import type { PolicyMethods } from "../actors/sampler/policy.ts";
import { isLoopback } from "../actors/transport/address.ts";
import { type Command, helped, parseOptions, UsageError } from "./cli/options.ts";
import { warn } from "./cli/say.ts";
import { stopSignal } from "./cli/stop-signals.ts";
import { tokenIn } from "./cli/token-file.ts";

const PORT = 8000;
const SLOTS = 16;
const QUEUE = 256;

const command = {
  name: "serve",
  words: { show: "RUN", text: "Folder of the run", max: 1 },
  flags: {
    checkpoint: { type: "text", value: "NAME", text: "One of the run's, as u000120; its newest if left out" },
    host: {
      type: "text",
      value: "HOST",
      text: "Address to listen on; other than loopback needs --token-file (127.0.0.1)",
    },
    port: { type: "port", value: "N", text: `Port; 0 for any free one (${PORT})` },
    "token-file": { type: "text", value: "FILE", text: "Holds the secret that clients send as their API key" },
    slots: { type: "count", value: "N", text: `Replies written at once (${SLOTS})` },
    queue: { type: "count", value: "N", text: `Replies that wait for a slot; further requests get 429 (${QUEUE})` },
    temperature: {
      type: "number",
      value: "T",
      text: "Temperature of requests without one; default: the run's rollout.temperature",
    },
  },
  examples: [
    "bun run serve runs/2026-11-20-simplesokoban-1",
    "bun run serve runs/a --checkpoint u000120 --port 0 --temperature 0",
    "bun run serve runs/a --host 0.0.0.0 --token-file ~/.bunraku-token",
    "bun run eval --env SimpleSokoban --policy openai:a --base-url http://127.0.0.1:8000/v1",
  ],
} as const satisfies Command;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const { flags, words } = parseOptions(command, args);
  const [given] = words;
  if (given === undefined) throw new UsageError("say which: the folder of a run");
  const { host = "127.0.0.1", port = PORT, slots = SLOTS, queue = QUEUE, checkpoint = null } = flags;
  const token = tokenIn(flags["token-file"]);
  if (token === null && !isLoopback(host))
    throw new UsageError(
      `--host ${host}: other machines could use the policy without a secret; set one with --token-file`,
    );
  if (slots < 1) throw new UsageError(`--slots must be at least 1, got ${slots}`);
  const folder = resolve(given);
  const config = readRunConfig(folder);
  const { temperature = config.rollout.temperature } = flags;
  if (!(temperature >= 0 && temperature <= 2)) throw new UsageError(`--temperature is 0 to 2, got ${temperature}`);
  const saved = await savedPolicy(folder, config, checkpoint);
  for (const { path, reason } of saved.skipped) warn(`${path} is not used: ${reason}`);
  const died = Promise.withResolvers<never>();
  const thread = startThread<PolicyMethods>(
    new URL("../actors/sampler/policy-worker.ts", import.meta.url),
    died.reject,
  );
  try {
    await startSavedPolicy(saved, config, slots, thread.methods, warn);
    const { contextTokensMax, replyTokensMax } = config.rollout;
    const model = basename(folder);
    const app = completionsApp({
      policy: thread.methods,
      dialogue: saved.dialogue,
      model,
      slots,
      queueMax: queue,
      card: servedCard(config),
      token,
      temperature,
      contextTokensMax,
      replyTokensMax,
      prefix: config.env.think ? "<think>" : "<answer>",
      wallClock: Date.now,
      freshSeed: () => crypto.getRandomValues(new Uint32Array(1))[0]!,
    });
    const server = listen(host, port, (request) => app.fetch(request));
    const shown = host.includes(":") ? `[${host}]` : host;
    const ended = stopSignal();
    console.log(`serving ${model}, ${basename(saved.path)}: http://${shown}:${server.port}/v1`);
    await Promise.race([ended, died.promise]);
    await server.stop(true);
    return 0;
  } finally {
    thread.stop();
  }
}

function listen(hostname: string, port: number, fetch: (request: Request) => Response | Promise<Response>) {
  try {
    // The first byte of a reply may come late.
    return Bun.serve({ hostname, port, fetch, idleTimeout: 255 });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const why = code === "EADDRINUSE" ? "the port is in use; choose another --port, or 0 for any free one" : message;
    throw new Error(`cannot serve on ${hostname}:${port}: ${why}`, { cause: error });
  }
}
