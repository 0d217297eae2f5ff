/**
 * The answer of `bun run serve` to GET /v1/models/MODEL. From this card `bun run eval` takes the prompts, budgets and lengths of the
 * policy's training.
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

/** The model's card. Bunraku reads only the part that Bunraku wrote. */
export const ModelCard = z.object({ bunraku: ServedCard });

export function servedCard({ env, prompt, rollout }: Pick<RunConfig, "env" | "prompt" | "rollout">): ServedCard {
  const { replyTokensMax, contextTokensMax } = rollout;
  return { env, prompt, replyTokensMax, contextTokensMax };
}
