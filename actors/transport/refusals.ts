/** Reports refused connections at a limited rate, so that strangers cannot fill the log; refuses messages that an actor does not take. */
import type { Clock } from "../clock.ts";
import { type Ask, type Links, type Messages, ProtocolError, type Tell } from "../protocol.ts";
import type { Problem } from "./transport.ts";

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

/**
 * For the last branch of a `told`: a message that the actor does not take. The compiler refuses the call if a message of `Links` can
 * reach it, because that message has no handler.
 */
export const notTaken = <L extends keyof Links>(link: L, type: Exclude<Tell["type"], Links[L]>): ProtocolError =>
  new ProtocolError(`no message ${type} goes ${link}`);

/** The answer to an ask that the actor does not take. As with `notTaken`, the compiler reports an ask without a handler. */
export const refused = <L extends keyof Links>(link: L, type: Exclude<Ask["type"], Links[L]>): Messages["failed"] =>
  failed("protocol", `no message ${type} goes ${link}`);

export const failed = (code: Messages["failed"]["code"], detail: string): Messages["failed"] => ({
  type: "failed",
  code,
  detail,
});
