/** What a served policy has done, in Prometheus' text format. */
import type { Slots } from "./slots.ts";

export class ServeCounts {
  readonly #slots: Pick<Slots, "taken" | "waiting" | "slots">;
  /** By HTTP status. */
  readonly #requests = new Map<number, number>();
  #replies = 0;
  #promptTokens = 0;
  #replyTokens = 0;

  constructor(slots: Pick<Slots, "taken" | "waiting" | "slots">) {
    this.#slots = slots;
  }

  answered(status: number): void {
    this.#requests.set(status, (this.#requests.get(status) ?? 0) + 1);
  }

  wrote(promptTokens: number, replyTokens: number): void {
    this.#replies++;
    this.#promptTokens += promptTokens;
    this.#replyTokens += replyTokens;
  }

  text(): string {
    const requests = [...this.#requests].map(([status, count]) => [`{status="${status}"}`, count] as const);
    const metrics = [
      ["requests_total", "counter", "Completion requests by status.", requests],
      ["replies_total", "counter", "Replies written.", [["", this.#replies]]],
      ["prompt_tokens_total", "counter", "Tokens of prompts.", [["", this.#promptTokens]]],
      ["reply_tokens_total", "counter", "Tokens of replies.", [["", this.#replyTokens]]],
      ["replies_running", "gauge", "Replies being written.", [["", this.#slots.taken]]],
      ["replies_waiting", "gauge", "Replies that wait for a slot.", [["", this.#slots.waiting]]],
      ["slots", "gauge", "Replies that can be written at once.", [["", this.#slots.slots]]],
    ] as const;
    const lines = metrics.flatMap(([name, kind, help, samples]) => [
      `# HELP bunraku_serve_${name} ${help}`,
      `# TYPE bunraku_serve_${name} ${kind}`,
      ...samples.map(([labels, value]) => `bunraku_serve_${name}${labels} ${value}`),
    ]);
    return `${lines.join("\n")}\n`;
  }
}
