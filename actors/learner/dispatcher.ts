/**
 * The dispatcher gives tickets and weights to samplers, and takes the finished episodes. It knows no algorithm: training/ decides which
 * episodes are played, and which of them enter an update.
 *
 * - A sampler gets tickets only after it has loaded a version and acknowledged this version's published digest. A sampler that acknowledges
 *   another digest is quarantined: it gets no tickets until it connects again.
 * - When a sampler connects again, the dispatcher closes the earlier connection. The hello of a killed process may arrive after the hello of
 *   the process that replaces it. Then the dispatcher closes the connection of the new process, and the new process connects again.
 * - The dispatcher takes the outcome of an attempt once. It also answers a second delivery and a delivery after the lease's end, but ignores
 *   the outcome.
 * - A trajectory is invalid if `trajectoryFault` finds a fault, if its weights are not among the last published weights, or if the number of
 *   turns is wrong. The dispatcher logs an invalid trajectory, and the ticket waits again while attempts are left.
 */
import { trajectoryFault } from "../../model/trajectory.ts";
import type { Clock } from "../clock.ts";
import { plural } from "../number-text.ts";
import type { FinishedTicket } from "../play/finished-ticket.ts";
import type { Answer, Ask, Messages, Outcome, PolicyVersion, Tell, Ticket } from "../protocol.ts";
import type { Hello, HostHandler } from "../transport/handshake.ts";
import { notTaken, refused } from "../transport/refusals.ts";
import type { Peer } from "../transport/transport.ts";
import type { Acks } from "../weights/acks.ts";
import type { TicketBook } from "./tickets.ts";

export interface DispatcherOptions {
  readonly tickets: TicketBook;
  readonly acks: Acks;
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly vocabulary: number;
  /** Writes a line to the log, and an event for the page. */
  readonly notice: (level: "info" | "warning" | "error", kind: string, text: string) => void;
}

/** Totals since this learner started. */
export type TicketCounts = Readonly<TicketBook["counts"]>;

interface ConnectedSampler {
  readonly peer: Peer;
  slots: number;
}

