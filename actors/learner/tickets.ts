/**
 * The learner's record of what must be played, by whom, until when. It knows no sockets, no weights and no maths.
 *
 * 1. Every issued ticket ends exactly once; `issue` resolves when all of its tickets have, in the order they were given.
 * 2. A ticket is leased to at most one sampler at a time. Only the holder of the lease, naming the attempt, can end it; every
 *    other outcome (late, doubled, never asked for) is ignored and counted.
 * 3. Seeds, settings and name of a ticket never change; only `attempt` does. So who plays it, and how often, cannot be
 *    seen in the episode.
 * 4. Older tickets are granted first. One that comes back (its sampler is lost, its lease expired, its episode failed) is as
 *    old as it was before.
 * 5. No ticket is issued more than `attemptsMax` times. Memory is bounded by what the learner issues: it waits for its batches.
 */
import type { Clock } from "../clock.ts";
import type { FinishedTicket } from "../play/finished-ticket.ts";
import type { Outcome, Ticket } from "../protocol.ts";
import { WaitingTickets } from "./waiting-tickets.ts";

export interface TicketBookOptions {
  readonly clock: Clock;
  /** Time to play a ticket. */
  readonly leaseMs: number;
  /** Times a ticket is issued at most; at least 1. */
  readonly attemptsMax: number;
  /** Leases ran out, so there may be tickets to grant that nobody asks for. */
  readonly expired?: () => void;
}

interface Batch {
  /** By index in the batch. */
  readonly finished: FinishedTicket[];
  /** Tickets that have not ended. */
  open: number;
  readonly resolve: (finished: FinishedTicket[]) => void;
}

interface Entry {
  /** Order of issue, over all batches. */
  readonly serial: number;
  readonly batch: Batch;
  readonly index: number;
  ticket: Ticket;
}

interface Lease {
  readonly entry: Entry;
  readonly sampler: string;
  /** On the clock. */
  readonly endsAt: number;
}

export class TicketBook {
  readonly #options: TicketBookOptions;
  /** Names of all tickets that have not ended. */
  readonly #open = new Set<string>();
  readonly #waiting = new WaitingTickets<Entry>();
  /** By episode; in the order of their ends, as all leases are equally long. */
  readonly #leases = new Map<string, Lease>();
  /** The same by sampler. */
  readonly #leasesOf = new Map<string, Set<Lease>>();
  #nextSerial = 0;
  #cancelTimer: (() => void) | null = null;
  #expired = 0;
  #ignored = 0;
  #retried = 0;

  /** @throws {RangeError} if a limit makes no sense. */
  constructor(options: TicketBookOptions) {
    const { leaseMs, attemptsMax } = options;
    if (!(leaseMs > 0)) throw new RangeError(`leaseMs must be positive, got ${leaseMs}`);
    if (!Number.isInteger(attemptsMax) || attemptsMax < 1) {
      throw new RangeError(`attemptsMax must be an integer of at least 1, got ${attemptsMax}`);
    }
    this.#options = options;
  }

  /** Tickets that nobody plays now. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Leases that ended before an outcome came. */
  get expired(): number {
    return this.#expired;
  }

  /** Outcomes that were not used: late, doubled or never asked for. */
  get ignored(): number {
    return this.#ignored;
  }

  /** Times a ticket was put back to be issued again, for whatever reason. */
  get retried(): number {
    return this.#retried;
  }

  /** Tickets that are being played now. */
  get leasedInAll(): number {
    return this.#leases.size;
  }

  /** Tickets that a sampler plays now. */
  leased(sampler: string): number {
    return this.#leasesOf.get(sampler)?.size ?? 0;
  }

