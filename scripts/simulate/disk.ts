/**
 * The disk of a simulated machine. It keeps its files when processes end, and is full at times. If a process dies while it writes a file, the
 * first half of the file remains.
 */
import { Database, SQLiteError } from "bun:sqlite";
import type { Disk } from "../../actors/checkpoint/disk.ts";
import type { Life } from "./world.ts";

export class SimulatedDisk {
  readonly #files = new Map<string, Uint8Array>();
  full = false;
  /** When the disk last had room again after it was full. */
  roomAtMs = Number.NEGATIVE_INFINITY;

  /** The disk as one process sees it. Each call takes time. If the process dies during a call, the call never returns. */
  of(life: Life): Disk {
    const files = this.#files;
    const takesTime = (what: string) => life.sleep(life.world.between(0.5, 10), what);
    const below = (path: string) => [...files.keys()].filter((name) => name === path || name.startsWith(`${path}/`));
    return {
      async list(folder) {
        await takesTime(`list ${folder}`);
        return [...new Set(below(folder).map((path) => path.slice(folder.length + 1).split("/")[0]!))];
      },
      makeFolder: (folder) => takesTime(`make ${folder}`),
      async read(file) {
        await takesTime(`read ${file}`);
        const bytes = files.get(file);
        if (bytes === undefined) throw Object.assign(new Error(`no file ${file}`), { code: "ENOENT" });
        return new Uint8Array(bytes);
      },
      write: async (file, pieces) => {
        const bytes = Buffer.concat([...pieces]);
        if (files.has(file)) throw Object.assign(new Error(`${file} exists`), { code: "EEXIST" });
        files.set(file, bytes.subarray(0, bytes.length >> 1));
        await takesTime(`write ${file}`);
        if (this.full) throw Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
        files.set(file, bytes);
      },
      syncFolder: (folder) => takesTime(`sync ${folder}`),
      async rename(from, to) {
        await takesTime(`rename ${from}`);
        if (below(to).length > 0) throw Object.assign(new Error(`${to} exists`), { code: "ENOTEMPTY" });
        for (const path of below(from)) {
          files.set(to + path.slice(from.length), files.get(path)!);
          files.delete(path);
        }
      },
      async remove(path) {
        for (const file of below(path)) {
          await takesTime(`remove ${file}`);
          files.delete(file);
        }
      },
    };
  }
}

/** SQLite's own error for a full database. */
export const fullDisk = (): SQLiteError => {
  using db = new Database(":memory:");
  try {
    db.run("PRAGMA max_page_count = 1");
    db.run("CREATE TABLE t (x)");
    db.run("CREATE TABLE u (x)");
  } catch (error) {
    if (error instanceof SQLiteError) return error;
    throw error;
  }
  throw new Error("a database of one page took two tables");
};
