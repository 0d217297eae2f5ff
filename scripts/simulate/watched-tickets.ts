/** The real ticket book, checked against a second record of leases: who may play what, and until when. */
import { TicketBook, type TicketBookOptions } from "../../actors/learner/tickets.ts";
import type { FinishedTicket } from "../../actors/play/finished-ticket.ts";
import type { Outcome, Ticket } from "../../actors/protocol.ts";
import type { Invariants } from "./invariants.ts";
import type { Defect } from "./machine.ts";

interface WatchedLease {
  readonly ticket: Ticket;
  readonly sampler: string;
  readonly endsAt: number;
}

export class WatchedTickets extends TicketBook {
  readonly #invariants: Invariants;
  readonly #options: TicketBookOptions;
  readonly #defect: Defect | null;
  readonly #leases = new Map<string, WatchedLease>();
  readonly #ticketOf = new WeakMap<object, Ticket>();
  readonly #attempts = new Map<string, number>();
  #open = 0;

  constructor(options: TicketBookOptions, invariants: Invariants, defect: Defect | null) {
    super({
      ...options,
      expired: () => {
        this.#expireLeases();
        options.expired?.();
      },
    });
    this.#defect = defect;
    this.#options = options;
    this.#invariants = invariants;
  }

  /** The ticket whose result was this trajectory. */
  ticketOf(trajectory: object): Ticket {
    return this.#ticketOf.get(trajectory)!;
  }

  /** Checks that every open ticket either waits or has a lease. */
  check(): void {
    const known = this.waiting + this.leasedInAll;
    if (known !== this.#open)
      this.#invariants.broken(1, `${known} tickets are in the book, and ${this.#open} are open`);
  }

  override async issue(tickets: readonly Ticket[]): Promise<FinishedTicket[]> {
    const finished = super.issue(tickets);
    this.#open += tickets.length;
    const ended = await finished;
    const names = (of: readonly { episode: string }[]) => of.map(({ episode }) => episode).join();
    if (names(ended.map(({ ticket }) => ticket)) !== names(tickets))
      this.#invariants.broken(1, `${names(tickets)} were issued and ${names(ended.map(({ ticket }) => ticket))} ended`);
    return this.#defect === "trains twice" ? [...ended, ended[0]!] : ended;
  }

  override grant(sampler: string, slotsFree: number, version: number | null): Ticket[] {
    const granted = super.grant(sampler, slotsFree, version);
    const endsAt = this.#options.clock.now() + this.#options.leaseMs;
    for (const ticket of granted) {
      const { episode, attempt } = ticket;
      if (this.#leases.has(episode)) this.#invariants.broken(1, `${episode} is played twice at the same time`);
      const before = this.#attempts.get(episode) ?? -1;
      if (attempt <= before) this.#invariants.broken(1, `${episode} is issued as attempt ${attempt} after ${before}`);
      this.#attempts.set(episode, attempt);
      this.#leases.set(episode, { ticket, sampler, endsAt });
    }
    return granted;
  }

  override finish(sampler: string, episode: string, attempt: number, outcome: Outcome): boolean {
    const lease = this.#leases.get(episode);
    const taken = super.finish(sampler, episode, attempt, outcome) || this.#defect === "takes anything";
    const due = lease?.sampler === sampler && lease.ticket.attempt === attempt;
    if (taken && !due) this.#invariants.broken(1, `${episode} was taken from ${sampler}, which had no ticket for it`);
    if (taken) this.#leases.delete(episode);
    if (taken && "trajectory" in outcome) {
      this.#open--;
      if (lease !== undefined) this.#ticketOf.set(outcome.trajectory, lease.ticket);
    }
    return taken;
  }

  override lost(sampler: string): void {
    super.lost(sampler);
    for (const [episode, lease] of this.#leases) if (lease.sampler === sampler) this.#leases.delete(episode);
  }

  #expireLeases(): void {
    const now = this.#options.clock.now();
    for (const [episode, { endsAt }] of this.#leases) if (endsAt <= now) this.#leases.delete(episode);
  }
}
