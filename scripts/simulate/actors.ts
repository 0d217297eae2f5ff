/** Env servers, samplers and the metrics sink of a simulated run: the real ones, on what a simulated process is given. */
import { EnvServer } from "../../actors/env-server/env-server.ts";
import type { Log } from "../../actors/log.ts";
import { MetricsSink } from "../../actors/metrics-sink/metrics-sink.ts";
import { episodeOpener, tagOf } from "../../actors/play/envs-of-run.ts";
import { rulesOf } from "../../actors/play/play-episode.ts";
import { policyOf } from "../../actors/policy/policy-of-run.ts";
import { EnvServers } from "../../actors/sampler/env-connections.ts";
import { Sampler } from "../../actors/sampler/sampler.ts";
import { connectByRoster } from "../../actors/supervisor/roster.ts";
import { welcoming } from "../../actors/transport/handshake.ts";
import { connectForever } from "../../actors/transport/reconnect.ts";
import { SimulatedPolicy } from "./policy.ts";
import type { Start } from "./process.ts";
import { fullDisk } from "./simulate.ts";

const QUEUED_MAX = 200;
const FLUSH_MS = 200;
const TRIES_MAX = 3;
const BACKOFF_MS = { first: 50, max: 1000 };
/** Tickets that may wait at a sampler beyond its slots: those of another connection's end cross with new ones. */
const WAITING_MAX = 64;

export const startSink: Start = async (_, { life, stage, run, transport, listen, invariants }) => {
  const store = {
    write(batch: Parameters<typeof stage.store.write>[0]) {
      if (stage.disk.full) throw fullDisk();
      const episodes = stage.defect === "loses rows" ? batch.episodes.slice(1) : batch.episodes;
      stage.store.write({ ...batch, episodes });
    },
  };
  const sink = new MetricsSink({
    store,
    actor: life.name,
    clock: life.clock,
    flushMs: FLUSH_MS,
    queuedMax: QUEUED_MAX,
  });
  const listener = await transport.listen(listen, welcoming(run, sink));
  invariants.bounded({ life, name: "the sink's queue", length: () => sink.waiting, max: QUEUED_MAX });
  return {
    url: listener.address,
    doing: () => sink.doing(),
    async stop() {
      await listener.close();
      sink.flush();
    },
  };
};

export const startEnvServer: Start = async (config, { life, stage, run, transport, listen, invariants }) => {
  const { episodesMax, idleMs, answerMsMax } = config.envServer;
  const server = new EnvServer({
    find(name) {
      const open = episodeOpener(config, name);
      return (seeds) => {
        // An env that has to be waited for, or fails, now and then.
        if (life.world.uniform() < stage.troubles.envErrors) throw new Error("this env cannot be opened now");
        return open(seeds);
      };
    },
    episodesMax,
    idleMs,
    answerMsMax,
    clock: life.clock,
    warn: (text) => life.world.note(`${life.name}: ${text}`),
  });
  const listener = await transport.listen(listen, welcoming(run, server));
  invariants.bounded({ life, name: `${life.name}: episodes`, length: () => server.openCount, max: episodesMax });
  return {
    url: listener.address,
    doing: () => `${server.openCount} open episodes`,
    async stop() {
      await listener.close();
      await server.stop();
    },
  };
};

export const startSampler: Start = async (config, { life, stage, run, transport, invariants, fail }) => {
  const { clock, world } = life;
  const policy = new SimulatedPolicy(life, stage.memory, invariants, stage.troubles);
  const me = () => ({ actor: life.name, role: "sampler", url: null }) as const;
  const common = { transport, me, run, clock, uniform: world.uniform, backoffMs: BACKOFF_MS, helloDeadlineMs: 5000 };
  const envServers = new EnvServers({
    connect: (url, handler) => connectForever({ ...common, address: () => url, handler }),
    waitMsMax: config.transport.askDeadlineMs,
    clock,
  });
  const write: Log["info"] = (kind, text) => world.note(`${life.name}: ${kind}: ${text}`);
  const { slots } = config.sampler;
  const player = new Sampler({
    actor: life.name,
    slots,
    envServers,
    triesMax: TRIES_MAX,
    fail,
    dialogue: policyOf(config).dialogue,
    rules: rulesOf(config),
    policy: policy.methods,
    envTag: (name) => tagOf(config, name),
    askDeadlineMs: config.transport.askDeadlineMs,
    log: { debug: write, info: write, warning: write, error: write },
  });
  invariants.bounded({ life, name: `${life.name}: playing`, length: () => player.playing, max: slots });
  invariants.bounded({ life, name: `${life.name}: waiting`, length: () => player.waiting, max: WAITING_MAX });
  invariants.always(life, () => {
    if (policy.openCount > player.playing)
      invariants.broken(8, `${life.name} plays ${player.playing} episodes and holds ${policy.openCount} sequences`);
  });
  const learner = connectByRoster({ ...common, handler: player });
  return {
    url: null,
    doing: () => player.doing(),
    weights: () => player.weights,
    told(message) {
      if (message.type !== "roster") return;
      envServers.update(message);
      learner.at(message.learner);
    },
    async stop(reason) {
      player.stop(reason);
      learner.close(reason);
      envServers.close();
    },
  };
};
