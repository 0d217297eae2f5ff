/** What a validation comes down to: the share of episodes that were solved, of all envs and of each. Pure. */

import type { PlayedTicket } from "../play/finished-ticket.ts";
import type { Solved } from "./report.ts";
import { percent } from "./update-metrics.ts";

const share = (played: readonly PlayedTicket[]) =>
  played.filter(({ outcome }) => outcome.success).length / played.length;

export function solvedOf(played: readonly PlayedTicket[]): Solved {
  const byEnv = Map.groupBy(played, ({ ticket }) => ticket.env);
  const envs = byEnv.size > 1 ? [...byEnv].map(([env, own]) => [env, share(own)] as const) : [];
  return { success: share(played), envs: Object.fromEntries(envs) };
}

/** Of the env that is solved least. */
export const lowest = ({ success, envs }: Solved): number => Math.min(success, ...Object.values(envs));

/** "40.0 %", "40.0 % (FrozenLake 30.0 %, Bandit 50.0 %)". */
export function solvedText({ success, envs }: Solved): string {
  const parts = Object.entries(envs).map(([env, own]) => `${env} ${percent(own)}`);
  return parts.length === 0 ? percent(success) : `${percent(success)} (${parts.join(", ")})`;
}
