/**
 * `Meter` measures one actor: rates, shares of the actor's time, and depths of the actor's queues. Every heartbeat has these values.
 * `energyReader` counts the joules of the machine. This file sends no message.
 *
 * - Rates and shares cover at least the last `WINDOW_MS`, or the time since the actor's start if that time is shorter.
 * - When several activities overlap, the time counts only for the first of them in `precedence`. So the shares of one actor never add up to
 *   more than 1.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../clock.ts";
import type { MetricName } from "./metrics.ts";

const WINDOW_MS = 5000;

/** Totals at one moment. */
interface Snapshot {
  readonly atMs: number;
  readonly totals: ReadonlyMap<MetricName, number>;
}

/** Processor time of this process and its threads. */
export function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

export class Meter {
  readonly #clock: Clock;
  readonly #totals = new Map<MetricName, number>();
  readonly #depths = new Map<MetricName, () => number | null>();
  /** Number of running pieces of work, by activity. */
  readonly #active = new Map<MetricName, number>();
  #precedence: readonly MetricName[] = [];
  /** While no work runs, the time counts for this activity. */
  #idle: MetricName | null = null;
  #sinceMs: number;
  #snapshots: Snapshot[];

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#sinceMs = clock.now();
    this.#snapshots = [{ atMs: this.#sinceMs, totals: new Map() }];
  }

  /**
   * Declares the activities that `during` and `duringCall` take.
   *
   * @param precedence  when several activities run, the time counts for the first of them in this list
   * @param idle  while no other activity runs, the time counts for this activity; null: no metric counts that time
   */
  declareActivities(precedence: readonly MetricName[], idle: MetricName | null): void {
    this.#settle();
    this.#precedence = precedence;
    this.#idle = idle;
    for (const name of [...precedence, ...(idle === null ? [] : [idle])]) this.count(name, 0);
  }

  /** Adds to a total. `read` gives the total's growth per second. */
  count(name: MetricName, amount: number): void {
    this.#totals.set(name, (this.#totals.get(name) ?? 0) + amount);
  }

  /** Declares a number that each heartbeat reports. If `read` returns null, the heartbeat leaves the number out. */
  depth(name: MetricName, read: () => number | null): void {
    this.#depths.set(name, read);
  }

  /** Counts the time for `name` until `work` settles. @returns `work` */
  during<T>(name: MetricName, work: Promise<T>): Promise<T> {
    this.#addActive(name, 1);
    const end = () => this.#addActive(name, -1);
    work.then(end, end);
    return work;
  }

  /** Counts the time of synchronous work for `name`. */
  duringCall<T>(name: MetricName, work: () => T): T {
    this.#addActive(name, 1);
    try {
      return work();
    } finally {
      this.#addActive(name, -1);
    }
  }

  /** All rates, shares and depths, by metric. */
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

  #addActive(name: MetricName, by: 1 | -1): void {
    this.#settle();
    this.#active.set(name, (this.#active.get(name) ?? 0) + by);
  }

  /** Adds the time since the last `#settle` to the activity that ran in that time. */
  #settle(): void {
    const now = this.#clock.now();
    const activity = this.#precedence.find((name) => (this.#active.get(name) ?? 0) > 0) ?? this.#idle;
    if (activity !== null) this.count(activity, (now - this.#sinceMs) / 1000);
    this.#sinceMs = now;
  }
}

/** The result of `read`; null if a file or folder cannot be read, for example because only root may read it. */
function nullOnError<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    return null;
  }
}

/**
 * Energy of the machine's processor packages, from Linux's power capping interface (RAPL). The value includes every program on the machine.
 *
 * Source: https://docs.kernel.org/power/powercap/powercap.html: energy_uj counts microjoules and begins again at 0 after
 * max_energy_range_uj.
 *
 * @returns a function that gives the joules since the call of `energyReader`, or null if that call could read no package's counter
 */
export function energyReader(root = "/sys/class/powercap"): () => number | null {
  const number = (path: string) => nullOnError(() => Number(readFileSync(path, "utf8")));
  // Reads whole packages only. "intel-rapl:0:1" is a part of the package "intel-rapl:0". The zone "psys" is the whole platform, with its packages.
  const isPackage = (zone: string) =>
    /^intel-rapl:\d+$/.test(zone) &&
    nullOnError(() => readFileSync(join(root, zone, "name"), "utf8"))?.startsWith("package") === true;
  const names = (nullOnError(() => readdirSync(root)) ?? []).filter(isPackage);
  const packages = names.flatMap((name) => {
    const path = join(root, name, "energy_uj");
    const last = number(path);
    const range = number(join(root, name, "max_energy_range_uj"));
    return last === null || range === null ? [] : [{ path, last, range }];
  });
  let microjoules = 0;
  return () => {
    if (packages.length === 0) return null;
    for (const one of packages) {
      const now = number(one.path) ?? one.last;
      microjoules += now >= one.last ? now - one.last : now + one.range - one.last;
      one.last = now;
    }
    return microjoules / 1e6;
  };
}
