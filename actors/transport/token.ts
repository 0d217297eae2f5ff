/** How actors present and compare the shared secret of a run. */
import { createHash, timingSafeEqual } from "node:crypto";

/** Compares in a time that reveals neither where two secrets differ nor how long they are. */
export function sameSecret(a: string, b: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

/** Value of the Authorization header. */
export const bearer = (token: string): string => `Bearer ${token}`.trim();
