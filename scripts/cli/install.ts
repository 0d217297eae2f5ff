/**
 * Installs the dependencies if they differ from the lock file. Imports built-in modules only, because packages may not be installed yet.
 *
 * - If two commands start at once, only one installs, and the other waits. The lock is a SQLite transaction, so it ends when its process ends.
 * - The install writes the file `installed` last, so the next command repeats an interrupted install.
 * - The Bun that runs this command also installs, so no `bun` in PATH is needed. No post-install script of a package runs.
 */
import { Database } from "bun:sqlite";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, sep } from "node:path";

const OTHER_INSTALL_MS_MAX = 15 * 60_000;

/** True in an installed package, whose dependencies the user's project installs. False in a clone. */
export const isPackage = import.meta.dir.split(sep).includes("node_modules");

/**
 * Makes node_modules match bun.lock. Takes about a millisecond if node_modules matches already.
 *
 * @param root  folder of package.json and bun.lock.
 * @returns true if this or another process has installed packages since this process started. This process may still treat them as missing.
 * @throws {Error} if the lock file is missing, the disk cannot be written, or the install fails.
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
      `cannot install the dependencies: \`bun install --frozen-lockfile\` ended with ${code}, for the reason above; ` +
        "correct the cause, or check the connection to the npm registry; then run the command again",
    );
  }
  writeFileSync(join(folder, "installed"), wanted);
  console.error(`dependencies installed in ${((performance.now() - started) / 1000).toFixed(1)} s`);
  return true;
}

/** sha256 of bun.lock in hex. */
export function lockDigest(root: string): string {
  return new Bun.CryptoHasher("sha256").update(readFileSync(join(root, "bun.lock"))).digest("hex");
}

/** `lockDigest` of the last complete install; null if there was none. */
export function installedDigest(root: string): string | null {
  try {
    return readFileSync(join(root, "node_modules", ".bunraku", "installed"), "utf8");
  } catch {
    return null;
  }
}

/** Waits for the lock. Closing the database releases it. */
function take(lock: Database): void {
  lock.run("PRAGMA busy_timeout = 0");
  try {
    lock.run("BEGIN EXCLUSIVE");
  } catch (error) {
    const { code, message } = error as Error & { code?: string };
    if (code !== "SQLITE_BUSY")
      throw new Error(
        `cannot lock the install: ${lock.filename}: ${message}; make its folder writable, or delete the file, and run the command again`,
      );
    console.error("another command is installing the dependencies; waiting for it …");
    lock.run(`PRAGMA busy_timeout = ${OTHER_INSTALL_MS_MAX}`);
    lock.run("BEGIN EXCLUSIVE");
  }
}
