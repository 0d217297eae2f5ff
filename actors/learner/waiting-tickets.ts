/**
 * Tickets without a lease; the oldest is taken first. They are grouped by the policy versions that may play them. There are few such groups
 * at a time, so the search for the oldest ticket does not slow down with the number of tickets.
 */
import type { Ticket } from "../protocol.ts";

export interface Waiting {
  /** Order of issue. */
  readonly serial: number;
  readonly ticket: Ticket;
}

interface Kind<T> {
  readonly version: number;
  readonly exact: boolean;
  /** Youngest first: an array is fast at its end. */
  readonly entries: T[];
}

export class WaitingTickets<T extends Waiting> {
  readonly #kinds = new Map<string, Kind<T>>();

  get size(): number {
    return this.#kinds.values().reduce((sum, { entries }) => sum + entries.length, 0);
  }

  /** Adds tickets younger than all others. @param young  oldest first */
  append(young: readonly T[]): void {
    for (const [key, added] of Map.groupBy(young, kindOf)) {
      const { version, exact } = added[0]!.ticket;
      const older = this.#kinds.get(key)?.entries ?? [];
      this.#kinds.set(key, { version, exact, entries: added.reverse().concat(older) });
    }
  }

  /** Returns a ticket to its place by age. */
  putBack(entry: T): void {
    const { version, exact } = entry.ticket;
    const kind = this.#kinds.get(kindOf(entry)) ?? { version, exact, entries: [] };
    this.#kinds.set(kindOf(entry), kind);
    kind.entries.splice(kind.entries.findLastIndex(({ serial }) => serial > entry.serial) + 1, 0, entry);
  }

  /** Removes the oldest tickets that this version may play, at most `max`. */
  take(max: number, version: number): T[] {
    const kinds = this.#kinds
      .values()
      .filter((kind) => (kind.exact ? kind.version === version : kind.version <= version));
    const playable = [...kinds];
    const taken: T[] = [];
    while (taken.length < max) {
      let oldest: T[] = [];
      for (const { entries } of playable) if (serialOf(entries) < serialOf(oldest)) oldest = entries;
      const entry = oldest.pop();
      if (entry === undefined) break;
      taken.push(entry);
    }
    for (const [key, { entries }] of this.#kinds) if (entries.length === 0) this.#kinds.delete(key);
    return taken;
  }
}

const kindOf = ({ ticket }: Waiting): string => `${ticket.version} ${ticket.exact}`;

/** Serial of the oldest entry; infinite without entries. */
const serialOf = (entries: readonly Waiting[]): number => entries.at(-1)?.serial ?? Number.POSITIVE_INFINITY;
