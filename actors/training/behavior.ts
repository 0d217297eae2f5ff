/**
 * Metrics of a policy's behavior: why episodes failed (envs/analysis/failure.ts), and whether the policy's thoughts are true
 * (envs/analysis/reasoning.ts). A claim is a statement of a thought that the env's scorer can check. The shares of all failures and the share of solved episodes add up to 1.
 */
import { FAILURES, type Failure, failureOf } from "../../envs/analysis/failure.ts";
import { faithfulness } from "../../envs/analysis/reasoning.ts";
import type { EnvTag } from "../../envs/tag.ts";
import { mean } from "../../model/statistics.ts";
import type { MetricValues } from "../metrics/metrics.ts";
import type { PlayedTicket } from "../play/finished-ticket.ts";
import type { Ticket } from "../protocol.ts";

/** The tag of a ticket's env, by the env's name. */
export type TagOf = (name: string) => Pick<EnvTag, "stateOf" | "reasoning">;

export function failureCounts(played: readonly PlayedTicket[], tagOf: TagOf): Readonly<Record<Failure, number>> {
  const tags = tagsOf(played, tagOf);
  const found = played.map(({ ticket, outcome }) => failureOf(outcome, tags.get(ticket.env)!.stateOf));
  const count = (failure: Failure) => found.filter((one) => one === failure).length;
  return Object.fromEntries(FAILURES.map((failure) => [failure, count(failure)])) as Record<Failure, number>;
}

export interface Thoughts {
  /** Mean share of true claims, over turns whose thought makes a claim that can be checked. */
  readonly faithful: number;
  /** Share of turns whose thought makes a claim that can be checked. */
  readonly claiming: number;
}

/** @returns null if no thought makes a claim that can be checked */
export function thoughtsOf(played: readonly PlayedTicket[], tagOf: TagOf): Thoughts | null {
  const tags = tagsOf(played, tagOf);
  /** Scores by env and turn, because the episodes of a group often have equal turns. */
  const known = new Map<string, number | null>();
  const scores = played.flatMap(({ ticket, outcome }) => {
    const { reasoning } = tags.get(ticket.env)!;
    if (reasoning === undefined) return [];
    return outcome.turns.map((turn) => {
      const key = JSON.stringify([ticket.env, turn.observation, turn.reply, turn.actions]);
      return known.getOrInsertComputed(key, () => faithfulness(reasoning, turn));
    });
  });
  const claims = scores.filter((score) => score !== null);
  if (claims.length === 0) return null;
  return { faithful: mean(claims), claiming: claims.length / scores.length };
}

export function behaviorMetrics(
  purpose: Ticket["purpose"],
  played: readonly PlayedTicket[],
  tagOf: TagOf,
): MetricValues {
  const thoughts = thoughtsOf(played, tagOf);
  const thinking =
    thoughts === null
      ? {}
      : { [`${purpose}/faithful_thoughts`]: thoughts.faithful, [`${purpose}/claiming_thoughts`]: thoughts.claiming };
  if (purpose === "train") return thinking;
  const failures = Object.entries(failureCounts(played, tagOf)).map(([name, count]) => {
    return [`validate/fail_${name}`, count / played.length] as const;
  });
  return { ...thinking, ...Object.fromEntries(failures) };
}

function tagsOf(played: readonly PlayedTicket[], tagOf: TagOf): ReadonlyMap<string, ReturnType<TagOf>> {
  return new Map([...new Set(played.map(({ ticket }) => ticket.env))].map((name) => [name, tagOf(name)]));
}
