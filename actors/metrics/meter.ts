/**
 * What an actor measures of itself while it works: rates, shares of its time, and depths of its queues. Told with every sign
 * of life. Knows no actor and no message.
 *
 * - Rates and shares are over the last `WINDOW_MS`, or since the start.
 * - Several things may go on at once; time belongs to the one that was named first in `precedence`. So the shares of one
 *   actor never add up to more than 1.
 */
import type { Clock } from "../clock.ts";
import type { MetricName } from "./metrics.ts";

const WINDOW_MS = 5000;

/** Totals at one moment. */
interface Snapshot {
  readonly atMs: number;
  readonly totals: ReadonlyMap<MetricName, number>;
}

export class Meter {
  readonly #clock: Clock;
  readonly #totals = new Map<MetricName, number>();
  readonly #depths = new Map<MetricName, () => number | null>();
  /** How many of each go on now. */
  readonly #active = new Map<MetricName, number>();
  #precedence: readonly MetricName[] = [];
  /** What time belongs to while nothing goes on. */
  #idle: MetricName | null = null;
  #sinceMs: number;
  #snapshots: Snapshot[];

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sinceMs = clock.now();
    this.#snapshots = [{ atMs: this.#sinceMs, totals: new Map() }];
  }

  /** Name what `during` may be given, most telling first, and what it is when nothing goes on (null: not told). */
  divide(precedence: readonly MetricName[], idle: MetricName | null): void {
    this.#settle();
    this.#precedence = precedence;
    this.#idle = idle;
    for (const name of [...precedence, ...(idle === null ? [] : [idle])]) this.#add(name, 0);
  }

  /** Add to a total that is told as a rate per second. */
  count(name: MetricName, amount: number): void {
    this.#add(name, amount);
  }

  /** A number that is read when it is told; left out while it is null. */
  depth(name: MetricName, read: () => number | null): void {
    this.#depths.set(name, read);
  }

  /** Time until `work` settles belongs to `name`. @returns the same promise */
  during<T>(name: MetricName, work: Promise<T>): Promise<T> {
    this.#begin(name, 1);
    const end = () => this.#begin(name, -1);
    work.then(end, end);
    return work;
  }

  /** The same for work that is done when it returns. */
  within<T>(name: MetricName, work: () => T): T {
    this.#begin(name, 1);
    try {
      return work();
    } finally {
      this.#begin(name, -1);
    }
  }

  /** Everything, by name. */
  read(): Partial<Record<MetricName, number>> {
    this.#settle();
    const now = this.#clock.now();
    while (this.#snapshots.length > 1 && this.#snapshots[1]!.atMs <= now - WINDOW_MS) this.#snapshots.shift();
    const [oldest] = this.#snapshots;
    const seconds = (now - oldest!.atMs) / 1000;
    const values: Partial<Record<MetricName, number>> = {};
    for (const [name, total] of this.#totals) {
      if (seconds > 0) values[name] = (total - (oldest!.totals.get(name) ?? 0)) / seconds;
    }
    for (const [name, depth] of this.#depths) {
      const value = depth();
      if (value !== null) values[name] = value;
    }
    this.#snapshots.push({ atMs: now, totals: new Map(this.#totals) });
    return values;
  }

  #begin(name: MetricName, by: 1 | -1): void {
    this.#settle();
    this.#active.set(name, (this.#active.get(name) ?? 0) + by);
  }

  /** Give the time since last time to whom it belongs. */
  #settle(): void {
    const now = this.#clock.now();
    const doing = this.#precedence.find((name) => (this.#active.get(name) ?? 0) > 0) ?? this.#idle;
    if (doing !== null) this.#add(doing, (now - this.#sinceMs) / 1000);
    this.#sinceMs = now;
  }

  #add(name: MetricName, amount: number): void {
    this.#totals.set(name, (this.#totals.get(name) ?? 0) + amount);
  }
}
