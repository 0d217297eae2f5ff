/** Slots for replies, and a queue in front of them, oldest first. A caller that checks `room` before `take` bounds the queue. */

export class Slots {
  readonly slots: number;
  readonly queueMax: number;
  #taken = 0;
  /** Resolve functions of the replies that wait. */
  #waiting: ((free: () => void) => void)[] = [];

  constructor(slots: number, queueMax: number) {
    this.slots = slots;
    this.queueMax = queueMax;
  }

  get taken(): number {
    return this.#taken;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Replies that may be begun now: those with a slot, and those that may wait. */
  get room(): number {
    return this.slots - this.#taken + this.queueMax - this.#waiting.length;
  }

  /** Rejects if the client disconnects while it waits. @param gone  aborted then @returns a function that frees the slot */
  async take(gone: AbortSignal): Promise<() => void> {
    if (gone.aborted) throw disconnected();
    if (this.#taken < this.slots) return this.#given();
    const { promise, resolve, reject } = Promise.withResolvers<() => void>();
    this.#waiting.push(resolve);
    const leave = () => {
      this.#waiting = this.#waiting.filter((other) => other !== resolve);
      reject(disconnected());
    };
    gone.addEventListener("abort", leave, { once: true });
    return promise.finally(() => gone.removeEventListener("abort", leave));
  }

  #given(): () => void {
    this.#taken++;
    return () => {
      this.#taken--;
      this.#waiting.shift()?.(this.#given());
    };
  }
}

const disconnected = () => new Error("the client disconnected before its reply was begun");
