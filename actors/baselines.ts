/** What chance and perfect play reach on the boards that a policy is judged by. Pure. */
import { bestPossible, evaluatePlayer } from "../envs/evaluate.ts";
import type { EnvTag } from "../envs/tag.ts";
import type { RunConfig } from "./config.ts";
import type { Success } from "./run-report.ts";

export type Baselines = Pick<Success, "random" | "best">;

/** Random boards are played this many times over, so that the line others are compared with is not itself noise. */
const RANDOM_ROUNDS = 16;

export function measureBaselines(tag: EnvTag, { validate, env }: RunConfig): Baselines {
  const options = { episodes: validate.episodes, seed: validate.firstSeed, actionsMax: env.actionsMax };
  const rounds = Array.from({ length: RANDOM_ROUNDS }, (_, round) =>
    evaluatePlayer(tag, tag.random, { ...options, coins: round }),
  );
  const random = rounds.reduce((sum, { success }) => sum + success, 0) / RANDOM_ROUNDS;
  return { random, best: bestPossible(tag, options) };
}
