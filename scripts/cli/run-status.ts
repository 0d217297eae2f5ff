/** The status lines of a run at the foot of a terminal: progress, success, learning, page and alarm. Other files write to the terminal. */
import type { RunConfig } from "../../actors/config/config.ts";
import type { MetricName } from "../../actors/metrics/metrics.ts";
import { percent, timeLeft, whole } from "../../actors/number-text.ts";

/** Metrics of one update, as the learner logs them. */
export type UpdateMetrics = { readonly step: number } & Partial<Readonly<Record<MetricName, number>>>;

type RunLength = Pick<RunConfig["learner"], "updates" | "minutes">;

const BAR_WIDTH = 24;

/** A bar, the percentage, a text and the time left. @param text  what is done @param left  minutes; null if unknown */
export function progressBar(share: number, text: string, left: number | null): string {
  const full = Math.round(share * BAR_WIDTH);
  const bar = "█".repeat(full) + "░".repeat(BAR_WIDTH - full);
  const eta = left === null ? "" : ` · ${timeLeft(left)}`;
  return `${bar} ${Math.floor(share * 100)} % · ${text}${eta}`;
}

export class RunStatus {
  readonly #length: RunLength;
  readonly #latest: { -readonly [K in MetricName]?: number } = {};
  #update = 0;
  /** Text in place of the progress bar before the first update. */
  phase = "";
  /** The verdict of the health checks; null while the run is healthy. */
  alarm: string | null = null;
  /** Address of the run's page; null before it is served. */
  page: string | null = null;

  constructor(length: RunLength) {
    this.#length = length;
  }

  add({ step, ...values }: UpdateMetrics): void {
    Object.assign(this.#latest, values);
    if (values["total/updates"] !== undefined) this.#update = step;
  }

  /** The lines that have content, each cut to `columns`. */
  lines(columns: number): string[] {
    const lines = [this.#progress(), this.#success(), this.#learning(), this.#foot()];
    return lines.filter((line) => line !== "").map((line) => line.slice(0, columns));
  }

  #progress(): string {
    if (this.#update === 0) return this.phase;
    const { share } = this;
    const minutesPlayed = this.#minutesPlayed();
    const left = minutesPlayed === null || share === 0 ? null : (minutesPlayed / share) * (1 - share);
    return progressBar(share, `update ${this.#update}/${this.#length.updates}`, left);
  }

  /** The finished share of the run: the larger of its share of updates and its share of minutes. */
  get share(): number {
    const { updates, minutes } = this.#length;
    const minutesPlayed = this.#minutesPlayed();
    const byTime = minutes === null || minutesPlayed === null ? 0 : minutesPlayed / minutes;
    return Math.min(1, Math.max(this.#update / updates, byTime));
  }

  /** Minutes of reinforcement so far; null while the time for one update is unknown. */
  #minutesPlayed(): number | null {
    const pace = this.#latest["speed/updates_per_minute"];
    return pace === undefined || pace === 0 ? null : this.#update / pace;
  }

  #success(): string {
    const now = [
      ...this.#words("validate/success", (share) => `${percent(share)} validated`),
      ...this.#words("train/success", (share) => `${percent(share)} trained`),
    ];
    const bounds = [
      ...this.#words("baseline/random", (share) => `random ${percent(share)}`),
      ...this.#words("baseline/best", (share) => `best ${percent(share)}`),
    ];
    if (now.length === 0) return "";
    return `success ${now.join(", ")}${bounds.length === 0 ? "" : ` (${bounds.join(", ")})`}`;
  }

  #learning(): string {
    return [
      ...this.#words("train/reward_mean", (mean) => `reward ${mean.toFixed(2)}`),
      ...this.#words("train/in_group_std", (std) => `in-group std ${std.toFixed(2)}`),
      ...this.#words("train/entropy", (entropy) => `entropy ${entropy.toFixed(3)}`),
      ...this.#words("speed/tokens_per_second", (rate) => `${whole(rate)} tokens/s`),
    ].join(" · ");
  }

  /** The words for a metric; empty while the run has not measured the metric. */
  #words(name: MetricName, words: (value: number) => string): string[] {
    const value = this.#latest[name];
    return value === undefined ? [] : [words(value)];
  }

  #foot(): string {
    const alarm = this.alarm === null ? null : `ALARM ${this.alarm}`;
    return [alarm, this.page].filter((part) => part !== null).join(" · ");
  }
}
