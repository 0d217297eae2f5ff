/** What the page of a run is told besides its store: how its episodes are played, how its policy speaks, which runs lie beside it. */
import type { RunConfig } from "../config.ts";
import type { PlayAnswer } from "../dashboard/answers.ts";
import type { ApiContext } from "../dashboard/api.ts";
import { NearbyRuns } from "../dashboard/runs.ts";
import { episodeRules, playedEnvs, tagOf } from "./played-envs.ts";
import { policyOf } from "./policy-of.ts";

/** @throws {Error} if the policy's tokenizer cannot be read */
export function pageOf(config: RunConfig, folder: string): Omit<ApiContext, "store"> {
  return { play: playOf(config), dialogue: policyOf(config).dialogue, nearby: new NearbyRuns(folder) };
}

/** What it takes to play an episode of this run again. */
function playOf(config: RunConfig): PlayAnswer {
  const envs = playedEnvs(config).map(({ name, tag, options }) => {
    return { name, tag, options: { ...options }, rules: episodeRules(config, name, tagOf(config, name)) };
  });
  return { compat: config.prompt.compat !== "strict", envs };
}
