/**
 * The ticket book holds the open tickets: which tickets wait, which sampler plays which ticket, and until when. This file knows no connections
 * and no weights.
 *
 * 1. Every issued ticket ends exactly once. `issue` resolves when all tickets of the call have ended.
 * 2. At most one sampler holds the lease of a ticket. The ticket book takes an outcome only from this sampler, and only with the
 *    right attempt number. It ignores and counts every other outcome (late, duplicate, unknown).
 * 3. A new attempt changes only the ticket's field `attempt`, and no seed, setting or name. So an episode does not depend on the sampler that
 *    plays it, nor on the number of attempts.
 * 4. The ticket book grants the oldest tickets first. A ticket that comes back (sampler lost, lease expired, episode failed) keeps its age.
 * 5. The ticket book grants a ticket at most `attemptsMax` times. Training limits how many tickets are open, because it waits for the tickets
 *    of earlier calls.
 */
import type { Clock } from "../clock.ts";
import type { FinishedTicket } from "../play/finished-ticket.ts";
import type { Outcome, Ticket } from "../protocol.ts";

export interface TicketBookOptions {
  readonly clock: Clock;
  readonly leaseMs: number;
  /** Maximum number of times that the ticket book grants a ticket; at least 1. */
  readonly attemptsMax: number;
  /** The ticket book calls this after leases have expired. The tickets of these leases now wait again if attempts are left. */
  readonly expired?: () => void;
}

/** The tickets of one call of `issue`. */
interface Batch {
  /** Ended tickets, in the order of issue. */
  readonly finished: FinishedTicket[];
  /** Number of tickets that have not ended. */
  open: number;
  readonly resolve: (finished: FinishedTicket[]) => void;
}

interface Entry {
  /** Position in the order of issue, over all batches. */
  readonly serial: number;
  readonly batch: Batch;
  /** Position in the batch. */
  readonly index: number;
  ticket: Ticket;
}

interface Lease {
  readonly entry: Entry;
  readonly sampler: string;
  readonly endsAtMs: number;
}

export class TicketBook {
  readonly #options: TicketBookOptions;
  /** Names of the episodes whose tickets have not ended. */
  readonly #open = new Set<string>();
  /** Tickets without a lease, youngest first, because removal from the end of an array is fast. */
  #waiting: Entry[] = [];
  /** Leases by episode, in the order in which they end, because all leases are equally long. */
  readonly #leases = new Map<string, Lease>();
  readonly #leasesOf = new Map<string, Set<Lease>>();
  #nextSerial = 0;
  #cancelTimer: (() => void) | null = null;
  /** Totals. expired: leases that expired; ignored: outcomes that were late, duplicate or unknown; retried: tickets put back for another attempt. */
  readonly counts = { expired: 0, ignored: 0, retried: 0 };

  constructor(options: TicketBookOptions) {
    this.#options = options;
  }

  /** Number of tickets without a lease. */
  get waiting(): number {
    return this.#waiting.length;
  }

  get leasedInAll(): number {
    return this.#leases.size;
  }

  leased(sampler: string): number {
    return this.#leasesOf.get(sampler)?.size ?? 0;
  }

