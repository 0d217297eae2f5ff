/** @jsxImportSource hono/jsx */
/**
 * The pages and the API of one run, with the API's description in OpenAPI. `ReadQueue` runs the API's reads of the store one at a time.
 * A POST may add a rating; the other routes change no data. The server sends a model's text as JSON or escaped, never as HTML.
 */
import { type Context, Hono } from "hono";
import { bodyLimit } from "hono/body-limit";
import { html } from "hono/html";
import { streamSSE } from "hono/streaming";
import { z } from "zod";
import { type Clock, pause } from "../clock.ts";
import { schemaFaults } from "../errors.ts";
import { sameSiteOnly } from "./access.ts";
import { ErrorAnswer } from "./answers.ts";
import { API, type ApiContext, type ApiRoute, NoAnswer } from "./api.ts";
import { overviewOf } from "./overview.ts";
import { ActorsPage } from "./pages/actors.tsx";
import { AlarmsPage } from "./pages/alarms.tsx";
import { EpisodesPage } from "./pages/episodes.tsx";
import { RunPage } from "./pages/run.tsx";
import { SettingsPage } from "./pages/settings.tsx";
import { EmptyPage } from "./pages/shell.tsx";
import { CursorText, faults, parameterFault } from "./queries.ts";
import { addRating, NewRating, RATINGS_MAX } from "./ratings.ts";
import { cursorText, parseCursor, streamRun } from "./stream.ts";

/** Maximum number of open live streams; each browser tab holds one. */
const STREAMS_MAX = 64;

const RETRY_AFTER_S = 2;

const PAGES = {
  "/": RunPage,
  "/actors": ActorsPage,
  "/episodes": EpisodesPage,
  "/alarms": AlarmsPage,
  "/settings": SettingsPage,
};

export interface RunRoutesOptions {
  readonly context: ApiContext;
  readonly clock: Clock;
  readonly reads: ReadQueue;
  /** Ends the live streams. */
  readonly signal: AbortSignal;
}

export function runRoutes({ context, clock, reads, signal }: RunRoutesOptions): Hono {
  const { store } = context;
  const app = new Hono();
  let streams = 0;
  // A route throws, for example, if the file of another run cannot be read.
  app.onError((error, c) => c.json({ error: error.message }, error instanceof NoAnswer ? error.status : 500));
  app.use("/api/*", sameSiteOnly);
  app.use("/metrics", sameSiteOnly);
  for (const [path, Shown] of Object.entries(PAGES)) {
    app.get(path, (c) => {
      const view = overviewOf(store);
      return c.html(html`<!doctype html>${view === null ? <EmptyPage /> : <Shown view={view} />}`);
    });
  }
  app.get("/metrics", async (c) => {
    // Import at the first request: most runs get no such request, and prom-client is the largest module of the page.
    const { exposition } = await import("./prometheus.ts");
    const { text, contentType } = await exposition(store);
    return c.text(text, 200, { "Content-Type": contentType });
  });
  for (const route of API) {
    app.get(route.path.replace(/\{(\w+)\}/, ":$1"), (c) => answer(c, route, context, reads));
  }
  app.post(RATINGS_PATH, ratingLimit, (c) => rate(c, context));
  app.get("/api/openapi.json", (c) => c.json(openApiOf()));
  app.get("/api/stream", (c) => {
    const since = c.req.header("Last-Event-ID") ?? c.req.query("since") ?? cursorText(store.cursor());
    const parsed = CursorText.safeParse(since);
    if (!parsed.success) return c.json({ error: faults(parsed.error) }, 400);
    // A client does not read the body of the answer to a HEAD request, so the stream would never end.
    if (c.req.method === "HEAD") return c.body(null, 200, { "Content-Type": "text/event-stream" });
    if (streams >= STREAMS_MAX) return c.json({ error: `${STREAMS_MAX} of ${STREAMS_MAX} streams are open` }, 503);
    streams++;
    return streamSSE(c, (stream) =>
      streamRun(stream, { store, clock, since: parseCursor(parsed.data), signal }).finally(() => streams--),
    );
  });
  return app;
}

async function answer(c: Context, route: ApiRoute, api: ApiContext, reads: ReadQueue): Promise<Response> {
  const fault = parameterFault(c.req.queries());
  if (fault !== null) return c.json({ error: fault }, 400);
  const query = route.query.safeParse(c.req.query());
  if (!query.success) return c.json({ error: faults(query.error) }, 400);
  const [part = ""] = Object.values(c.req.param());
  const read = reads.run(() => {
    if (c.req.raw.signal.aborted) throw new NoAnswer(503, "the client has disconnected");
    return JSON.stringify(route.read(api, query.data as never, part), plainArrays);
  });
  if (read === null) return busy(c);
  return c.body(await read, 200, { "Content-Type": "application/json" });
}

export const RATINGS_PATH = "/api/ratings";

const RATING_BYTES_MAX = 16_384;

const ratingLimit = bodyLimit({
  maxSize: RATING_BYTES_MAX,
  onError: (c) => c.json({ error: `a rating has at most ${RATING_BYTES_MAX} bytes` }, 413),
});

