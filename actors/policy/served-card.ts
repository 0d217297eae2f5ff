/**
 * What `bun run serve` tells of its policy in GET /v1/models/MODEL. From it `bun run eval` takes the prompts, budgets and lengths of
 * training.
 */
import { z } from "zod";
import type { RunConfig } from "../config/config.ts";
import { EnvConfig, PromptConfig } from "../config/env.ts";

export const ServedCard = z.object({
  env: EnvConfig,
  prompt: PromptConfig,
  replyTokensMax: z.int().positive(),
  contextTokensMax: z.int().positive(),
});
export type ServedCard = z.infer<typeof ServedCard>;

/** The model's card. Only the part that Bunraku wrote is read. */
export const ModelCard = z.object({ bunraku: ServedCard });

export function servedCard({ env, prompt, rollout }: Pick<RunConfig, "env" | "prompt" | "rollout">): ServedCard {
  const { replyTokensMax, contextTokensMax } = rollout;
  return { env, prompt, replyTokensMax, contextTokensMax };
}
