/**
 * Energy of the machine's processor packages, from Linux's power capping interface (RAPL). It covers every program on the machine.
 *
 * Source: https://docs.kernel.org/power/powercap/powercap.html: energy_uj counts microjoules and begins again at 0 after
 * max_energy_range_uj.
 */
import { readdirSync, readFileSync } from "node:fs";

export interface PowerFiles {
  /** Names in a folder; empty if it cannot be read. */
  readonly names: (folder: string) => readonly string[];
  /** A file's text; null if it cannot be read, for example by a user other than root. */
  readonly text: (path: string) => string | null;
}

/** The files of this machine. */
export const POWER_FILES: PowerFiles = {
  names: (folder) => unlessAbsent(() => readdirSync(folder)) ?? [],
  text: (path) => unlessAbsent(() => readFileSync(path, "utf8")),
};

function unlessAbsent<T>(read: () => T): T | null {
  try {
    return read();
  } catch {
    return null;
  }
}

const ROOT = "/sys/class/powercap";

/** @returns a function that gives the joules since `energyReader` was called; null on a machine that does not report them */
export function energyReader({ names, text }: PowerFiles): () => number | null {
  const number = (path: string) => {
    const found = text(path)?.trim() ?? "";
    return /^\d+$/.test(found) ? Number(found) : null;
  };
  // Packages only: "intel-rapl:0:1" is a part of "intel-rapl:0".
  const packages = names(ROOT)
    .filter((name) => /^intel-rapl:\d+$/.test(name))
    .flatMap((name) => {
      const last = number(`${ROOT}/${name}/energy_uj`);
      const range = number(`${ROOT}/${name}/max_energy_range_uj`);
      return last === null || range === null ? [] : [{ path: `${ROOT}/${name}/energy_uj`, last, range }];
    });
  let microjoules = 0;
  return () => {
    if (packages.length === 0) return null;
    for (const one of packages) {
      const now = number(one.path) ?? one.last;
      microjoules += now >= one.last ? now - one.last : now + one.range - one.last;
      one.last = now;
    }
    return microjoules / 1e6;
  };
}
