/**
 * Installs the dependencies when they are not the lock file's. Built-in modules only: it runs before anything else can.
 *
 * - Two commands started at once install once: a lock in node_modules, which the system drops if its holder dies.
 * - The stamp is written last, so an install that was cut short is taken up again.
 * - Runs no post-install script of any package. Needs no `bun` in PATH: the running executable is the installer.
 */
import { Database } from "bun:sqlite";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Longest wait for another process's install. */
const WAIT_MS_MAX = 15 * 60_000;

/**
 * Make node_modules match bun.lock. Does nothing, in about a millisecond, if it does.
 *
 * @param root  Folder of package.json and bun.lock.
 * @returns true if packages have come since this process started: it may remember that they were not there.
 * @throws {Error} in one line, if the lock file is missing, the disk refuses, or the install fails.
 */
export async function install(root: string): Promise<boolean> {
  const wanted = lockDigest(root);
  if (installedDigest(root) === wanted) return false;
  const folder = join(root, "node_modules", ".bunraku");
  mkdirSync(folder, { recursive: true });
  using lock = new Database(join(folder, "lock.sqlite"));
  take(lock);
  if (installedDigest(root) === wanted) return true;
  console.error("installing dependencies (once; they come from the npm registry) …");
  const started = performance.now();
  const child = Bun.spawn([process.execPath, "install", "--frozen-lockfile", "--ignore-scripts"], {
    cwd: root,
    stdio: ["ignore", 2, 2],
  });
  const code = await child.exited;
  if (code !== 0) {
    throw new Error(
      `cannot install the dependencies: \`bun install --frozen-lockfile\` ended with ${code} (its reason stands above); ` +
        "mend that, or check the way to the npm registry, and run the command again",
    );
  }
  writeFileSync(join(folder, "installed"), wanted);
  console.error(`dependencies installed in ${((performance.now() - started) / 1000).toFixed(1)} s`);
  return true;
}

/** sha256 of bun.lock, as hex. */
export function lockDigest(root: string): string {
  return new Bun.CryptoHasher("sha256").update(readFileSync(join(root, "bun.lock"))).digest("hex");
}

/** What `lockDigest` was when node_modules was last installed whole; null if it never was. */
export function installedDigest(root: string): string | null {
  try {
    return readFileSync(join(root, "node_modules", ".bunraku", "installed"), "utf8");
  } catch {
    return null;
  }
}

/** Wait for, then hold, the lock until the database is closed. */
function take(lock: Database): void {
  lock.run("PRAGMA busy_timeout = 0");
  try {
    lock.run("BEGIN EXCLUSIVE");
  } catch {
    console.error("another command is installing the dependencies; waiting for it …");
    lock.run(`PRAGMA busy_timeout = ${WAIT_MS_MAX}`);
    lock.run("BEGIN EXCLUSIVE");
  }
}
