/** Schemas of the API's query parameters, and the error texts for invalid parameters. */
import { z } from "zod";
import { oneLine, schemaFaults } from "../errors.ts";
import { isMetricName, METRIC_NAMES, type MetricName } from "../metrics/metrics.ts";
import { STOP_REASONS } from "../protocol.ts";

const Count = z.coerce.number().int().nonnegative();
const TrueOrFalse = z.stringbool({ truthy: ["true"], falsy: ["false"] });
const Limit = (most: number, standard: number) => z.coerce.number().int().min(1).max(most).default(standard);

/** Maximum number of metrics of one request. The table of metrics has about 230 rows, and each env of a mix adds some metrics. */
const NAMES_MAX = 500;
const ERROR_MAX = 1000;

const Names = z.string().transform((text, context) => {
  const names = [...new Set(text.split(","))];
  const message = faultOf(names);
  if (message !== null) context.addIssue({ code: "custom", message });
  return names as MetricName[];
});

function faultOf(names: readonly string[]): string | null {
  if (names.length > NAMES_MAX) return `${names.length} names; at most ${NAMES_MAX} at once`;
  const unknown = names.filter((name) => !isMetricName(name));
  const [first] = unknown;
  if (first === undefined) return null;
  const others = unknown.length === 1 ? "" : ` (and ${unknown.length - 1} more are unknown)`;
  return `no metric named "${first.slice(0, 100)}"${others}; docs/metrics.md lists them`;
}

/** SQLite ends a text at a NUL, so a search would ignore the words after a NUL. */
const withoutNul = (text: string) => !text.includes("\0");
const NUL = "the text has a NUL; leave it out";

export const NoQuery = z.strictObject({});

const Points = z.coerce.number().int().min(4).max(20_000).optional();
const SearchText = z.string().trim().min(1).max(200).refine(withoutNul, NUL);

export const MetricsQuery = z.strictObject({
  names: Names.default([...METRIC_NAMES]).describe(
    "Names of metrics, with commas between them; default: all metrics, but no values of single envs (env=…) or single k of pass@k (k=…)",
  ),
  since: Count.default(0).describe("Returns only values that the run wrote after this cursor"),
  points: Points.describe(
    "Maximum number of points per series. The server divides a longer series into equally wide stretches of steps, and keeps the first, last, lowest and highest point of each stretch",
  ),
});

export const OtherMetricsQuery = MetricsQuery.omit({ since: true });

export const EpisodesQuery = z.strictObject({
  env: z.string().min(1).max(64).refine(withoutNul, NUL).optional(),
  purpose: z.enum(["train", "validate"]).optional(),
  status: z.enum(["scored", "truncated", "envError", "aborted"]).optional(),
  stop: z.enum(STOP_REASONS).optional(),
  success: TrueOrFalse.optional(),
  failed: TrueOrFalse.optional().describe("true: env errors and aborted episodes only"),
  layoutSeed: Count.optional(),
  version: Count.optional(),
  text: SearchText.optional().describe(
    "Consecutive words of a reply, or of the reason of a failure; the last word may be incomplete",
  ),
  update: Count.optional(),
  rewardMin: z.coerce.number().optional(),
  rewardMax: z.coerce.number().optional(),
  before: Count.optional(),
  limit: Limit(200, 50),
});

export const EventsQuery = z.strictObject({
  before: Count.optional(),
  since: Count.optional(),
  kind: z.string().min(1).max(64).refine(withoutNul, NUL).optional(),
  level: z.enum(["info", "warning", "error"]).optional().describe("Returns events of this level and of worse levels"),
  limit: Limit(500, 100),
});

export const EpisodeId = z.coerce.number().int().positive();

/** "points.events.episodes", as in /api/run and in the ids of the stream's messages. */
export const CursorText = z.string().regex(/^\d{1,15}\.\d{1,15}\.\d{1,15}$/, "a cursor is three counts, as 120.4.31");

/**
 * The fault of the first parameter that is empty, or that the query has several times; null if there is none. An empty text would count as
 * the number 0.
 */
export function parameterFault(query: Readonly<Record<string, readonly string[]>>): string | null {
  for (const [name, values] of Object.entries(query)) {
    const at = `query.${name.slice(0, 100)}`;
    if (values.length > 1) return `${at}: has ${values.length} values; give one`;
    if (values[0]!.trim() === "") return `${at}: is empty; give it a value, or leave it out`;
  }
  return null;
}

/** The faults of a query, as one line of bounded length. */
export const faults = (error: z.ZodError): string => oneLine(schemaFaults(error, "query")).slice(0, ERROR_MAX);
