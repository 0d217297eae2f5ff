/** Events as lines of a list. Warnings or errors whose texts are equal, except for numbers, share one line with a count. */
import type { StoredEvent } from "../answers.ts";

export interface EventLine {
  readonly event: StoredEvent;
  readonly count: number;
}

const keyOf = ({ id, actor, level, kind, text }: StoredEvent): string =>
  level === "info" ? String(id) : [actor, level, kind, text.replaceAll(/\d+(\.\d+)?/g, "#")].join(" ");

export class EventLines {
  readonly #linesMax: number;
  /** Oldest first. */
  readonly #lines = new Map<string, EventLine>();
  #newestId = 0;

  constructor(linesMax: number) {
    this.#linesMax = linesMax;
  }

  /** Adds events (newest first), except those that the list already has. @returns all lines, newest first */
  add(events: readonly StoredEvent[]): readonly EventLine[] {
    for (const event of events.toReversed()) {
      if (event.id <= this.#newestId) continue;
      this.#newestId = event.id;
      const key = keyOf(event);
      const count = (this.#lines.get(key)?.count ?? 0) + 1;
      this.#lines.delete(key);
      this.#lines.set(key, { event, count });
    }
    for (const key of [...this.#lines.keys()].slice(0, -this.#linesMax)) this.#lines.delete(key);
    return [...this.#lines.values()].reverse();
  }
}
