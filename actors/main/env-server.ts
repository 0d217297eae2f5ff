/** Entry of an env server process. */
import { z } from "zod";
import { openEpisode } from "../../envs/episode.ts";
import { envTag } from "../../envs/registry.ts";
import type { EnvTag } from "../../envs/tag.ts";
import { EnvServer } from "../env-server.ts";
import { welcoming } from "../transport/handshake.ts";
import { boot } from "./boot.ts";

const settingsSchema = z.strictObject({
  /** "ws://127.0.0.1:0" */
  listen: z.string(),
  episodesMax: z.number().int().positive(),
  idleMs: z.number().positive(),
  /** Reproduce RAGEN's shared random streams too. */
  compat: z.boolean(),
  /** Options of envs, by tag; a tag that is not named has its defaults. */
  options: z.record(z.string(), z.unknown()),
  rules: z.strictObject({
    turnsMax: z.number().int().positive(),
    actionsMax: z.number().int().positive(),
    actionsPerTurnMax: z.number().int().positive(),
    formatPenalty: z.number().nonpositive(),
    think: z.boolean(),
  }),
});
export type EnvServerSettings = z.infer<typeof settingsSchema>;

await boot({
  role: "env-server",
  settingsSchema,
  async start({ listen, episodesMax, idleMs, compat, options, rules }, { run, clock, transport }) {
    const tags = new Map<string, EnvTag>();
    const server = new EnvServer({
      find(name) {
        const tag = tags.get(name) ?? envTag(name, options[name], compat);
        tags.set(name, tag);
        return (seeds) => openEpisode(tag.open(seeds), rules);
      },
      episodesMax,
      idleMs,
      clock,
    });
    const listener = await transport.listen(listen, welcoming(run, server));
    return {
      url: listener.address,
      doing: () => `${server.openCount} open episodes`,
      async stop() {
        await listener.close();
        server.stop();
      },
    };
  },
});
