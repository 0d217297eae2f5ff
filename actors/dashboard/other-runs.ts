/**
 * The pages of the other runs of a folder, under /run/NAME/. The first request for a run opens it, read-only.
 *
 * - At most `RUNS_OPEN_MAX` runs are open. Opening one more closes the run that was opened first.
 * - A run whose file is gone, or another one, is closed: a run of the same name may have been recorded in its place.
 */

import { statSync } from "node:fs";
import { join } from "node:path";
import { Hono } from "hono";
import { readRunConfig } from "../policy/saved-policy.ts";
import { apiContextOf } from "./api-of-run.ts";
import { type RunRoutesOptions, runRoutes } from "./run-routes.tsx";
import type { NearbyRuns } from "./runs.ts";

const RUNS_OPEN_MAX = 8;

interface OpenRun {
  readonly routes: Hono;
  /** Number of its file on the disk; no other file has it while the run is open. */
  readonly inode: number | undefined;
  close(): void;
}

export class OtherRuns {
  readonly #nearby: NearbyRuns;
  readonly #shared: Omit<RunRoutesOptions, "context">;
  readonly #open = new Map<string, OpenRun>();

  constructor(nearby: NearbyRuns, shared: Omit<RunRoutesOptions, "context">) {
    this.#nearby = nearby;
    this.#shared = shared;
    shared.signal.addEventListener("abort", () => {
      for (const name of [...this.#open.keys()]) this.#close(name);
    });
  }

  /** Null if there is no such run. @throws {Error} if the run cannot be read */
  routesOf(name: string): Hono | null {
    const known = this.#open.get(name);
    if (known !== undefined && known.inode === this.#inodeOf(name)) return known.routes;
    this.#close(name);
    const store = this.#nearby.open(name);
    if (store === null) return null;
    const closing = new AbortController();
    try {
      const folder = join(this.#nearby.parent, name);
      const context = { store, ...apiContextOf(readRunConfig(folder), folder) };
      const routes = new Hono().route("/", runRoutes({ ...this.#shared, context, signal: closing.signal }));
      routes.onError((error, c) => c.json({ error: error.message }, 500));
      const close = () => {
        closing.abort();
        store.close();
      };
      for (const first of [...this.#open.keys()].slice(0, this.#open.size + 1 - RUNS_OPEN_MAX)) this.#close(first);
      this.#open.set(name, { routes, inode: this.#inodeOf(name), close });
      return routes;
    } catch (error) {
      store.close();
      throw error;
    }
  }

  #inodeOf(name: string): number | undefined {
    return statSync(join(this.#nearby.parent, name, "run.sqlite"), { throwIfNoEntry: false })?.ino;
  }

  #close(name: string): void {
    this.#open.get(name)?.close();
    this.#open.delete(name);
  }
}