export class Dispatcher implements HostHandler {
  readonly #options: DispatcherOptions;
  readonly #samplers = new Map<string, ConnectedSampler>();
  #weights: Messages["weights"] | null = null;
  #leaving = false;
  /** The latest time at which the dispatcher issued or granted a ticket, or a sampler delivered an outcome. */
  #activeAtMs: number;
  /** The latest call of `play`: the number of the call, counted from 1, and how many tickets the call issued. */
  #newest = { batch: 0, tickets: 0 };

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#activeAtMs = options.clock.now();
  }

  get samplerCount(): number {
    return this.#samplers.size;
  }

  get ticketCounts(): TicketCounts {
    return this.#options.tickets.counts;
  }

  /** The newest published policy version; null if the learner has published none. */
  get weights(): PolicyVersion | null {
    return this.#weights && { version: this.#weights.version, digest: this.#weights.digest };
  }

  /** Issues the tickets. @returns the ended tickets, in the order of `tickets`, when all have ended */
  play(tickets: readonly Ticket[]): Promise<readonly FinishedTicket[]> {
    const finished = this.#options.tickets.issue([...tickets]);
    this.#newest = { batch: this.#newest.batch + 1, tickets: tickets.length };
    this.#noteActivity();
    this.grant();
    return finished;
  }

  /** Milliseconds since a ticket was last issued or granted, or an outcome last arrived; 0 if no ticket is open. */
  get stalledMs(): number {
    return this.#open === 0 ? 0 : this.#options.clock.now() - this.#activeAtMs;
  }

  get #open(): number {
    const { tickets } = this.#options;
    return tickets.waiting + tickets.leasedInAll;
  }

  /**
   * How many tickets of the latest call of `play` have ended; null if no ticket is open. The count treats every open ticket as a ticket of
   * this call. So if tickets of earlier calls are open, `ended` is too low, or the result is null.
   */
  get playing(): { readonly batch: number; readonly tickets: number; readonly ended: number } | null {
    const ended = this.#newest.tickets - this.#open;
    return this.#open === 0 || ended < 0 ? null : { ...this.#newest, ended };
  }

  /** For people: how many tickets wait, and what each sampler does. */
  get state(): string {
    const { tickets, acks } = this.#options;
    const quarantined = new Set(acks.quarantined);
    const samplers = [...this.#samplers.keys()].map((name) => {
      const version = acks.version(name);
      if (quarantined.has(name)) return `${name} is quarantined`;
      return version === null ? `${name} has not loaded its weights` : `${name} plays ${tickets.leased(name)}`;
    });
    return `${tickets.waiting} tickets wait; ${samplers.join(", ") || "no sampler is connected"}`;
  }

  /** Call this when the run ends. From then on the dispatcher grants no tickets and logs no lost connections. */
  leave(): void {
    this.#leaving = true;
  }

  /** Grants waiting tickets to all samplers with free slots. */
  grant(): void {
    for (const [actor, sampler] of this.#samplers) this.#grant(actor, sampler);
  }

  /** Tells connected samplers about new weights at once, and other samplers when they connect. */
  announce(weights: Messages["weights"]): void {
    this.#weights = weights;
    this.#options.acks.expect(weights.version, weights.digest);
    for (const { peer } of this.#samplers.values()) peer.tell(weights);
  }

  joined(peer: Peer, who: Hello): void {
    if (who.role !== "sampler") throw new Error(`the learner accepts samplers only, not a ${who.role}`);
    const before = this.#samplers.get(who.actor);
    if (before?.peer === peer) return;
    if (before !== undefined) {
      this.#lost(who.actor);
      before.peer.close(`${who.actor} connected again`);
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

  told(peer: Peer, message: Tell, who: Hello): void {
    const sampler = this.#samplers.get(who.actor);
    if (sampler?.peer !== peer) return;
    switch (message.type) {
      case "sampler.ready":
        sampler.slots = message.slots;
        this.#grant(who.actor, sampler);
        break;
      case "weights.loaded":
        this.#weightsLoaded(who.actor, sampler, message);
        break;
      case "sampler.leaving":
        this.#options.notice("info", "left", `${who.actor} leaves: ${message.reason}`);
        this.#lost(who.actor);
        this.grant();
        break;
      default:
        throw notTaken("to the learner from a sampler", message.type);
    }
  }

  asked(_: Peer, message: Exclude<Ask, Hello>, who: Hello): Answer {
    if (message.type !== "episode.finished") return refused("to the learner from a sampler", message.type);
    const { episode, attempt, outcome } = message;
    this.#noteActivity();
    const usable = this.#usable(who.actor, episode, outcome);
    const fresh = this.#options.tickets.finish(who.actor, episode, attempt, usable);
    const sampler = this.#samplers.get(who.actor);
    if (sampler !== undefined) this.#grant(who.actor, sampler);
    return { type: "episode.taken", episode, fresh };
  }

  #noteActivity(): void {
    this.#activeAtMs = this.#options.clock.now();
  }

  #usable(actor: string, episode: string, outcome: Outcome): Outcome {
    if (!("trajectory" in outcome)) return outcome;
    const { version, digest, turns } = outcome.trajectory;
    const published = this.#options.acks.digestOf(version) === digest;
    const count = outcome.turns.length;
    const unequal =
      count === turns.length ? null : `it has ${plural(turns.length, "turn")}, but the episode has ${count}`;
    const fault = published
      ? (unequal ?? trajectoryFault(outcome.trajectory, this.#options.vocabulary))
      : `version ${version} with digest ${digest.slice(0, 12)}… is not among the last published versions`;
    if (fault === null) return outcome;
    const detail = `${actor} sent an invalid trajectory of ${episode}: ${fault}; this attempt has failed`;
    this.#options.notice("warning", "invalid", detail);
    return { status: "aborted", detail };
  }

  #weightsLoaded(actor: string, sampler: ConnectedSampler, { version, digest }: Messages["weights.loaded"]): void {
    const { acks } = this.#options;
    const wasQuarantined = acks.quarantined.includes(actor);
    if (acks.loaded(actor, version, digest)) {
      this.#grant(actor, sampler);
      return;
    }
    if (wasQuarantined) return;
    const text = `${actor} read weights of version ${version} with digest ${digest.slice(0, 12)}…, not the published digest; ${actor} gets no tickets until it connects again`;
    this.#options.notice("error", "quarantined", text);
  }

  #lost(actor: string): void {
    this.#samplers.delete(actor);
    this.#options.acks.leave(actor);
    this.#options.tickets.lost(actor);
  }

  #grant(actor: string, sampler: ConnectedSampler): void {
    if (this.#leaving) return;
    const { acks, tickets, leaseMs } = this.#options;
    // A sampler that holds a version gets at most an equal share of the open tickets. So the first sampler that loads a new version leaves
    // tickets for the others.
    const share = Math.ceil((tickets.waiting + tickets.leasedInAll) / Math.max(1, acks.holders));
    const room = Math.min(sampler.slots, share) - tickets.leased(actor);
    if (room <= 0) return;
    const granted = tickets.grant(actor, room, acks.version(actor));
    if (granted.length === 0) return;
    this.#noteActivity();
    sampler.peer.tell({ type: "tickets", tickets: granted, leaseMs });
  }
}
