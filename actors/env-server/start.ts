/** Starts an env server and its listener. */
import type { ActorContext, ActorKind, Running } from "../actor.ts";
import type { RunConfig } from "../config/config.ts";
import type { Meter } from "../metrics/meter.ts";
import { episodeOpener, type OpenEpisode } from "../play/envs-of-run.ts";
import { type HostHandler, welcoming } from "../transport/handshake.ts";
import { notTaken } from "../transport/refusals.ts";
import { EnvServer } from "./env-server.ts";

/** What the env server gets from its machine. A simulation passes ports of its own. */
export interface EnvServerPorts {
  episodeOpener(config: RunConfig, env: string): OpenEpisode;
}

export const envServer = {
  role: "env-server",
  async start(
    config: RunConfig,
    { run, clock, meter, transport, listen, log }: ActorContext,
    ports: EnvServerPorts = { episodeOpener },
  ): Promise<Running> {
    const envs = new Map<string, OpenEpisode>();
    const { episodesMax, idleMs, answerMsMax } = config.envServer;
    const server = new EnvServer({
      find: (name) => envs.getOrInsertComputed(name, () => ports.episodeOpener(config, name)),
      episodesMax,
      idleMs,
      answerMsMax,
      clock,
      warn: (text) => log.warning("env.close", text),
    });
    meter.declareActivities(["time/busy"], null);
    meter.depth("queue/playing", () => server.openCount);
    const listener = await transport.listen(listen, welcoming(run, measured(server, meter)));
    return {
      url: listener.address,
      doing: () => `${server.openCount} open episodes`,
      told(message) {
        // An env server connects to no actor of the roster.
        if (message.type !== "roster") throw notTaken("to an env server from the supervisor", message.type);
      },
      async stop() {
        await listener.close();
        await server.stop();
      },
    };
  },
} satisfies ActorKind;

/** Wraps the server, so that the meter counts the server's turns and measures how long the server works. */
function measured(server: EnvServer, meter: Meter): HostHandler {
  return {
    asked(peer, ask, who) {
      if (ask.type === "env.step") meter.count("speed/env_steps_per_second", 1);
      const answer = meter.duringCall("time/busy", () => server.asked(peer, ask, who));
      return answer instanceof Promise ? meter.during("time/busy", answer) : answer;
    },
    told: (peer, message, who) => server.told(peer, message, who),
  };
}
