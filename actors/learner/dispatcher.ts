/**
 * The learner as samplers see it: it hands out tickets and weights, and takes finished episodes. What is played and what is
 * learnt from it is training.ts; the computation is in trainer-thread.ts.
 *
 * - A sampler gets tickets only for a version whose digest it has acknowledged. One that acknowledges another digest is
 *   quarantined: it gets no more tickets until it says hello again.
 * - An episode is taken once; a second delivery, or one after its lease ran out, is answered and ignored.
 * - A trajectory that cannot be right (its arrays do not fit, a number is none, its weights were never published) is told aloud
 *   and not used: its ticket is issued again, as one that could not be played.
 */

import { trajectoryFault } from "../../model/trajectory.ts";
import type { Clock } from "../clock.ts";
import type { FinishedTicket } from "../play/finished-ticket.ts";
import type { Answer, Ask, Messages, Outcome, PolicyVersion, Tell, Ticket } from "../protocol.ts";
import type { Hello, HostHandler } from "../transport/handshake.ts";
import type { Peer } from "../transport/transport.ts";
import type { Acks } from "../weights/publisher.ts";
import type { TicketBook } from "./tickets.ts";

export interface LearnerOptions {
  readonly tickets: TicketBook;
  readonly acks: Acks;
  readonly leaseMs: number;
  readonly clock: Clock;
  /** Tokens that the policy knows. */
  readonly vocabulary: number;
  /** Something a person should know. */
  readonly notice: (level: "info" | "warning" | "error", kind: string, text: string) => void;
}

interface SamplerView {
  readonly peer: Peer;
  slots: number;
}

export class Learner implements HostHandler {
  readonly #options: LearnerOptions;
  readonly #samplers = new Map<string, SamplerView>();
  #weights: Messages["weights"] | null = null;
  #leaving = false;
  /** When tickets were last issued, handed out or given back. */
  #movedAtMs: number;

  constructor(options: LearnerOptions) {
    this.#options = options;
    this.#movedAtMs = options.clock.now();
  }

  get samplerCount(): number {
    return this.#samplers.size;
  }

  /** The policy that samplers are told of. */
  get weights(): PolicyVersion | null {
    return this.#weights && { version: this.#weights.version, digest: this.#weights.digest };
  }

  /** Play these; resolves in their order when each has ended. */
  play(tickets: readonly Ticket[]): Promise<readonly FinishedTicket[]> {
    const finished = this.#options.tickets.issue([...tickets]);
    this.#moved();
    this.grant();
    return finished;
  }

  /** How long there have been tickets with which nothing happened, in milliseconds; 0 if there are none. */
  get stalledMs(): number {
    const { tickets, clock } = this.#options;
    return tickets.waiting + tickets.leasedInAll === 0 ? 0 : clock.now() - this.#movedAtMs;
  }

