/** Derives dynamics seeds, for tickets and for baselines. */
import { createHash } from "node:crypto";

/**
 * The dynamics seed of one episode on a board. It is a hash, so that generators seeded with the layout seed and with the
 * dynamics seed give unrelated numbers.
 *
 * @param member  index of the episode among the episodes of the board, from 0
 */
export function dynamicsSeed(layoutSeed: number, member: number): number {
  return createHash("sha256").update(`dynamics ${layoutSeed} ${member}`).digest().readUInt32BE(0);
}
