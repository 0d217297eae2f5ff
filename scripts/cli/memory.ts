/** Resident memory of a run's processes over its life: the peak, and the slope that tells a leak. Knows no processes. */

export interface MemoryOf {
  readonly actor: string;
  readonly peakBytes: number;
  /** How often it was looked at. */
  readonly samples: number;
  /** Bytes a minute by least squares over the second half of the samples, when start-up is over; null if they are too few. */
  readonly slopeBytesPerMinute: number | null;
}

interface Sample {
  readonly atMs: number;
  readonly bytes: number;
}

/** Fewer samples than this say nothing about a slope. */
const SLOPE_SAMPLES_MIN = 10;

export class Memory {
  readonly #samples = new Map<string, Sample[]>();

  sample(actor: string, atMs: number, bytes: number): void {
    if (bytes === 0) return;
    const known = this.#samples.get(actor) ?? [];
    known.push({ atMs, bytes });
    this.#samples.set(actor, known);
  }

  report(): MemoryOf[] {
    return [...this.#samples].map(([actor, samples]) => ({
      actor,
      peakBytes: Math.max(...samples.map(({ bytes }) => bytes)),
      samples: samples.length,
      slopeBytesPerMinute: slope(samples.slice(Math.floor(samples.length / 2))),
    }));
  }
}

function slope(samples: readonly Sample[]): number | null {
  if (samples.length < SLOPE_SAMPLES_MIN) return null;
  const mean = (of: (sample: Sample) => number) =>
    samples.reduce((sum, sample) => sum + of(sample), 0) / samples.length;
  const [at, bytes] = [mean(({ atMs }) => atMs), mean((sample) => sample.bytes)];
  const spread = samples.reduce((sum, { atMs }) => sum + (atMs - at) ** 2, 0);
  const joint = samples.reduce((sum, sample) => sum + (sample.atMs - at) * (sample.bytes - bytes), 0);
  return (joint / spread) * 60_000;
}
