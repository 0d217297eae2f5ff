/**
 * A run in the few lines that stay at the foot of a terminal: how far it is, how well it does, how fast, what is wrong, where its
 * page is. Knows no terminal and no run beyond what the learner's log tells.
 */
import type { MetricName } from "../../actors/metrics/metrics.ts";

/** What is told of a run, by the names of metrics; `step` is the update it belongs to. */
export type Told = { readonly step: number } & Partial<Readonly<Record<MetricName, number>>>;

export interface RunLength {
  readonly updates: number;
  /** null if the run does not end by time. */
  readonly minutes: number | null;
}

const BAR_WIDTH = 24;

export class RunStatus {
  readonly #length: RunLength;
  readonly #latest: { -readonly [K in MetricName]?: number } = {};
  #update = 0;
  /** What is done before the first update. */
  #phase = "";
  #alarm: string | null = null;
  #page: string | null = null;

  constructor(length: RunLength) {
    this.#length = length;
  }

  take({ step, ...values }: Told): void {
    Object.assign(this.#latest, values);
    if (values["total/updates"] !== undefined) this.#update = step;
  }

  /** A sentence on what happens before the first update. */
  phase(text: string): void {
    this.#phase = text;
  }

  /** The detector's verdict; null while there is nothing to worry about. */
  alarm(text: string | null): void {
    this.#alarm = text;
  }

  page(url: string): void {
    this.#page = url;
  }

  /** At most `columns` wide each; none before there is anything to say. */
  lines(columns: number): string[] {
    const lines = [this.#progress(), this.#success(), this.#learning(), this.#foot()];
    return lines.filter((line) => line !== "").map((line) => line.slice(0, columns));
  }

  #progress(): string {
    if (this.#update === 0) return this.#phase;
    const { updates } = this.#length;
    const share = this.#share();
    const full = Math.round(share * BAR_WIDTH);
    const left = this.#minutesLeft();
    const eta = left === null ? "" : ` · ${left < 1 ? "less than a minute" : `about ${Math.round(left)} min`} left`;
    const bar = "█".repeat(full) + "░".repeat(BAR_WIDTH - full);
    return `${bar} ${Math.floor(share * 100)} % · update ${this.#update}/${updates}${eta}`;
  }

  /** Of the run: of its updates, or of its minutes if those end sooner. */
  #share(): number {
    const byUpdates = this.#update / this.#length.updates;
    const minutes = this.#minutes();
    const byTime = this.#length.minutes === null || minutes === null ? 0 : minutes / this.#length.minutes;
    return Math.min(1, Math.max(byUpdates, byTime));
  }

  /** Of reinforcement so far. */
  #minutes(): number | null {
    const pace = this.#latest["speed/updates_per_minute"];
    return pace === undefined || pace === 0 ? null : this.#update / pace;
  }

  #minutesLeft(): number | null {
    const minutes = this.#minutes();
    const share = this.#share();
    return minutes === null || share === 0 ? null : (minutes / share) * (1 - share);
  }

  #success(): string {
    const percent = (name: MetricName) => {
      const value = this.#latest[name];
      return value === undefined ? null : `${(100 * value).toFixed(1)} %`;
    };
    const [trained, validated] = [percent("train/success"), percent("validate/success")];
    const bounds = [
      ["random", percent("baseline/random")],
      ["best", percent("baseline/best")],
    ].flatMap(([name, value]) => (value === null ? [] : [`${name} ${value}`]));
    if (trained === null && validated === null) return "";
    const now = [
      ...(validated === null ? [] : [`${validated} validated`]),
      ...(trained === null ? [] : [`${trained} trained`]),
    ];
    return `success ${now.join(", ")}${bounds.length === 0 ? "" : ` (${bounds.join(", ")})`}`;
  }

  #learning(): string {
    const number = (name: MetricName, digits: number) =>
      this.#latest[name]?.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    const known = [
      ["reward", number("train/reward_mean", 2)],
      ["in-group std", number("train/in_group_std", 2)],
      ["entropy", number("train/entropy", 3)],
      ["tokens/s", number("speed/tokens_per_second", 0)],
    ].filter(([, value]) => value !== undefined);
    return known.map(([name, value]) => (name === "tokens/s" ? `${value} ${name}` : `${name} ${value}`)).join(" · ");
  }

  #foot(): string {
    const alarm = this.#alarm === null ? null : `ALARM ${this.#alarm}`;
    return [alarm, this.#page].filter((part) => part !== null).join(" · ");
  }
}
