/** A served policy's slots for replies, and its counts in Prometheus' text format. */

export class ServeCounts {
  /** Number of requests by HTTP status. */
  readonly #requests = new Map<number, number>();
  #replies = 0;
  #promptTokens = 0;
  #replyTokens = 0;

  answered(status: number): void {
    this.#requests.set(status, (this.#requests.get(status) ?? 0) + 1);
  }

  wrote(promptTokens: number, replyTokens: number): void {
    this.#replies++;
    this.#promptTokens += promptTokens;
    this.#replyTokens += replyTokens;
  }

  text(slots: Slots): string {
    const requests = [...this.#requests].map(([status, count]) => [`{status="${status}"}`, count] as const);
    const metrics = [
      ["requests_total", "counter", "Completion requests by status.", requests],
      ["replies_total", "counter", "Replies written.", [["", this.#replies]]],
      ["prompt_tokens_total", "counter", "Tokens of prompts.", [["", this.#promptTokens]]],
      ["reply_tokens_total", "counter", "Tokens of replies.", [["", this.#replyTokens]]],
      ["replies_running", "gauge", "Replies being written.", [["", slots.taken]]],
      ["replies_waiting", "gauge", "Replies that wait for a slot.", [["", slots.waiting]]],
      ["slots", "gauge", "Replies that can be written at once.", [["", slots.slots]]],
    ] as const;
    const lines = metrics.flatMap(([name, kind, help, samples]) => [
      `# HELP bunraku_serve_${name} ${help}`,
      `# TYPE bunraku_serve_${name} ${kind}`,
      ...samples.map(([labels, value]) => `bunraku_serve_${name}${labels} ${value}`),
    ]);
    return `${lines.join("\n")}\n`;
  }
}

/** Slots for replies, and a queue of replies that wait for a slot, oldest first. Check `room` before `take`: `take` does not bound the queue. */
export class Slots {
  readonly slots: number;
  readonly queueMax: number;
  #taken = 0;
  /** Resolves the promise of each reply that waits. */
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

  /** How many replies a caller may begin now: the free slots and the free places of the queue. */
  get room(): number {
    return this.slots - this.#taken + this.queueMax - this.#waiting.length;
  }

  /** Waits for a slot. Rejects if `gone` aborts first: the client has disconnected. @returns a function that frees the slot */
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
