/**
 * The settings of an actor's process: one line of JSON, the first line of its standard input. The settings include the run's token. A list
 * of processes may show arguments and environment variables, so a process gets its settings in neither.
 */
import { z } from "zod";
import { LEVELS } from "../log.ts";

export const ActorSettings = z.strictObject({
  run: z.string().min(1).max(64),
  actor: z.string().min(1).max(64),
  supervisor: z.string(),
  token: z.string(),
  heartbeatMs: z.number().positive(),
  logLevel: z.enum(LEVELS),
  frameBytesMax: z.number().int().positive(),
  queuedBytesMax: z.number().int().positive(),
  /** Settings of the actor's role; the role's own schema checks them. */
  settings: z.unknown(),
});
export type ActorSettings = z.infer<typeof ActorSettings>;
