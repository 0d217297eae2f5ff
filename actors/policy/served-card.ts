/**
 * The card of a served policy: the answer of `bun run serve` to GET /v1/models/MODEL. `bun run eval` takes from the card the prompts, the
 * budgets of turns and actions, and the limits of tokens with which the policy was trained.
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
