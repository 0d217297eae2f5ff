/** The simulated machine: what all processes of one run share. */
import type { Store } from "../../actors/metrics-sink/store.ts";
import type { Report } from "../../actors/training/report.ts";
import type { SimulatedDisk } from "./disk.ts";
import type { Invariants } from "./invariants.ts";
import type { Network } from "./network.ts";
import type { SharedMemory, Troubles } from "./policy.ts";
import type { Life, World } from "./world.ts";

/** Bugs put in on purpose, to see that the invariants report them. */
export const DEFECTS = [
  "trains twice",
  "takes anything",
  "mixes versions",
  "trains on old episodes",
  "loses rows",
  "stores nothing",
] as const;
export type Defect = (typeof DEFECTS)[number];

/** Updates that an episode may lag behind in async mode. */
export const STALENESS_MAX = 2;

export interface Machine {
  readonly world: World;
  readonly invariants: Invariants;
  readonly network: Network;
  readonly disk: SimulatedDisk;
  readonly memory: SharedMemory;
  readonly store: Store;
  readonly supervisor: Life;
  readonly troubles: Troubles & { readonly envErrors: number };
  readonly defect: Defect | null;
  /** An actor gave up for good because the disk was full. */
  failedForDisk: boolean;
  /** What the learner logged about rows and messages that it could not deliver. */
  undelivered: string | null;
  finished: { readonly report: Report; readonly parameters: string } | null;
}
