/**
 * Watches the learner's end of one connection to a sampler: tickets go only to a sampler that has acknowledged the digest of a
 * version that may play them.
 */
import type { Tell } from "../../actors/protocol.ts";
import type { Handler } from "../../actors/transport/transport.ts";
import type { Invariants } from "./invariants.ts";

export class GrantWitness {
  readonly #sampler: string;
  readonly #invariants: Invariants;
  /** Digest by announced version. */
  readonly #announced = new Map<number, string>();
  /** The newest version that the sampler acknowledged; null if none, or if it loaded other bytes. */
  #holds: number | null = null;

  constructor(sampler: string, invariants: Invariants) {
    this.#sampler = sampler;
    this.#invariants = invariants;
  }

  telling(message: Tell): void {
    if (message.type === "weights") this.#announced.set(message.version, message.digest);
    if (message.type !== "tickets") return;
    const holds = this.#holds;
    for (const { episode, version, exact } of message.tickets) {
      if (holds !== null && (exact ? holds === version : holds >= version)) continue;
      const wanted = `${exact ? "exactly" : "at least"} ${version}`;
      this.#invariants.broken(5, `${this.#sampler} holds version ${holds} and got ${episode} of ${wanted}`);
    }
  }

  /** A handler that shows every message to this witness before `handler`. */
  hearing(handler: Handler): Handler {
    return {
      opened: (peer) => handler.opened?.(peer),
      told: (peer, message) => {
        if (message.type === "weights.loaded") this.#loaded(message.version, message.digest);
        handler.told(peer, message);
      },
      asked: (peer, message) => handler.asked(peer, message),
      closed: (peer, reason) => handler.closed?.(peer, reason),
    };
  }

  #loaded(version: number, digest: string): void {
    const isRight = this.#announced.get(version) === digest;
    this.#holds = isRight ? Math.max(version, this.#holds ?? version) : null;
  }
}
