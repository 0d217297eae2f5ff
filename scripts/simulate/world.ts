/**
 * Time, random numbers and processes of a simulated run. One seed decides everything. Events happen one at a time, in order of time.
 * If an event resolves promises, all their callbacks run before the next event.
 *
 * - A `Life` is one process. Its timers and messages are events. A killed process has no events; the events of a frozen process (SIGSTOP)
 *   wait.
 * - The trace lists every event: equal traces mean equal runs.
 */
import type { Clock } from "../../actors/clock.ts";
import { hash64, philox } from "../../model/rng.ts";

interface Event {
  readonly at: number;
  readonly life: Life;
  readonly what: string;
  readonly run: () => void;
  cancelled: boolean;
}

const TAIL_LINES = 40;

export class World {
  readonly #key: readonly [number, number];
  readonly #trace = new Bun.CryptoHasher("sha256");
  /** The last lines of the trace. */
  readonly tail: string[] = [];
  /** Ordered by time; events of equal time have the order in which the processes scheduled them. */
  readonly #events: Event[] = [];
  #draws = 0;
  now = 0;
  steps = 0;

  constructor(seed: number) {
    this.#key = hash64(`simulation ${seed}`);
  }

  /** Uniform in [0, 1). */
  uniform = (): number => philox([this.#draws++, 0, 0, 0], this.#key)[0] / 2 ** 32;

  between(low: number, high: number): number {
    return low + (high - low) * this.uniform();
  }

  pick<T>(from: readonly T[]): T | undefined {
    return from[Math.floor(this.uniform() * from.length)];
  }

  /** @returns a function that cancels the event */
  schedule(life: Life, delayMs: number, what: string, run: () => void): () => void {
    const event: Event = { at: this.now + delayMs, life, what, run, cancelled: false };
    this.#events.splice(this.#events.findLastIndex(({ at }) => at <= event.at) + 1, 0, event);
    return () => {
      event.cancelled = true;
    };
  }

  note(what: string): void {
    const line = `${this.now.toFixed(3)} ${what}`;
    this.#trace.update(`${line}\n`);
    this.tail.push(line);
    if (this.tail.length > TAIL_LINES) this.tail.shift();
  }

  /** Runs the next event and the callbacks of the promises that it resolves. @returns false if there is no event */
  async step(): Promise<boolean> {
    for (;;) {
      const event = this.#events.shift();
      if (event === undefined) return false;
      if (event.cancelled || !event.life.alive) continue;
      this.now = Math.max(this.now, event.at);
      if (event.life.frozen) {
        event.life.held.push(() => this.schedule(event.life, 0, event.what, () => event.cancelled || event.run()));
        continue;
      }
      this.steps++;
      this.note(`${event.life.name} ${event.what}`);
      event.run();
      // All callbacks of promises resolved so far have run when the next turn of the event loop begins.
      await new Promise((next) => setImmediate(next));
      return true;
    }
  }

  get digest(): string {
    return this.#trace.copy().digest("hex");
  }
}

/** One process, from start to exit. */
export class Life {
  readonly world: World;
  readonly name: string;
  /** Events that came while the process was frozen. */
  readonly held: (() => void)[] = [];
  readonly clock: Clock;
  /** Called once when the process dies. */
  readonly onDeath: (() => void)[] = [];
  alive = true;
  frozen = false;
  thawedAtMs = 0;

  constructor(world: World, name: string) {
    this.world = world;
    this.name = name;
    this.clock = {
      now: () => world.now,
      after: (delayMs, run) => world.schedule(this, delayMs, "timer", run),
    };
  }

  /** If the process dies before the time is over, the promise never resolves. */
  sleep(delayMs: number, what: string): Promise<void> {
    return new Promise((resolve) => void this.world.schedule(this, delayMs, what, resolve));
  }

  die(): void {
    if (!this.alive) return;
    this.alive = false;
    for (const tell of this.onDeath) tell();
  }

  thaw(): void {
    if (!this.alive || !this.frozen) return;
    this.frozen = false;
    this.thawedAtMs = this.world.now;
    for (const again of this.held.splice(0)) again();
  }
}
