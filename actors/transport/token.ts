/** The shared secret of a run: how it is compared and presented. */
import { createHash, timingSafeEqual } from "node:crypto";

/** True if they are equal, in a time that tells nothing about where they differ, nor how long they are. */
export function sameSecret(a: string, b: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(a), digest(b));
}

/** Value of the Authorization header. */
export const bearer = (token: string): string => `Bearer ${token}`.trim();
