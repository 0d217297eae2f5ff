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
import type { Clock } from "./clock.ts";
import type { Outcome, Ticket } from "./protocol.ts";

export interface TicketBookOptions {
  readonly clock: Clock;
  /** Time to play a ticket. */
  readonly leaseMs: number;
  /** Times a ticket is issued at most; at least 1. */
  readonly attemptsMax: number;
  /** Leases ran out, so there may be tickets to grant that nobody asks for. */
  readonly expired?: () => void;
}

/** How a ticket ended, and who held it last. */
export interface Finished {
  /** As it was played: `attempt` is the last one. */
  readonly ticket: Ticket;
  readonly sampler: string;
  readonly outcome: Outcome;
}

interface Batch {
  /** By index in the batch. */
  readonly finished: Finished[];
  /** Tickets that have not ended. */
  open: number;
  readonly resolve: (finished: Finished[]) => void;
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
  /** By serial. */
  readonly #waiting: Entry[] = [];
  /** By episode; in the order of their ends, as all leases are equally long. */
  readonly #leases = new Map<string, Lease>();
  #nextSerial = 0;
  #cancelTimer: (() => void) | null = null;
  #expired = 0;
  #late = 0;
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
    return this.#waiting.length;
  }

  /** Leases that ended before an outcome came. */
  get expired(): number {
    return this.#expired;
  }

  /** Outcomes that were ignored. */
  get late(): number {
    return this.#late;
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
    return this.#leases.values().reduce((count, lease) => count + Number(lease.sampler === sampler), 0);
  }

  /**
   * Have tickets played. Several batches may be open at once.
   *
   * @returns one entry per ticket, in their order, when each has ended.
   * @throws {RangeError} if the episode of one is in the book already; then none was issued.
   */
  issue(tickets: readonly Ticket[]): Promise<Finished[]> {
    const names = new Set(this.#open);
    for (const { episode } of tickets) {
      if (names.has(episode)) throw new RangeError(`cannot issue episode ${episode}: it is in the book already`);
      names.add(episode);
    }
    const { promise, resolve } = Promise.withResolvers<Finished[]>();
    if (tickets.length === 0) resolve([]);
    const batch: Batch = { finished: new Array(tickets.length), open: tickets.length, resolve };
    tickets.forEach((ticket, index) => {
      this.#open.add(ticket.episode);
      this.#waiting.push({ serial: this.#nextSerial++, batch, index, ticket });
    });
    return promise;
  }

  /**
   * Lease tickets to a sampler: as many as it has room for, but no more than its share of those it may play, so that a first
   * sampler to ask leaves work for the others.
   *
   * @param samplers  how many share the work, this one included
   * @param version   policy version that the sampler has loaded; null: none yet, so it gets nothing
   */
  grant(sampler: string, slotsFree: number, samplers: number, version: number | null): Ticket[] {
    if (version === null) return [];
    const playable = this.#waiting.filter(({ ticket }) =>
      ticket.exact ? ticket.version === version : ticket.version <= version,
    );
    const share = Math.ceil(playable.length / Math.max(1, samplers));
    const granted = new Set(playable.slice(0, Math.min(slotsFree, share)));
    if (granted.size === 0) return [];
    this.#waiting.splice(0, this.#waiting.length, ...this.#waiting.filter((entry) => !granted.has(entry)));
    const endsAt = this.#options.clock.now() + this.#options.leaseMs;
    for (const entry of granted) this.#leases.set(entry.ticket.episode, { entry, sampler, endsAt });
    this.#arm();
    return [...granted].map(({ ticket }) => ticket);
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
      this.#late++;
      return false;
    }
    if ("trajectory" in outcome) this.#end(lease, outcome);
    else this.#giveBack(lease, outcome);
    return true;
  }

  /** A sampler is gone: its tickets are for others now. */
  lost(sampler: string): void {
    for (const lease of [...this.#leases.values()]) {
      if (lease.sampler === sampler) this.#giveBack(lease, aborted(lease, "its sampler was lost"));
    }
  }

  /** End every open ticket as aborted, because the run ends. Outcomes that still come are ignored. */
  close(why: string): void {
    const outcome: Outcome = { status: "aborted", detail: why };
    for (const lease of [...this.#leases.values()]) this.#end(lease, outcome);
    for (const entry of this.#waiting.splice(0)) this.#settle(entry, "none", outcome);
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
    this.#leases.delete(entry.ticket.episode);
    this.#retried++;
    entry.ticket = { ...entry.ticket, attempt: entry.ticket.attempt + 1 };
    const younger = this.#waiting.findIndex(({ serial }) => serial > entry.serial);
    this.#waiting.splice(younger === -1 ? this.#waiting.length : younger, 0, entry);
  }

  #end({ entry, sampler }: Lease, outcome: Outcome): void {
    this.#leases.delete(entry.ticket.episode);
    this.#settle(entry, sampler, outcome);
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
    const over = this.#leases
      .values()
      .filter(({ endsAt }) => endsAt <= now)
      .toArray();
    for (const lease of over) {
      this.#expired++;
      this.#giveBack(lease, aborted(lease, `it was not played within ${this.#options.leaseMs} ms`));
    }
  }
}

function aborted({ entry, sampler }: Lease, why: string): Outcome {
  const { episode, attempt } = entry.ticket;
  return { status: "aborted", detail: `episode ${episode}, attempt ${attempt + 1}, by ${sampler}: ${why}` };
}
