/** Resident memory of a run's processes: the peak, and the slope, which shows a leak. Other files measure the processes. */
import { mean } from "../../model/statistics.ts";

export interface MemoryUse {
  readonly actor: string;
  readonly peakBytes: number;
  /** Least-squares slope over the second half of the run's samples; null if this half has fewer than `SLOPE_SAMPLES_MIN`. */
  readonly slopeBytesPerMinute: number | null;
}

type Sample = Readonly<Record<"atMs" | "bytes", number>>;

const SLOPE_SAMPLES_MIN = 10;

export class Memory {
  readonly #samples = new Map<string, Sample[]>();

  sample(actor: string, atMs: number, bytes: number): void {
    if (bytes === 0) return;
    this.#samples.getOrInsert(actor, []).push({ atMs, bytes });
  }

  report(): MemoryUse[] {
    return [...this.#samples].map(([actor, samples]) => ({
      actor,
      // `Math.max(...)` would fail: a run of a day has more samples than a call may have arguments.
      peakBytes: samples.reduce((peak, { bytes }) => Math.max(peak, bytes), 0),
      slopeBytesPerMinute: slope(samples.slice(Math.floor(samples.length / 2))),
    }));
  }
}

function slope(samples: readonly Sample[]): number | null {
  if (samples.length < SLOPE_SAMPLES_MIN) return null;
  const meanAtMs = mean(samples.map(({ atMs }) => atMs));
  const meanBytes = mean(samples.map(({ bytes }) => bytes));
  const variance = mean(samples.map(({ atMs }) => (atMs - meanAtMs) ** 2));
  const covariance = mean(samples.map(({ atMs, bytes }) => (atMs - meanAtMs) * (bytes - meanBytes)));
  return (covariance / variance) * 60_000;
}
