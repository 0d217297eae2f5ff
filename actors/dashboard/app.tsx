/** @jsxImportSource hono/jsx */
/**
 * The routes of the page. They only read stores, so they allow only GET and HEAD, with one exception: a POST adds a rating.
 *
 *   / /actors /episodes …   the run's pages (run-routes.tsx)     /runs              the runs of the parent folder
 *   /api/… /metrics         the run's API, for programs          /run/NAME/…        pages and API of another of these runs
 *   /assets/…               files of the pages                   /healthz           this process is alive
 *                                                                /readyz            a learner and a sampler have started
 *
 * - Only /healthz and /readyz answer without the token.
 */
import { statSync } from "node:fs";
import { join } from "node:path";
import { type Context, Hono } from "hono";
import { html } from "hono/html";
import type { Clock } from "../clock.ts";
import { readRunConfig } from "../policy/saved-policy.ts";
import { guard, sameSiteOnly, validHostOnly } from "./access.ts";
import type { ApiContext } from "./api.ts";
import { apiContextOf } from "./api-of-run.ts";
import type { Assets } from "./assets.ts";
import { notReadyReason } from "./overview.ts";
import { RunsPage } from "./pages/runs.tsx";
import { MissingPage } from "./pages/shell.tsx";
import { busy, RATINGS_PATH, ReadQueue, type RunRoutesOptions, runRoutes } from "./run-routes.tsx";
import type { NearbyRuns } from "./runs.ts";

const HEADERS = {
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Resource-Policy": "same-origin",
};

export interface DashboardOptions {
  /** The run that the page shows. With `store: null` the page has no run, and only lists the runs of a folder. */
  readonly shown: ApiContext | { readonly store: null; readonly nearby: NearbyRuns };
  readonly clock: Clock;
  /** null: everyone who can connect to the page's loopback address may read the page. */
  readonly token: string | null;
  readonly assets: Assets;
  /** Ends the live streams. */
  readonly signal: AbortSignal;
}

export function dashboardApp({ shown, clock, token, assets, signal }: DashboardOptions): Hono {
  const { store, nearby } = shown;
  const app = new Hono();
  const reads = new ReadQueue(clock);
  const routesOf = otherRuns(nearby, { clock, reads, signal });

  app.use(async (c, next) => {
    const takesRatings = c.req.path === RATINGS_PATH || /^\/run\/[^/]+\/api\/ratings$/.test(c.req.path);
    const allowed = ["GET", "HEAD", ...(takesRatings ? ["POST"] : [])];
    if (!allowed.includes(c.req.method)) {
      const text = `Only ${allowed.join(" and ")} are allowed: this page is read-only, except for ratings.\n`;
      return c.text(text, 405, { Allow: allowed.join(", ") });
    }
    await next();
    for (const [name, value] of Object.entries(HEADERS)) c.res.headers.set(name, value);
    if (!c.res.headers.has("Cache-Control")) c.res.headers.set("Cache-Control", "no-store");
    return;
  });
  app.use(validHostOnly);
  app.get("/healthz", (c) => c.text("ok\n"));
  app.get("/readyz", (c) => {
    const reason = store === null ? "no run yet" : notReadyReason(store);
    return reason === null ? c.text("ok\n") : c.text(`${reason}\n`, 503);
  });
  app.use(guard(token));

  app.get("/assets/:name", async (c) => {
    const asset = await assets.get(c.req.param("name"));
    if (asset === null) return c.notFound();
    const headers = { "Content-Type": asset.type, ETag: asset.etag, "Cache-Control": "no-cache" };
    return c.req.header("If-None-Match") === asset.etag ? c.body(null, 304, headers) : c.body(asset.text, 200, headers);
  });
  const listRuns = async (c: Context) => {
    const list = reads.run(() => nearby.list());
    return list === null ? busy(c) : c.html(html`<!doctype html>${<RunsPage {...(await list)} own={nearby.own} />}`);
  };
  app.get("/runs", sameSiteOnly, listRuns);
  app.get("/run/:name", (c) => c.redirect(`/run/${encodeURIComponent(c.req.param("name"))}/`));
  app.on(["GET", "POST"], "/run/:name/*", (c) => {
    const name = c.req.param("name");
    const other = routesOf(name);
    if (other === null) return c.notFound();
    const url = new URL(c.req.url);
    url.pathname = url.pathname.replace(/^\/run\/[^/]*/, "");
    return other.fetch(new Request(url.href, c.req.raw));
  });
  if (shown.store === null) app.get("/", listRuns);
  else app.route("/", runRoutes({ context: shown, clock, reads, signal }));
  // `nearby` throws if a run cannot be read.
  app.onError((error, c) => c.json({ error: error.message }, 500));
  app.notFound((c) => {
    const isBrowser = c.req.header("Accept")?.includes("text/html") && !/^\/(api|assets)\//.test(c.req.path);
    if (isBrowser) return c.html(html`<!doctype html>${<MissingPage path={c.req.path} />}`, 404);
    return c.json({ error: `nothing at ${c.req.path}; see / and /api/openapi.json` }, 404);
  });
  return app;
}

const RUNS_OPEN_MAX = 8;

interface OpenRun {
  readonly routes: Hono;
  /** See `versionOf`. */
  readonly version: string;
  close(): void;
}

/**
 * The pages of the other runs of a folder, under /run/NAME/. The first request for a run opens it, read-only.
 *
 * - At most `RUNS_OPEN_MAX` runs are open. To open a further run, this function closes the run that has been open longest.
 * - If a request names an open run whose record or config is gone or replaced, this function closes the run, and opens the new files if
 *   there are any. A resume may replace the config.
 *
 * @returns a function that takes a run's name and returns the run's pages, or null if there is no such run. The function throws if the run
 * cannot be read
 */
function otherRuns(nearby: NearbyRuns, shared: Omit<RunRoutesOptions, "context">): (name: string) => Hono | null {
  const open = new Map<string, OpenRun>();
  /** The inode numbers of the run's record and config, and the time of the config. While the run is open, no other record has its inode number. */
  const versionOf = (name: string) => {
    const stats = (file: string) => statSync(join(nearby.parent, name, file), { throwIfNoEntry: false });
    const config = stats("config.json");
    return [stats("run.sqlite")?.ino, config?.ino, config?.mtimeMs].join(" ");
  };
  const close = (name: string) => {
    open.get(name)?.close();
    open.delete(name);
  };
  shared.signal.addEventListener("abort", () => {
    for (const name of [...open.keys()]) close(name);
  });
  return (name) => {
    const known = open.get(name);
    if (known !== undefined && known.version === versionOf(name)) return known.routes;
    close(name);
    const version = versionOf(name);
    const store = nearby.open(name);
    if (store === null) return null;
    const closing = new AbortController();
    try {
      const folder = join(nearby.parent, name);
      const context = { store, ...apiContextOf(readRunConfig(folder), folder) };
      const routes = new Hono().route("/", runRoutes({ ...shared, context, signal: closing.signal }));
      for (const first of [...open.keys()].slice(0, Math.max(0, open.size + 1 - RUNS_OPEN_MAX))) close(first);
      open.set(name, {
        routes,
        version,
        close() {
          closing.abort();
          store.close();
        },
      });
      return routes;
    } catch (error) {
      store.close();
      throw error;
    }
  };
}
