/** Reports refused connections at a limited rate, so that outsiders cannot fill the log. Refuses messages that an actor does not handle. */
import type { Clock } from "../clock.ts";
import { type Ask, type Links, type Messages, ProtocolError, type Tell } from "../protocol.ts";
import type { Problem } from "./transport.ts";

/** Shortest time between two reports. */
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

/**
 * The error for the last branch of a `told`, for a message that the actor does not handle. The code does not compile if a message that
 * `Links` allows on this link has no branch of its own.
 */
export const notTaken = <L extends keyof Links>(link: L, type: Exclude<Tell["type"], Links[L]>): ProtocolError =>
  new ProtocolError(`no message ${type} goes ${link}`);

/** The answer to an ask that the actor does not handle. As with `notTaken`, the compiler reports an allowed ask without a branch. */
export const refused = <L extends keyof Links>(link: L, type: Exclude<Ask["type"], Links[L]>): Messages["failed"] =>
  failed("protocol", `no message ${type} goes ${link}`);

export const failed = (code: Messages["failed"]["code"], detail: string): Messages["failed"] => ({
  type: "failed",
  code,
  detail,
});
