/** The API in OpenAPI 3.1, made from the schemas that the routes themselves use. Pure. */
import { z } from "zod";
import { ErrorAnswer } from "./answers.ts";
import type { ApiRoute } from "./api.ts";

type Json = Record<string, unknown>;

/** Numbers in typed arrays leave as lists of numbers. */
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
      ...(inQuery.length > 0 && { 400: answers("A parameter is wrong; the error names it", ErrorAnswer) }),
      ...(inPath.length > 0 && { 404: answers("There is none", ErrorAnswer) }),
      503: answers("Not yet", ErrorAnswer),
    },
  };
}

const STREAM = {
  summary: "Everything new, live: server-sent events `news`, whose ids are cursors",
  parameters: [{ name: "since", in: "query", required: false, schema: { type: "string" } }],
  responses: { 200: { description: "Until either side leaves", content: { "text/event-stream": {} } } },
};

export function openApiOf(routes: readonly ApiRoute[]): Json {
  return {
    openapi: "3.1.0",
    info: { title: "Bunraku: one run", version: "1", description: "Reading only. With a token: as a bearer token." },
    components: { securitySchemes: { token: { type: "http", scheme: "bearer" } } },
    security: [{}, { token: [] }],
    paths: {
      ...Object.fromEntries(routes.map((route) => [route.path, { get: operationOf(route) }])),
      "/api/stream": { get: STREAM },
    },
  };
}