  /**
   * Have tickets played. Several batches may be open at once.
   *
   * @returns one entry per ticket, in their order, when each has ended.
   * @throws {RangeError} if the episode of one is in the book already; then none was issued.
   */
  issue(tickets: readonly Ticket[]): Promise<FinishedTicket[]> {
    const names = new Set<string>();
    for (const { episode } of tickets) {
      if (names.has(episode) || this.#open.has(episode))
        throw new RangeError(`cannot issue episode ${episode}: it is in the book already`);
      names.add(episode);
    }
    const { promise, resolve } = Promise.withResolvers<FinishedTicket[]>();
    if (tickets.length === 0) resolve([]);
    const batch: Batch = { finished: new Array(tickets.length), open: tickets.length, resolve };
    for (const name of names) this.#open.add(name);
    this.#waiting.append(tickets.map((ticket, index) => ({ serial: this.#nextSerial++, batch, index, ticket })));
    return promise;
  }

  /**
   * Lease the oldest tickets that it may play to a sampler.
   *
   * @param slotsFree  as many at most
   * @param version    policy version that the sampler has loaded; null: none yet, so it gets nothing
   */
  grant(sampler: string, slotsFree: number, version: number | null): Ticket[] {
    if (version === null) return [];
    const granted = this.#waiting.take(slotsFree, version);
    if (granted.length === 0) return [];
    const endsAt = this.#options.clock.now() + this.#options.leaseMs;
    const own = this.#leasesOf.get(sampler) ?? new Set();
    this.#leasesOf.set(sampler, own);
    for (const entry of granted) {
      const lease = { entry, sampler, endsAt };
      this.#leases.set(entry.ticket.episode, lease);
      own.add(lease);
    }
    this.#arm();
    return granted.map(({ ticket }) => ticket);
  }

  /**
   * An outcome arrived. One without a trajectory (the env failed, the sampler gave up) puts the ticket back while it has
   * attempts left.
   *
   * @returns false if it was ignored: the lease is unknown, expired, somebody else's, or the ticket has ended.
   */
  finish(sampler: string, episode: string, attempt: number, outcome: Outcome): boolean {
    const lease = this.#leases.get(episode);
    if (lease === undefined || lease.sampler !== sampler || lease.entry.ticket.attempt !== attempt) {
      this.#ignored++;
      return false;
    }
    if ("trajectory" in outcome) this.#end(lease, outcome);
    else this.#giveBack(lease, outcome);
    return true;
  }

  /** A sampler is gone: its tickets are for others now. */
  lost(sampler: string): void {
    for (const lease of [...(this.#leasesOf.get(sampler) ?? [])])
      this.#giveBack(lease, aborted(lease, "its sampler was lost"));
  }

  /** End every open ticket as aborted, because the run ends. Outcomes that still come are ignored. */
  close(why: string): void {
    const outcome: Outcome = { status: "aborted", detail: why };
    for (const lease of [...this.#leases.values()]) this.#end(lease, outcome);
    for (const entry of this.#waiting.clear()) this.#settle(entry, "none", outcome);
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  /** @param last  what the ticket ends with if this was its last attempt. */
  #giveBack(lease: Lease, last: Outcome): void {
    const { entry } = lease;
    if (entry.ticket.attempt + 1 >= this.#options.attemptsMax) {
      this.#end(lease, last);
      return;
    }
    this.#free(lease);
    this.#retried++;
    entry.ticket = { ...entry.ticket, attempt: entry.ticket.attempt + 1 };
    this.#waiting.putBack(entry);
  }

  #end(lease: Lease, outcome: Outcome): void {
    this.#free(lease);
    this.#settle(lease.entry, lease.sampler, outcome);
  }

  #free(lease: Lease): void {
    this.#leases.delete(lease.entry.ticket.episode);
    const own = this.#leasesOf.get(lease.sampler)!;
    own.delete(lease);
    if (own.size === 0) this.#leasesOf.delete(lease.sampler);
  }

  #settle({ batch, index, ticket }: Entry, sampler: string, outcome: Outcome): void {
    this.#open.delete(ticket.episode);
    batch.finished[index] = { ticket, sampler, outcome };
    batch.open--;
    if (batch.open === 0) batch.resolve(batch.finished);
  }

  /** One timer at most, for the lease that ends first. */
  #arm(): void {
    const [first] = this.#leases.values();
    if (this.#cancelTimer !== null || first === undefined) return;
    const { clock } = this.#options;
    this.#cancelTimer = clock.after(Math.max(0, first.endsAt - clock.now()), () => {
      this.#cancelTimer = null;
      this.#expire();
      this.#arm();
      this.#options.expired?.();
    });
  }

  #expire(): void {
    const now = this.#options.clock.now();
    for (const lease of this.#leases.values()) {
      if (lease.endsAt > now) break;
      this.#expired++;
      this.#giveBack(lease, aborted(lease, `it was not played within ${this.#options.leaseMs} ms`));
    }
  }
}

function aborted({ entry, sampler }: Lease, why: string): Outcome {
  const { episode, attempt } = entry.ticket;
  return { status: "aborted", detail: `episode ${episode}, attempt ${attempt + 1}, by ${sampler}: ${why}` };
}
