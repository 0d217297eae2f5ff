/** Checks Bun's version, and the installed packages against the lock file. */
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { installedDigest, isPackage, lockDigest } from "../cli/install.ts";
import type { Finding } from "./finding.ts";

interface Package {
  readonly version: string;
  readonly engines?: { readonly bun?: string };
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

const readPackage = (folder: string) => JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Package;

export function bunFinding(root: string): Finding {
  const needed = readPackage(root).engines?.bun ?? "*";
  const good = Bun.semver.satisfies(Bun.version, needed);
  const means = good ? "the tested version, or newer" : `this project needs ${needed}`;
  return { name: "bun", state: good ? "ok" : "broken", found: `Bun ${Bun.version}`, means };
}

/** Ok if every direct dependency has the version of package.json, and the last install used this lock file. */
export function packagesFinding(root: string): Finding {
  const { dependencies = {}, devDependencies = {} } = readPackage(root);
  const wrong = Object.entries({ ...dependencies, ...devDependencies }).flatMap(([name, wanted]) => {
    const found = installedVersion(root, name);
    return found === wanted ? [] : [`${name} is ${found ?? "missing"}, wanted ${wanted}`];
  });
  const count = Object.keys({ ...dependencies, ...devDependencies }).length;
  if (wrong.length > 0) {
    return { name: "packages", state: "broken", found: wrong.join("; "), means: "run `bun run setup --again`" };
  }
  if (!isPackage && installedDigest(root) !== lockDigest(root)) {
    const found = "bun.lock has changed since the last install";
    return { name: "packages", state: "broken", found, means: "run `bun run setup --again`" };
  }
  return {
    name: "packages",
    state: "ok",
    found: `all ${count} as ${isPackage ? "package.json" : "bun.lock"} has them`,
    means: "nothing to install",
  };
}

/** The version in the nearest node_modules: a project may share its packages with Bunraku. */
function installedVersion(folder: string, name: string): string | null {
  try {
    return readPackage(join(folder, "node_modules", name)).version;
  } catch {
    return dirname(folder) === folder ? null : installedVersion(dirname(folder), name);
  }
}
