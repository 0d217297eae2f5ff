/** Finds a libtensorflow on the disk; library.ts loads it. */
import { existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";

export interface Places {
  /** LIBTENSORFLOW_PATH: a file, or its folder. If it is set, no other place counts. */
  readonly named: string | undefined;
  /** The library folder of the package @tensorflow/tfjs-node-gpu; `bun run setup tensorflow` fills it. */
  readonly own: string | undefined;
  /** The user's home. */
  readonly home: string | undefined;
  /** Roots of Python environments (VIRTUAL_ENV, CONDA_PREFIX). */
  readonly pythonRoots: readonly string[];
}

/** Folder of the package @tensorflow/tfjs-node-gpu; null if it is not installed: the Bunraku package does not require it. */
export function kernelsFolder(): string | null {
  try {
    return dirname(Bun.resolveSync("@tensorflow/tfjs-node-gpu/package.json", import.meta.dir));
  } catch {
    return null;
  }
}

export const NO_KERNELS =
  "the engine tensorflow needs the package @tensorflow/tfjs-node-gpu; add it: bun add @tensorflow/tfjs-node-gpu@4.22.0";

/** A variable that is empty counts as not set. */
export function placesOf(environment: Readonly<Record<string, string | undefined>>): Places {
  const variable = (name: string) => environment[name] || undefined;
  const kernels = kernelsFolder();
  return {
    named: variable("LIBTENSORFLOW_PATH"),
    own: kernels === null ? undefined : join(kernels, "deps/lib"),
    home: variable("HOME"),
    pythonRoots: [variable("VIRTUAL_ENV"), variable("CONDA_PREFIX")].filter((root) => root !== undefined),
  };
}

/** File names in the official tarball. */
const NAMES = ["libtensorflow.so.2", "libtensorflow.so", "libtensorflow.2.dylib", "libtensorflow.dylib"];
/** File names in a Python wheel, whose libtensorflow_cc has the same C functions. */
const WHEEL_NAMES = ["libtensorflow_cc.so.2", "libtensorflow_cc.2.dylib"];
const ALL_NAMES = [...NAMES, ...WHEEL_NAMES];

const SYSTEM_FOLDERS = ["/usr/local/lib", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/opt/homebrew/lib"];

/** The searched places, for error texts. */
export const PLACES_IN_WORDS =
  "LIBTENSORFLOW_PATH, node_modules/@tensorflow/tfjs-node-gpu/deps/lib, the system's library folders and Python's tensorflow";

/**
 * @returns the library's path; null if there is none.
 * @throws {Error} if LIBTENSORFLOW_PATH names no file, and no folder with a libtensorflow.
 */
export function findLibtensorflow({ named, own, home, pythonRoots }: Places): string | null {
  if (named !== undefined) {
    const found = existsSync(named) && statSync(named).isFile() ? named : first([named], ALL_NAMES);
    if (found === null)
      throw new Error(
        `LIBTENSORFLOW_PATH (${named}) names no file, and no folder with a libtensorflow; correct or unset it`,
      );
    return found;
  }
  const roots = [...pythonRoots, ...(home === undefined ? [] : [join(home, ".local")]), "/usr/local", "/usr"];
  return (
    first(own === undefined ? [] : [own], ALL_NAMES) ??
    first(SYSTEM_FOLDERS, NAMES) ??
    first(roots.flatMap(wheelFolders), WHEEL_NAMES)
  );
}

/** Folders of the tensorflow package in a Python installation, newest Python first. */
function wheelFolders(root: string): string[] {
  const lib = join(root, "lib");
  if (!existsSync(lib)) return [];
  const folders = [
    ...new Bun.Glob("python3*/{site,dist}-packages/tensorflow").scanSync({ cwd: lib, onlyFiles: false }),
  ];
  return folders.sort((a, b) => b.localeCompare(a, "en", { numeric: true })).map((folder) => join(lib, folder));
}

function first(folders: readonly string[], names: readonly string[]): string | null {
  return folders.flatMap((folder) => names.map((name) => join(folder, name))).find((path) => existsSync(path)) ?? null;
}
