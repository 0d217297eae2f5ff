/** Describes the API in OpenAPI 3.1, from the schemas of its routes. Pure. */
import { z } from "zod";
import { ErrorAnswer } from "./answers.ts";
import type { ApiRoute } from "./api.ts";

type Json = Record<string, unknown>;

/** Typed arrays are sent as lists of numbers. */
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
      ...(inQuery.length > 0 && { 400: answers("A parameter is invalid; the error names it", ErrorAnswer) }),
      ...(inPath.length > 0 && { 404: answers("Not found", ErrorAnswer) }),
      503: answers("The run has not started yet, or too many requests wait (Retry-After)", ErrorAnswer),
    },
  };
}

const STREAM = {
  summary: "New data as it is stored: server-sent events `news`, whose ids are cursors",
  parameters: [{ name: "since", in: "query", required: false, schema: { type: "string" } }],
  responses: { 200: { description: "Ends when either side disconnects", content: { "text/event-stream": {} } } },
};

export function openApiOf(routes: readonly ApiRoute[]): Json {
  return {
    openapi: "3.1.0",
    info: {
      title: "Bunraku: one run",
      version: "1",
      description:
        "Read-only, except POST /api/ratings. Its body: the episode's id, a turn (null: the whole episode), a score from 1 to 5, a note. With metrics.token set, requests need it as a bearer token.",
    },
    components: { securitySchemes: { token: { type: "http", scheme: "bearer" } } },
    security: [{}, { token: [] }],
    paths: {
      ...Object.fromEntries(routes.map((route) => [route.path, { get: operationOf(route) }])),
      "/api/stream": { get: STREAM },
    },
  };
}
