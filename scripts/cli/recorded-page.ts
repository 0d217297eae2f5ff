/** Serves the page of a recorded run, or the list of the runs in a folder. */
import { resolve } from "node:path";
import { realClock } from "../../actors/clock.ts";
import type { RunConfig } from "../../actors/config/config.ts";
import { apiContextOf } from "../../actors/dashboard/api-of-run.ts";
import { NearbyRuns, openRecord } from "../../actors/dashboard/runs.ts";
import { type Served, type ServeOptions, serveDashboard } from "../../actors/dashboard/serve.ts";
import { messageOf } from "../../actors/errors.ts";
import { withLocalModules } from "../../actors/play/env-modules.ts";
import { readRunConfig } from "../../actors/policy/saved-policy.ts";
import { hasRecord } from "../../actors/record/recorded-run.ts";
import { warn } from "./print.ts";

type Place = Pick<ServeOptions, "host" | "port" | "token">;

/** @param folder  the folder of a run. A folder without a record counts as a folder of runs. @throws {Error} in one line */
export async function serveRecorded(folder: string, place: Place): Promise<Served> {
  if (!hasRecord(folder)) {
    const nearby = new NearbyRuns(resolve(folder), null);
    return serveDashboard({ ...place, shown: { store: null, nearby }, clock: realClock });
  }
  using opened = new DisposableStack();
  const store = opened.use(openRecord(folder));
  const context = apiContextOf(withKnownModules(readRunConfig(folder)), folder, warn);
  const page = await serveDashboard({ ...place, shown: { store, ...context }, clock: realClock });
  const served = opened.move();
  return { url: page.url, stop: () => page.stop().finally(() => served.dispose()) };
}

/**
 * The config with this machine's modules of envs. If a module is missing or differs from the record's module, the function warns and returns
 * the config unchanged. The page can show episodes without their envs.
 */
function withKnownModules(config: RunConfig): RunConfig {
  try {
    return withLocalModules(config);
  } catch (error) {
    warn(`replays may differ from the record: ${messageOf(error)}`);
    return config;
  }
}
