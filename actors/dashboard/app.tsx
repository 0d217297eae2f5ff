/** @jsxImportSource hono/jsx */
/**
 * The routes of a run's page. Reads the store and changes nothing, so only GET and HEAD are allowed.
 *
 *   / /actors /episodes /alarms   pages           /api/…               api.ts
 *   /assets/…                     their files     /api/openapi.json    what the API answers
 *   /metrics                      Prometheus      /api/stream          everything new, live (SSE)
 *   /healthz                      sink is alive   /readyz              a learner and a sampler have started
 *
 * - Only /healthz and /readyz answer without the token.
 * - Text of a model is sent as JSON or escaped, never as HTML.
 */
import { type Context, Hono } from "hono";
import { html } from "hono/html";
import { streamSSE } from "hono/streaming";
import type { Clock } from "../clock.ts";
import { guard, sameSiteOnly, validHostOnly } from "./access.ts";
import { API, type ApiContext, type ApiRoute, NoAnswer } from "./api.ts";
import type { Assets } from "./assets.ts";
import { openApiOf } from "./openapi.ts";
import { notReadyReason, overviewOf } from "./overview.ts";
import { ActorsPage } from "./pages/actors.tsx";
import { AlarmsPage } from "./pages/alarms.tsx";
import { EmptyPage, MissingPage } from "./pages/empty.tsx";
import { EpisodesPage } from "./pages/episodes.tsx";
import { RunPage } from "./pages/run.tsx";
import { Exposition } from "./prometheus.ts";
import { CursorText, faults } from "./queries.ts";
import { READS_WAITING_MAX, ReadQueue } from "./read-queue.ts";
import { cursorText, parseCursor, streamRun } from "./stream.ts";

/** Open live streams at once; a browser tab holds one. */
const STREAMS_MAX = 64;

/** When a reader who was refused should ask again. */
const RETRY_AFTER_S = 2;

const HEADERS = {
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Resource-Policy": "same-origin",
};

const PAGES = { "/": RunPage, "/actors": ActorsPage, "/episodes": EpisodesPage, "/alarms": AlarmsPage };

export interface DashboardOptions extends ApiContext {
  readonly clock: Clock;
  /** null: everyone who reaches a loopback address may read. */
  readonly token: string | null;
  readonly assets: Assets;
  /** Ends the live streams. */
  readonly signal: AbortSignal;
}

export function dashboardApp(options: DashboardOptions): Hono {
  const { store, clock, token, assets, signal } = options;
  const app = new Hono();
  const exposition = new Exposition(store);
  const description = openApiOf(API);
  const reads = new ReadQueue(clock);
  let streams = 0;

  app.use(async (c, next) => {
    if (c.req.method !== "GET" && c.req.method !== "HEAD")
      return c.text("Only GET and HEAD are allowed: this page is read-only.\n", 405, { Allow: "GET, HEAD" });
    await next();
    for (const [name, value] of Object.entries(HEADERS)) c.res.headers.set(name, value);
    if (!c.res.headers.has("Cache-Control")) c.res.headers.set("Cache-Control", "no-store");
    return;
  });
  app.use(validHostOnly);
  app.get("/healthz", (c) => c.text("ok\n"));
  app.get("/readyz", (c) => {
    const reason = notReadyReason(store);
    return reason === null ? c.text("ok\n") : c.text(`${reason}\n`, 503);
  });
  app.use(guard(token));
  app.use("/api/*", sameSiteOnly);
  app.use("/metrics", sameSiteOnly);

  for (const [path, Shown] of Object.entries(PAGES)) {
    app.get(path, (c) => {
      const view = overviewOf(store);
      return c.html(html`<!doctype html>${view === null ? <EmptyPage /> : <Shown view={view} />}`);
    });
  }
  app.get("/assets/:name", async (c) => {
    const asset = await assets.get(c.req.param("name"));
    if (asset === null) return c.notFound();
    const headers = { "Content-Type": asset.type, ETag: asset.etag, "Cache-Control": "no-cache" };
    return c.req.header("If-None-Match") === asset.etag ? c.body(null, 304, headers) : c.body(asset.text, 200, headers);
  });
  app.get("/metrics", async (c) => c.text(await exposition.text(), 200, { "Content-Type": exposition.contentType }));
  for (const route of API) {
    app.get(route.path.replace(/\{(\w+)\}/, ":$1"), (c) => answer(c, route, options, reads));
  }
  app.get("/api/openapi.json", (c) => c.json(description));
  app.get("/api/stream", (c) => {
    const since = c.req.header("Last-Event-ID") ?? c.req.query("since") ?? cursorText(store.cursor());
    const parsed = CursorText.safeParse(since);
    if (!parsed.success) return c.json({ error: faults(parsed.error) }, 400);
    if (streams >= STREAMS_MAX) return c.json({ error: `${STREAMS_MAX} of ${STREAMS_MAX} streams are open` }, 503);
    streams++;
    return streamSSE(c, (stream) =>
      streamRun(stream, { store, clock, since: parseCursor(parsed.data), signal }).finally(() => streams--),
    );
  });
  // For example, the file of another run cannot be read.
  app.onError((error, c) => c.json({ error: error.message }, 500));
  app.notFound((c) => {
    const isBrowser = c.req.header("Accept")?.includes("text/html") && !/^\/(api|assets)\//.test(c.req.path);
    if (isBrowser) return c.html(html`<!doctype html>${<MissingPage path={c.req.path} />}`, 404);
    return c.json({ error: `nothing at ${c.req.path}; see / and /api/openapi.json` }, 404);
  });
  return app;
}

async function answer(c: Context, route: ApiRoute, api: ApiContext, reads: ReadQueue): Promise<Response> {
  const query = route.query.safeParse(c.req.query());
  if (!query.success) return c.json({ error: faults(query.error) }, 400);
  const [part = ""] = Object.values(c.req.param());
  const read = reads.run(() => {
    if (c.req.raw.signal.aborted) throw new NoAnswer(503, "the reader has gone");
    return JSON.stringify(route.read(api, query.data as never, part), plainArrays);
  });
  if (read === null) {
    const error = `${READS_WAITING_MAX} requests wait already; try again in ${RETRY_AFTER_S} s`;
    return c.json({ error }, 503, { "Retry-After": String(RETRY_AFTER_S) });
  }
  try {
    return c.body(await read, 200, { "Content-Type": "application/json" });
  } catch (error) {
    if (error instanceof NoAnswer) return c.json({ error: error.message }, error.status);
    throw error;
  }
}

/** Typed arrays become JSON lists; by default they would become objects with a key for each index. */
const plainArrays = (_key: string, value: unknown) =>
  value instanceof Int32Array || value instanceof Float32Array || value instanceof Uint8Array ? [...value] : value;