  /**
   * Tickets of several calls may be open at once.
   *
   * @returns one entry per ticket, in the order of `tickets`, when all have ended.
   * @throws {RangeError} if an episode is open already or occurs twice in `tickets`. Then this call issues no ticket.
   */
  issue(tickets: readonly Ticket[]): Promise<FinishedTicket[]> {
    const names = new Set<string>();
    for (const { episode } of tickets) {
      if (names.has(episode) || this.#open.has(episode))
        throw new RangeError(`cannot issue episode ${episode}: it is open already`);
      names.add(episode);
    }
    const { promise, resolve } = Promise.withResolvers<FinishedTicket[]>();
    if (tickets.length === 0) resolve([]);
    const batch: Batch = { finished: new Array(tickets.length), open: tickets.length, resolve };
    for (const name of names) this.#open.add(name);
    const young = tickets.map((ticket, index) => ({ serial: this.#nextSerial++, batch, index, ticket }));
    this.#waiting = young.reverse().concat(this.#waiting);
    return promise;
  }

  /**
   * Leases the oldest tickets that the sampler may play, at most `slotsFree`.
   *
   * @param version  policy version that the sampler has loaded; null if the sampler has loaded none and so gets no tickets
   */
  grant(sampler: string, slotsFree: number, version: number | null): Ticket[] {
    if (version === null) return [];
    const granted: Entry[] = [];
    for (let at = this.#waiting.length - 1; at >= 0 && granted.length < slotsFree; at--) {
      const { version: wanted, exact } = this.#waiting[at]!.ticket;
      if (exact ? wanted === version : wanted <= version) granted.push(...this.#waiting.splice(at, 1));
    }
    if (granted.length === 0) return [];
    const endsAtMs = this.#options.clock.now() + this.#options.leaseMs;
    const own = this.#leasesOf.getOrInsertComputed(sampler, () => new Set());
    for (const entry of granted) {
      const lease = { entry, sampler, endsAtMs };
      this.#leases.set(entry.ticket.episode, lease);
      own.add(lease);
    }
    this.#setTimer();
    return granted.map(({ ticket }) => ticket);
  }

  /**
   * Takes the outcome of an attempt. If the outcome has no trajectory and attempts are left, the ticket waits again.
   *
   * @returns false if the ticket book ignores the outcome, because this sampler does not hold the lease of this attempt.
   */
  finish(sampler: string, episode: string, attempt: number, outcome: Outcome): boolean {
    const lease = this.#leases.get(episode);
    if (lease === undefined || lease.sampler !== sampler || lease.entry.ticket.attempt !== attempt) {
      this.counts.ignored++;
      return false;
    }
    if ("trajectory" in outcome) this.#end(lease, outcome);
    else this.#putBack(lease, outcome);
    return true;
  }

  /** Puts back the tickets of a sampler that is gone. */
  lost(sampler: string): void {
    for (const lease of [...(this.#leasesOf.get(sampler) ?? [])])
      this.#putBack(lease, aborted(lease, "the sampler is gone"));
  }

  /** @param last  the ticket's outcome if no attempts are left */
  #putBack(lease: Lease, last: Outcome): void {
    const { entry } = lease;
    if (entry.ticket.attempt + 1 >= this.#options.attemptsMax) {
      this.#end(lease, last);
      return;
    }
    this.#free(lease);
    this.counts.retried++;
    entry.ticket = { ...entry.ticket, attempt: entry.ticket.attempt + 1 };
    this.#waiting.splice(this.#waiting.findLastIndex(({ serial }) => serial > entry.serial) + 1, 0, entry);
  }

  #end(lease: Lease, outcome: Outcome): void {
    this.#free(lease);
    const { batch, index, ticket } = lease.entry;
    this.#open.delete(ticket.episode);
    batch.finished[index] = { ticket, sampler: lease.sampler, outcome };
    batch.open--;
    if (batch.open === 0) batch.resolve(batch.finished);
  }

  #free(lease: Lease): void {
    this.#leases.delete(lease.entry.ticket.episode);
    const own = this.#leasesOf.get(lease.sampler)!;
    own.delete(lease);
    if (own.size === 0) this.#leasesOf.delete(lease.sampler);
  }

  /** Sets a timer for the lease that ends first, unless a timer is set already. */
  #setTimer(): void {
    const [first] = this.#leases.values();
    if (this.#cancelTimer !== null || first === undefined) return;
    const { clock } = this.#options;
    this.#cancelTimer = clock.after(Math.max(0, first.endsAtMs - clock.now()), () => {
      this.#cancelTimer = null;
      this.#expire();
      this.#setTimer();
      this.#options.expired?.();
    });
  }

  #expire(): void {
    const now = this.#options.clock.now();
    for (const lease of this.#leases.values()) {
      if (lease.endsAtMs > now) break;
      this.counts.expired++;
      this.#putBack(lease, aborted(lease, `it took more than ${this.#options.leaseMs} ms`));
    }
  }
}

function aborted({ entry, sampler }: Lease, why: string): Outcome {
  const { episode, attempt } = entry.ticket;
  return { status: "aborted", detail: `episode ${episode}, attempt ${attempt + 1}, by ${sampler}: ${why}` };
}
