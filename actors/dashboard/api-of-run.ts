/** Makes the API's context from a run's config and folder. */
import { envTags } from "../../envs/registry.ts";
import type { RunConfig } from "../config/config.ts";
import { episodeRules, playedEnvs, tagOf } from "../play/envs-of-run.ts";
import { policyOf } from "../policy/policy-of-run.ts";
import type { PlayAnswer } from "./answers.ts";
import type { ApiContext } from "./api.ts";
import { NearbyRuns } from "./runs.ts";

/** @throws {Error} if the policy's tokenizer cannot be read */
export function apiContextOf(config: RunConfig, folder: string): Omit<ApiContext, "store"> {
  return { play: playOf(config), dialogue: policyOf(config).dialogue, nearby: new NearbyRuns(folder) };
}

function playOf(config: RunConfig): PlayAnswer {
  // An env whose module is unknown here is shown without replay.
  const envs = playedEnvs(config).flatMap(({ name, tag, options }) => {
    if (!envTags().includes(tag)) return [];
    return { name, tag, options: { ...options }, rules: episodeRules(config, name, tagOf(config, name)) };
  });
  return { compat: config.prompt.compat, envs };
}
