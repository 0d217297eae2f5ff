/**
 * What a child process is told when it is born: one line of JSON, the first of its standard input. Not its arguments and
 * not its environment: those are shown in process lists, and the line holds the run's token.
 */
import { z } from "zod";
import { LEVELS } from "../log.ts";

export const ActorSettings = z.strictObject({
  run: z.string().min(1).max(64),
  actor: z.string().min(1).max(64),
  /** Where heartbeats go. */
  supervisor: z.string(),
  token: z.string(),
  heartbeatMs: z.number().positive(),
  logLevel: z.enum(LEVELS),
  frameBytesMax: z.number().int().positive(),
  queuedBytesMax: z.number().int().positive(),
  /** The actor's own; checked by its own schema. */
  settings: z.unknown(),
});
export type ActorSettings = z.infer<typeof ActorSettings>;
