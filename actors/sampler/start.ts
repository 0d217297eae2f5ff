/** Starts a sampler: its policy, and its connections to the learner and to env servers. */
import type { EnvTag } from "../../envs/tag.ts";
import type { ActorContext, ActorKind, Running } from "../actor.ts";
import type { RunConfig } from "../config/config.ts";
import { askDeadlineMs } from "../config/rollout.ts";
import { samplerEngine, thisMachine } from "../engine/choice.ts";
import type { Meter } from "../metrics/meter.ts";
import { tagOf } from "../play/envs-of-run.ts";
import { rulesOf } from "../play/play-episode.ts";
import { policyOf } from "../policy/pretrained.ts";
import { inThisThread, type Remote, startThread, type Thread, withMethods } from "../process/worker-rpc.ts";
import { connectByRoster } from "../supervisor/roster.ts";
import { tinkerPolicy } from "../tinker/policy.ts";
import { openServer } from "../tinker/server.ts";
import { connectForever } from "../transport/reconnect.ts";
import { notTaken } from "../transport/refusals.ts";
import { EnvServerConnections } from "./env-connections.ts";
import type { PolicyMethods } from "./policy.ts";
import { Sampler } from "./sampler.ts";
import { servedPolicy } from "./served-policy.ts";

/** Limit on the tries of one episode on one sampler. */
const TRIES_MAX = 3;

/** What the sampler gets from its machine. A simulation passes ports of its own. */
export interface SamplerPorts {
  /** Starts the policy, which has no weights yet. */
  startPolicy(config: RunConfig, context: ActorContext): Promise<Thread<PolicyMethods>>;
}

export const sampler = {
  role: "sampler",
  async start(config: RunConfig, context: ActorContext, ports: SamplerPorts = { startPolicy }): Promise<Running> {
    const { actor, run, clock, transport, uniform, log, meter } = context;
    const { dialogue } = policyOf(config);
    const thread = await ports.startPolicy(config, context);
    meter.declareActivities(["time/weights", "time/policy", "time/env"], "time/tickets");
    const { slots } = config.sampler;
    const weightsBetween = isServed(config) ? "episodes" : config.sampler.weightsBetween;
    const me = () => ({ actor, role: "sampler", url: null }) as const;
    const common = { transport, me, run, clock, uniform };
    const envConnections = new EnvServerConnections({
      connect: (url, handler) => connectForever({ ...common, address: () => url, handler }),
      waitMsMax: askDeadlineMs(config),
      clock,
    });
    const tags = new Map<string, EnvTag>();
    const player = new Sampler({
      actor,
      slots,
      weightsBetween,
      dialogue,
      envConnections,
      log,
      triesMax: TRIES_MAX,
      rules: rulesOf(config),
      policy: measured(thread.methods, meter),
      meter,
      envTag: (name) => tags.getOrInsertComputed(name, () => tagOf(config, name)),
      askDeadlineMs: askDeadlineMs(config),
      fail: context.fail,
    });
    meter.depth("queue/playing", () => player.playing);
    meter.depth("queue/waiting", () => player.waiting);
    meter.depth("weights/version", () => player.weights?.version ?? null);
    const learner = connectByRoster({ ...common, handler: player });
    return {
      url: null,
      doing: () => player.doing(),
      workingMs: () => thread.workingMs(),
      weights: () => player.weights,
      told(message) {
        if (message.type !== "roster") throw notTaken("to a sampler from the supervisor", message.type);
        envConnections.update(message);
        learner.at(message.learner);
      },
      async stop(reason) {
        player.stop(reason);
        learner.close(reason);
        envConnections.close();
        thread.stop();
      },
    };
  },
} satisfies ActorKind;

/** True if a server writes the replies. In this case the weights change only between episodes. */
const isServed = ({ engine, sampler }: RunConfig): boolean => engine.name === "tinker" || sampler.engine !== "own";

async function startPolicy(
  config: RunConfig,
  { host, guest, token, fail, clock, log }: ActorContext,
): Promise<Thread<PolicyMethods>> {
  const ports = { clock, fetch, warn: (text: string) => log.warning("server", text) };
  if (config.engine.name === "tinker") return tinkerPolicy(openServer(config, ports));
  const { model } = policyOf(config);
  const weights = { base: config.model.path, model, token: guest?.token ?? token, guest };
  if (config.sampler.engine !== "own") {
    log.warning("server", `sampler.engine ${config.sampler.engine} has never been tried with a real server`);
    return servedPolicy(config.sampler.engine, openServer(config, ports, "/"), weights);
  }
  // This thread imports policy.ts only if it computes the policy: usually another thread does.
  const thread =
    host === "one-thread"
      ? inThisThread((await import("./policy.ts")).policyMethods())
      : startThread<PolicyMethods>(new URL("./policy-worker.ts", import.meta.url), fail);
  await thread.methods.start({
    ...weights,
    engine: samplerEngine(config, thisMachine, guest !== null),
    slots: config.sampler.slots,
    capacity: config.rollout.contextTokensMax,
    halfCaches: config.sampler.precision === "half",
  });
  return thread;
}

/** Wraps the policy, so that the meter measures its time and counts the tokens that it writes. */
function measured(policy: Remote<PolicyMethods>, meter: Meter): Remote<PolicyMethods> {
  return withMethods(policy, {
    load: (...args) => meter.during("time/weights", policy.load(...args)),
    async reply(...args) {
      const reply = await meter.during("time/policy", policy.reply(...args));
      meter.count("speed/actor_tokens_per_second", reply.tokens.length);
      return reply;
    },
  });
}
