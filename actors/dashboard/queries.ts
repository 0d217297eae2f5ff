/** What may be asked in a URL's query. Parsed once, at the edge; every fault is named in the answer. */
import { z } from "zod";
import { isMetricName, METRIC_NAMES, type MetricName } from "../metrics/metrics.ts";
import { STOP_REASONS } from "../protocol.ts";

const Count = z.coerce.number().int().nonnegative();
const Truth = z.stringbool({ truthy: ["true"], falsy: ["false"] });
const Limit = (most: number, usual: number) => z.coerce.number().int().min(1).max(most).default(usual);

const Names = z
  .string()
  .transform((text) => text.split(","))
  .superRefine((names, context) => {
    for (const name of names.filter((name) => !isMetricName(name))) {
      context.addIssue({ code: "custom", message: `no metric named "${name}"; there are ${METRIC_NAMES.join(", ")}` });
    }
  })
  .transform((names) => names as MetricName[]);

/** Asks for nothing more than its path. */
export const Nothing = z.strictObject({});

const Points = z.coerce
  .number()
  .int()
  .min(4)
  .max(20_000)
  .optional()
  .describe("Points of a series at most; of longer ones, lows, highs and ends of equal stretches are kept");

export const MetricsQuery = z.strictObject({
  names: Names.default([...METRIC_NAMES]).describe("Comma-separated; all if left out"),
  since: Count.default(0).describe("Only what was written after this cursor"),
  points: Points,
});

export const OtherMetricsQuery = MetricsQuery.omit({ since: true });

export const EpisodesQuery = z.strictObject({
  env: z.string().min(1).max(64).optional(),
  purpose: z.enum(["train", "validate"]).optional(),
  status: z.enum(["scored", "truncated", "envError", "aborted"]).optional(),
  stop: z.enum(STOP_REASONS).optional(),
  success: Truth.optional(),
  failed: Truth.optional().describe("true: those that could not be played"),
  layoutSeed: Count.optional(),
  version: Count.optional(),
  text: z
    .string()
    .trim()
    .min(1)
    .max(200)
    .optional()
    .describe("Words that follow each other in what the policy wrote, or in why the episode failed"),
  update: Count.optional(),
  rewardMin: z.coerce.number().optional(),
  rewardMax: z.coerce.number().optional(),
  before: Count.optional(),
  limit: Limit(200, 50),
});

export const EventsQuery = z.strictObject({
  before: Count.optional(),
  since: Count.optional(),
  kind: z.string().min(1).max(64).optional(),
  level: z.enum(["info", "warning", "error"]).optional().describe("This level and worse ones"),
  limit: Limit(500, 100),
});

export const EpisodeId = z.coerce.number().int().positive();

/** "points.events.episodes", as /api/run and the stream's message ids give it. */
export const CursorText = z.string().regex(/^\d{1,15}\.\d{1,15}\.\d{1,15}$/, "a cursor is three counts: 120.4.31");

/** The faults of a query on one line each. */
export const faults = (error: z.ZodError): string => z.prettifyError(error);
