/** How actors present and compare the shared secret of a run. */
import { createHash, timingSafeEqual } from "node:crypto";

/** Compares in a time that reveals neither where two secrets differ nor how long they are. */
export function sameSecret(a: string, b: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

/** True for printable ASCII without spaces around it: other texts do not pass through an HTTP header unchanged. */
export const fitsHeader = (token: string): boolean => token === token.trim() && /^[ -~]+$/.test(token);

/** Value of the Authorization header. */
export const bearer = (token: string): string => `Bearer ${token}`.trim();
