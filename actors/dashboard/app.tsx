/**
 * The routes of a run's page. Reads the store; changes nothing, so every method but GET and HEAD is refused.
 *
 *   /                page            /api/run         overview and cursor
 *   /metrics         Prometheus      /api/metrics     series by name
 *   /healthz         process lives   /api/episodes    list; /api/episodes/ID one, whole
 *   /readyz          run has begun   /api/events      list
 *   /assets/…        page's files    /api/stream      everything new, live (SSE)
 *
 * - Only the two probes answer without the token.
 * - What a model wrote leaves as JSON or as escaped text, never as HTML.
 */
import { Hono } from "hono";
import { html } from "hono/html";
import { streamSSE } from "hono/streaming";
import type { z } from "zod";
import type { Clock } from "../clock.ts";
import { guard } from "./access.ts";
import type { Asset } from "./assets.ts";
import { overviewOf } from "./overview.ts";
import { EmptyPage, RunPage } from "./page.tsx";
import { Exposition } from "./prometheus.ts";
import { CursorText, EpisodeId, EpisodesQuery, EventsQuery, faults, MetricsQuery } from "./queries.ts";
import type { Store } from "./store.ts";
import { cursorText, parseCursor, streamRun } from "./stream.ts";

/** Open live streams at once; a browser tab holds one. */
const STREAMS_MAX = 64;

const HEADERS = {
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cross-Origin-Resource-Policy": "same-origin",
};

export interface DashboardOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** null: readable by everyone who reaches a loopback address. */
  readonly token: string | null;
  readonly assets: ReadonlyMap<string, Asset>;
  /** Ends the live streams. */
  readonly signal: AbortSignal;
}

export function dashboardApp({ store, clock, token, assets, signal }: DashboardOptions): Hono {
  const app = new Hono();
  const exposition = new Exposition(store);
  let streams = 0;

  app.use(async (c, next) => {
    if (c.req.method !== "GET" && c.req.method !== "HEAD")
      return c.text("Only GET: this page changes nothing.\n", 405, { Allow: "GET, HEAD" });
    await next();
    for (const [name, value] of Object.entries(HEADERS)) c.res.headers.set(name, value);
    if (!c.res.headers.has("Cache-Control")) c.res.headers.set("Cache-Control", "no-store");
    return;
  });
  app.get("/healthz", (c) => c.text("ok\n"));
  app.get("/readyz", (c) => (store.run() === null ? c.text("no run yet\n", 503) : c.text("ok\n")));
  app.use(guard(token));

  app.get("/", (c) => {
    const view = overviewOf(store);
    return c.html(html`<!doctype html>${view === null ? <EmptyPage /> : <RunPage view={view} />}`);
  });
  app.get("/assets/:name", (c) => {
    const asset = assets.get(c.req.param("name"));
    if (asset === undefined) return c.notFound();
    const headers = { "Content-Type": asset.type, ETag: asset.etag, "Cache-Control": "no-cache" };
    return c.req.header("If-None-Match") === asset.etag ? c.body(null, 304, headers) : c.body(asset.text, 200, headers);
  });
  app.get("/metrics", async (c) => c.text(await exposition.text(), 200, { "Content-Type": exposition.contentType }));

  app.get("/api/run", (c) => {
    const overview = overviewOf(store);
    if (overview === null) return c.json({ error: "no run was started here yet" }, 503);
    return c.json({ ...overview, cursor: cursorText(store.cursor()) });
  });
  app.get("/api/metrics", (c) =>
    asked(c.req.query(), MetricsQuery, ({ names, since }) => ({
      cursor: store.cursor().points,
      series: store.series(names, since),
    })),
  );
  app.get("/api/events", (c) => asked(c.req.query(), EventsQuery, (page) => ({ events: store.events(page) })));
  app.get("/api/episodes", (c) =>
    asked(c.req.query(), EpisodesQuery, ({ before, limit, ...filter }) => store.episodes(filter, { before, limit })),
  );
  app.get("/api/episodes/:id", (c) => {
    const id = EpisodeId.safeParse(c.req.param("id"));
    const found = id.success ? store.episode(id.data) : null;
    if (found === null) return c.json({ error: `no episode ${c.req.param("id")}; /api/episodes lists them` }, 404);
    return c.body(JSON.stringify(found, plainArrays), 200, { "Content-Type": "application/json" });
  });
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
  app.notFound((c) => c.json({ error: `nothing at ${c.req.path}; see / and /api/run` }, 404));
  return app;
}

function asked<T>(query: Record<string, string>, schema: z.ZodType<T>, answer: (query: T) => object): Response {
  const parsed = schema.safeParse(query);
  return parsed.success
    ? Response.json(answer(parsed.data))
    : Response.json({ error: faults(parsed.error) }, { status: 400 });
}

/** Typed arrays as JSON lists; otherwise they would become objects with one key for each index. */
const plainArrays = (_key: string, value: unknown) =>
  value instanceof Int32Array || value instanceof Float32Array || value instanceof Uint8Array ? [...value] : value;
