/** A meter whose queue depths the invariants compare with their bounds after every event. */
import type { RunConfig } from "../../actors/config/config.ts";
import { Meter } from "../../actors/metrics/meter.ts";
import type { MetricName } from "../../actors/metrics/metrics.ts";
import type { Role } from "../../actors/protocol.ts";
import type { Invariants } from "./invariants.ts";
import type { Life } from "./world.ts";

/** Limits of the reporter and the sink: small, so that a simulated run reaches them. */
export const REPORTER_LIMITS = { waitingMax: 500, rowsMax: 16 };
export const SINK_WAITING_MAX = 200;
/**
 * Maximum number of tickets that may wait at a sampler for a free slot or for weights. After a connection is lost, the sampler's episodes
 * keep their slots while the next connection already brings tickets.
 */
const WAITING_MAX = 64;

type Bounds = Partial<Record<MetricName, number>>;

function boundsOf(role: Role, { rollout, sampler, envServer }: RunConfig): Bounds {
  // The reporter takes the rows of a whole rollout before it makes the caller wait.
  const rolloutRows = rollout.groups * rollout.groupSize;
  const { waitingMax, rowsMax } = REPORTER_LIMITS;
  const bounds: Partial<Record<Role, Bounds>> = {
    learner: { "queue/messages": waitingMax, "queue/rows": rowsMax + rolloutRows },
    sampler: { "queue/playing": sampler.slots, "queue/waiting": WAITING_MAX },
    "env-server": { "queue/playing": envServer.episodesMax },
    "metrics-sink": { "queue/messages": SINK_WAITING_MAX },
  };
  return bounds[role] ?? {};
}

export class WatchedMeter extends Meter {
  readonly #life: Life;
  readonly #invariants: Invariants;
  readonly #bounds: Bounds;
  #readPlaying: () => number | null = () => null;

  constructor(life: Life, role: Role, config: RunConfig, invariants: Invariants) {
    super(life.clock);
    this.#life = life;
    this.#invariants = invariants;
    this.#bounds = boundsOf(role, config);
  }

  override depth(name: MetricName, read: () => number | null): void {
    super.depth(name, read);
    if (name === "queue/playing") this.#readPlaying = read;
    const max = this.#bounds[name];
    if (max === undefined) return;
    this.#invariants.always(this.#life, () => {
      const found = read() ?? 0;
      if (found > max) this.#invariants.broken(6, `${this.#life.name}: ${name} holds ${found}, at most ${max}`);
    });
  }

  /** The depth of queue/playing; 0 before its actor has started. */
  get playing(): number {
    return this.#readPlaying() ?? 0;
  }
}
