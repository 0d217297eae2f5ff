/** Runs an actor of a cluster as a child of the supervisor: a process or a Bun worker. */
import { z } from "zod";
import type { ActorKind } from "../actor.ts";
import { RunConfig } from "../config/config.ts";
import { importModules } from "../play/env-modules.ts";
import { boot } from "./boot.ts";

const settingsSchema = z.strictObject({ config: RunConfig, folder: z.string() });
export type RunActorSettings = z.infer<typeof settingsSchema>;

export function runActor(kind: ActorKind): Promise<void> {
  return boot({
    role: kind.role,
    settingsSchema,
    async start({ config, folder }, context) {
      await importModules(config);
      const host = Bun.isMainThread ? "process" : "worker";
      return kind.start(config, { ...context, folder, host, guest: null });
    },
  });
}
