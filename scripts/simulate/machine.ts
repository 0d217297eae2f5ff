/** The simulated machine: what all processes of one run share. */
import type { Store } from "../../actors/metrics-sink/store.ts";
import type { SimulatedDisk } from "./disk.ts";
import type { Invariants } from "./invariants.ts";
import type { Network } from "./network.ts";
import type { Life, World } from "./world.ts";

/** Bugs that tests add on purpose. The tests check that an invariant reports each bug. */
export type Defect =
  | "trains twice"
  | "takes anything"
  | "mixes versions"
  | "trains on old episodes"
  | "loses rows"
  | "stores nothing";

export interface Machine {
  readonly world: World;
  readonly invariants: Invariants;
  readonly network: Network;
  readonly disk: SimulatedDisk;
  /** Published weights by path. The weights are memory of the process that published them, so they are lost when this process dies. */
  readonly memory: Map<string, { readonly owner: Life; readonly values: Float32Array }>;
  readonly store: Store;
  readonly supervisor: Life;
  /** Shares of loads with a changed byte, of replies whose log-probabilities are NaN, and of envs that cannot be opened. */
  readonly troubles: Readonly<Record<"corrupt" | "poison" | "envErrors", number>>;
  readonly defect: Defect | null;
  /** True if an actor ended with an error because the disk was full. */
  failedForDisk: boolean;
  /** What the learner logged about rows and messages that it could not deliver. */
  undelivered: string | null;
  /** Digest of the run's final parameters; null until the run has finished. */
  finished: string | null;
}
