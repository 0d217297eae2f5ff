/** `bun run page`: serves the page of a recorded run. It only reads the record. */
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { realClock } from "../actors/clock.ts";
import type { RunConfig } from "../actors/config/config.ts";
import { apiContextOf } from "../actors/dashboard/api-of-run.ts";
import { serveDashboard } from "../actors/dashboard/serve.ts";
import { messageOf } from "../actors/errors.ts";
import { Store } from "../actors/metrics-sink/store.ts";
import { withLocalModules } from "../actors/play/env-modules.ts";
import { readRunConfig } from "../actors/policy/saved-policy.ts";
import { type Command, helped, parseOptions, UsageError } from "./cli/options.ts";
import { warn } from "./cli/say.ts";
import { stopSignal } from "./cli/stop-signals.ts";
import { tokenIn } from "./cli/token-file.ts";

const command = {
  name: "page",
  words: { show: "RUN", text: "Folder of the run", max: 1 },
  flags: {
    host: {
      type: "text",
      value: "HOST",
      text: "Where to listen; another than loopback needs --token-file (127.0.0.1)",
    },
    port: { type: "port", value: "N", text: "Port; 0 for any free one (7001)" },
    "token-file": { type: "text", value: "FILE", text: "Holds the secret that the page asks for" },
  },
  examples: ["bun run page runs/2026-11-20-simplesokoban-1", "bun run page runs/a --port 0"],
} as const satisfies Command;

const PORT = 7001;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const { flags, words } = parseOptions(command, args);
  const [run] = words;
  if (run === undefined) throw new UsageError("name the folder of a run");
  const folder = resolve(run);
  const path = join(folder, "run.sqlite");
  if (!existsSync(path)) throw new UsageError(`no run in ${run}: there is no run.sqlite`);
  const { host = "127.0.0.1" } = flags;
  const { port = PORT } = flags;
  const token = tokenIn(flags["token-file"]);
  const store = new Store({ path, durability: "normal", wallClock: Date.now, readOnly: true });
  if (!store.isCurrent) {
    throw new Error(
      `cannot show ${run}: an older version recorded it, without everything that the page needs; use that version`,
    );
  }
  const page = await serveDashboard({
    store,
    host,
    port,
    token,
    clock: realClock,
    ...apiContextOf(known(readRunConfig(folder)), folder),
  });
  const ended = stopSignal();
  console.log(`page: ${page.url}`);
  await ended;
  await page.stop();
  store.close();
  return 0;
}

/** The config, with a warning if its envs are not those of the record. The page shows episodes without their envs, too. */
function known(config: RunConfig): RunConfig {
  try {
    return withLocalModules(config);
  } catch (error) {
    warn(`replays may differ from the record: ${messageOf(error)}`);
    return config;
  }
}
