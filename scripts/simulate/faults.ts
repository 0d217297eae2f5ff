/** The faults of a simulated run and their times, drawn from its seed. */
import type { Machine } from "./machine.ts";
import type { Process } from "./process.ts";

export const FAULT_KINDS = ["kill", "freeze", "cut", "stall", "full disk", "slow network"] as const;
type FaultKind = (typeof FAULT_KINDS)[number];

export const noFaults = () => Object.fromEntries(FAULT_KINDS.map((kind) => [kind, 0])) as Record<FaultKind, number>;

/** No fault begins after this time, so that every run can end. */
const UNTIL_MS = 25_000;
const EVERY_MS = { least: 50, most: 1200 };

/** Causes faults in these processes and their machine. @returns the number of faults so far, by kind */
export function causeFaults(
  { world, supervisor, network, disk }: Machine,
  processes: ReadonlySet<Process>,
): Readonly<Record<FaultKind, number>> {
  const counts = noFaults();
  const later = (delayMs: number, what: string, run: () => void) => void world.schedule(supervisor, delayMs, what, run);
  const next = () => {
    const kind = world.pick(FAULT_KINDS)!;
    later(world.between(EVERY_MS.least, EVERY_MS.most), `fault: ${kind}`, () => {
      if (world.now > UNTIL_MS) return;
      counts[kind]++;
      causes[kind](world.pick([...processes]));
      next();
    });
  };
  const link = () => world.pick([...network.links]);
  const causes: Readonly<Record<FaultKind, (victim: Process | undefined) => void>> = {
    kill: (victim) => victim?.kill("SIGKILL"),
    freeze(victim) {
      if (victim !== undefined) victim.life.frozen = true;
      later(world.between(100, 6000), "thaw", () => victim?.life.thaw());
    },
    cut: () => link()?.break("the network broke"),
    stall: () => link()?.stall(world.between(500, 4000)),
    "full disk"() {
      disk.full = true;
      later(world.between(100, 3000), "room on the disk", () => {
        disk.full = false;
        disk.roomAtMs = world.now;
      });
    },
    "slow network"() {
      network.slowness = 10;
      later(world.between(100, 2000), "quick network", () => {
        network.slowness = 1;
      });
    },
  };
  next();
  return counts;
}
