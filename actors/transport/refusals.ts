/** Reports refused connections at a limited rate, so that strangers cannot fill the log; refuses asks. */
import type { Clock } from "../clock.ts";
import type { Ask, Messages } from "../protocol.ts";
import type { Peer, Problem } from "./transport.ts";

/** At most one report in this time. */
const REPORT_MS = 1000;

/** @returns a function that reports a refusal at most once in `REPORT_MS`, with the number of refusals since the last report */
export function reportSeldom(
  clock: Clock,
  report: ((problem: Problem) => void) | undefined,
): (from: string, why: string) => void {
  let quietUntilMs = Number.NEGATIVE_INFINITY;
  let unreported = 0;
  return (from, why) => {
    if (clock.now() < quietUntilMs) {
      unreported++;
      return;
    }
    report?.({ kind: "refused", peer: from, detail: unreported === 0 ? why : `${why} (and ${unreported} before)` });
    unreported = 0;
    quietUntilMs = clock.now() + REPORT_MS;
  };
}

/** Answers every ask with a failure, for handlers that take none. @param who  "a sampler" */
export const refuseAsks =
  (who: string) =>
  (_: Peer, { type }: Ask): Messages["failed"] => ({
    type: "failed",
    code: "protocol",
    detail: `${who} answers no ${type}`,
  });