  /** Why nothing happens, for people. */
  get state(): string {
    const { tickets, acks } = this.#options;
    const quarantined = new Set(acks.quarantined);
    const samplers = [...this.#samplers.keys()].map((name) => {
      const version = acks.version(name);
      if (quarantined.has(name)) return `${name} is quarantined`;
      return version === null ? `${name} has not loaded its weights` : `${name} plays ${tickets.leased(name)}`;
    });
    return `${tickets.waiting} tickets wait; ${samplers.join(", ") || "no sampler is there"}`;
  }

  /** The run ends here: samplers that leave now are no news, and get no more tickets. */
  leave(): void {
    this.#leaving = true;
  }

  /** Hand out what there is to those who have room. */
  grant(): void {
    for (const [actor, sampler] of this.#samplers) this.#grant(actor, sampler);
  }

  /** Tell every sampler, and whoever joins later, of new weights. */
  announce(weights: Messages["weights"]): void {
    this.#weights = weights;
    this.#options.acks.expect(weights.version, weights.digest);
    for (const { peer } of this.#samplers.values()) peer.tell(weights);
  }

  /** Tell samplers where the next weights will be. Whoever joins later does without. */
  prepare(next: Messages["weights.next"]): void {
    for (const { peer } of this.#samplers.values()) peer.tell(next);
  }

  joined(peer: Peer, who: Hello): void {
    if (who.role !== "sampler") throw new Error(`the learner takes in samplers, not a ${who.role}`);
    const before = this.#samplers.get(who.actor);
    if (before?.peer === peer) return;
    if (before !== undefined) {
      this.#lost(who.actor);
      this.grant();
    }
    this.#samplers.set(who.actor, { peer, slots: 0 });
    this.#options.acks.join(who.actor);
    this.#options.notice("info", "joined", `${who.actor} joined`);
    if (this.#weights !== null) peer.tell(this.#weights);
  }

  left(peer: Peer, who: Hello, reason: string): void {
    if (this.#samplers.get(who.actor)?.peer !== peer) return;
    this.#lost(who.actor);
    if (this.#leaving) return;
    this.#options.notice("warning", "left", `${who.actor} left: ${reason}`);
    this.grant();
  }

  told(_: Peer, message: Tell, who: Hello): void {
    const sampler = this.#samplers.get(who.actor);
    if (sampler === undefined) return;
    switch (message.type) {
      case "sampler.ready":
        sampler.slots = message.slots;
        this.#grant(who.actor, sampler);
        break;
      case "weights.loaded":
        this.#loaded(who.actor, sampler, message);
        break;
      case "sampler.leaving":
        this.#options.notice("info", "left", `${who.actor} leaves: ${message.reason}`);
        this.#lost(who.actor);
        this.grant();
        break;
      default:
        throw new Error(`a learner is not told ${message.type}`);
    }
  }

  asked(_: Peer, message: Exclude<Ask, Hello>, who: Hello): Answer {
    if (message.type !== "episode.finished") {
      return { type: "failed", code: "protocol", detail: `a learner is not asked ${message.type}` };
    }
    const { episode, attempt, outcome } = message;
    this.#moved();
    const usable = this.#usable(who.actor, episode, outcome);
    const fresh = this.#options.tickets.finish(who.actor, episode, attempt, usable);
    const sampler = this.#samplers.get(who.actor);
    if (sampler !== undefined) this.#grant(who.actor, sampler);
    return { type: "episode.taken", episode, fresh };
  }

  #moved(): void {
    this.#movedAtMs = this.#options.clock.now();
  }

  #usable(actor: string, episode: string, outcome: Outcome): Outcome {
    if (!("trajectory" in outcome)) return outcome;
    const { version, digest } = outcome.trajectory;
    const published = this.#options.acks.digestOf(version) === digest;
    const fault = published
      ? trajectoryFault(outcome.trajectory, this.#options.vocabulary)
      : `it was played with version ${version}, ${digest.slice(0, 12)}…, which was not published`;
    if (fault === null) return outcome;
    const detail = `${actor} sent a bad trajectory of ${episode}: ${fault}`;
    this.#options.notice("warning", "poison", detail);
    return { status: "aborted", detail };
  }

  #loaded(actor: string, sampler: SamplerView, { version, digest }: Messages["weights.loaded"]): void {
    if (this.#options.acks.loaded(actor, version, digest)) {
      this.#grant(actor, sampler);
      return;
    }
    const text = `${actor} holds other bytes for version ${version} than were published (${digest.slice(0, 12)}…); it gets no tickets`;
    this.#options.notice("error", "quarantined", text);
  }

  #lost(actor: string): void {
    this.#samplers.delete(actor);
    this.#options.acks.leave(actor);
    this.#options.tickets.lost(actor);
  }

  #grant(actor: string, sampler: SamplerView): void {
    if (this.#leaving) return;
    const { acks, tickets, leaseMs } = this.#options;
    // An equal part of all that is left, played or not: whoever is first leaves as much to those still loading their weights.
    const part = Math.ceil((tickets.waiting + tickets.leasedInAll) / Math.max(1, acks.holders));
    const room = Math.min(sampler.slots, part) - tickets.leased(actor);
    if (room <= 0) return;
    const granted = tickets.grant(actor, room, acks.version(actor));
    if (granted.length === 0) return;
    this.#moved();
    sampler.peer.tell({ type: "tickets", tickets: granted, leaseMs });
  }
}