/** Adds a rating (ratings.ts) to the run. Accepts only JSON, which a form of another site cannot send. */
async function rate(c: Context, { store, ratings }: ApiContext): Promise<Response> {
  if (c.req.header("Content-Type")?.split(";")[0] !== "application/json")
    return c.json({ error: "send a rating as application/json" }, 415);
  const body = NewRating.safeParse(await c.req.json().catch(() => null));
  if (!body.success) return c.json({ error: schemaFaults(body.error, "rating").slice(0, 1000) }, 400);
  const found = store.episode(body.data.id);
  if (found === null) return c.json({ error: `no episode ${body.data.id}; api/episodes lists them` }, 404);
  const { episode, turnCount } = found.summary;
  const { turn } = body.data;
  if (turn !== null && turn > turnCount)
    return c.json({ error: `turn is ${turn}, but the episode has ${turnCount} turns` }, 400);
  if (!addRating(ratings, { ...body.data, episode, atMs: Date.now() })) {
    const error = `${ratings} has ${RATINGS_MAX} ratings, the most allowed; move it elsewhere`;
    return c.json({ error }, 507);
  }
  return c.json({}, 201);
}

export function busy(c: Context): Response {
  const error = `${READS_WAITING_MAX} requests wait already; try again in ${RETRY_AFTER_S} s`;
  return c.json({ error }, 503, { "Retry-After": String(RETRY_AFTER_S) });
}

/** Writes a typed array as a JSON list. By default JSON.stringify writes an object with a key for each index. */
const plainArrays = (_key: string, value: unknown) =>
  value instanceof Int32Array || value instanceof Float32Array || value instanceof Uint8Array ? [...value] : value;

type Json = Record<string, unknown>;

/** A schema in OpenAPI's form. A typed array becomes a list of numbers. */
const schemaOf = (schema: z.ZodType, io: "input" | "output"): Json =>
  z.toJSONSchema(schema, {
    io,
    unrepresentable: "any",
    override({ zodSchema, jsonSchema }) {
      if (zodSchema._zod.def.type === "custom") Object.assign(jsonSchema, { type: "array", items: { type: "number" } });
    },
  }) as Json;

const answers = (description: string, schema: z.ZodType) => ({
  description,
  content: { "application/json": { schema: schemaOf(schema, "output") } },
});

function operationOf({ path, summary, query, answer }: ApiRoute): Json {
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => ({
    name,
    in: "path",
    required: true,
    schema: { type: "string" },
  }));
  const { properties = {}, required = [] } = schemaOf(query, "input") as {
    properties?: Record<string, Json>;
    required?: string[];
  };
  const inQuery = Object.entries(properties).map(([name, { description, ...schema }]) => ({
    name,
    in: "query",
    required: required.includes(name),
    schema,
    ...(description === undefined ? {} : { description }),
  }));
  return {
    summary,
    parameters: [...inPath, ...inQuery],
    responses: {
      200: answers("The answer", answer),
      ...(inQuery.length > 0 && { 400: answers("A parameter is invalid; the error names the parameter", ErrorAnswer) }),
      ...(inPath.length > 0 && { 404: answers("Not found", ErrorAnswer) }),
      503: answers("The run has not started yet, or too many requests wait (Retry-After)", ErrorAnswer),
    },
  };
}

const STREAM = {
  summary:
    "New data of the run, sent when the run stores the data: server-sent events `news`. The id of an event is a cursor",
  parameters: [{ name: "since", in: "query", required: false, schema: { type: "string" } }],
  responses: { 200: { description: "Ends when either side disconnects", content: { "text/event-stream": {} } } },
};

function openApiOf(): Json {
  return {
    openapi: "3.1.0",
    info: {
      title: "Bunraku: one run",
      version: "1",
      description:
        "Read-only, except POST /api/ratings. The body of this POST: the episode's id, a turn (null: the whole episode), a score from 1 to 5, a note. If metrics.token is set, requests need this token as a bearer token.",
    },
    components: { securitySchemes: { token: { type: "http", scheme: "bearer" } } },
    security: [{}, { token: [] }],
    paths: {
      ...Object.fromEntries(API.map((route) => [route.path, { get: operationOf(route) }])),
      "/api/stream": { get: STREAM },
    },
  };
}

export const READS_WAITING_MAX = 16;

/**
 * Runs reads of the store one at a time. A read blocks its process, and this process also stores the run's episodes and sends heartbeats.
 *
 * - After a read, the process has as much time for its other work as the read took.
 * - At most `READS_WAITING_MAX` reads wait. The queue refuses a further read at once.
 */
export class ReadQueue {
  readonly #clock: Clock;
  #waiting = 0;
  /** Resolves when the next read may begin. */
  #free: Promise<unknown> = Promise.resolve();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** @returns the result of `read`. If too many reads wait, returns null and does not call `read` */
  run<T>(read: () => T): Promise<T> | null {
    if (this.#waiting >= READS_WAITING_MAX) return null;
    this.#waiting++;
    let tookMs = 0;
    const rest = () => pause(this.#clock, tookMs);
    const answer = this.#free.then(() => {
      this.#waiting--;
      const start = this.#clock.now();
      try {
        return read();
      } finally {
        tookMs = this.#clock.now() - start;
      }
    });
    this.#free = answer.then(rest, rest);
    return answer;
  }
}
