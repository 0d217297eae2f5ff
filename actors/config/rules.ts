/** Rules that span several keys. Each says what is wrong with which numbers, and what to do. Parsed configs only. */
import { envTag, envTags } from "../../envs/registry.ts";
import { TagError } from "../../envs/tag.ts";
import {
  boardsPerUpdate,
  groupsPerUpdate,
  type PlayedEnv,
  playedEnvs,
  sharedGroups,
  tagOf,
} from "../play/envs-of-run.ts";
import { isBroker, isLoopback } from "../transport/address.ts";
import type { RunConfig } from "./config.ts";

export interface Fault {
  /** The key to point at. */
  readonly path: string;
  readonly text: string;
}

/** Every rule that a config breaks; empty if it can be run. */
export function brokenRules(config: RunConfig): Fault[] {
  return [
    ...envRules(config),
    ...modelRules(config),
    ...mixRules(config),
    ...rolloutRules(config),
    ...learnerRules(config),
    ...boardRules(config),
    ...waitRules(config),
    ...healthRules(config),
    ...reasoningRules(config),
    ...machineRules(config),
    ...joinRules(config),
  ];
}

function* envRules(config: RunConfig): Generator<Fault> {
  const names = playedEnvs(config).map(({ name }) => name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) {
    yield { path: "env.mix", text: `two envs are called ${twice}; give one of them a name of its own` };
  }
  for (const [i, played] of playedEnvs(config).entries()) {
    const at = config.env.mix.length === 0 ? "env" : `env.mix.${i}`;
    yield* envFaults(config, played, at);
  }
}

function* envFaults({ prompt, warmStart }: RunConfig, env: PlayedEnv, at: string): Generator<Fault> {
  try {
    const { demonstrator } = envTag(env.tag, env.options, prompt.compat !== "strict");
    if (demonstrator !== null || !warmStart.enabled) return;
    yield {
      path: "warmStart.enabled",
      text: `nobody can teach ${env.tag}; set it to false and start from a checkpoint`,
    };
  } catch (error) {
    if (!(error instanceof TagError)) throw error;
    yield { path: envTags.includes(env.tag) ? `${at}.options` : `${at}.tag`, text: error.message };
  }
}

function* modelRules({ model, warmStart }: RunConfig): Generator<Fault> {
  const { path, lora, width, heads, kvHeads } = model;
  if (path !== null) {
    const text =
      "a pretrained model needs no lessons, and would forget what it knows; set it to false, or take --preset pretrained";
    if (warmStart.enabled) yield { path: "warmStart.enabled", text };
    return;
  }
  if (lora.rank > 0) {
    const text = "adapters need a model to adapt; name its folder in model.path, or set the rank to 0";
    yield { path: "model.lora.rank", text };
  }
  if (width % heads !== 0 || (width / heads) % 2 !== 0) {
    const text = `${heads} heads do not split a width of ${width} into even parts; rotary positions need them even`;
    yield { path: "model.heads", text };
  }
  if (heads % kvHeads !== 0) yield { path: "model.kvHeads", text: `${kvHeads} does not divide model.heads, ${heads}` };
}

function* mixRules(config: RunConfig): Generator<Fault> {
  const { mix } = config.env;
  const { groupSize, onlineK, curriculum } = config.rollout;
  const all = groupsPerUpdate(config);
  try {
    if (mix.length > 0) sharedGroups(playedEnvs(config), all);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    yield { path: "env.mix", text: error.message };
  }
  if (curriculum.by !== "none") {
    if (mix.length < 2) {
      const text = "a curriculum moves groups among the envs of env.mix; give it at least 2, or choose none";
      yield { path: "rollout.curriculum.by", text };
    }
    if (groupSize < 2) {
      const text = "a curriculum measures how episodes of one board differ; set rollout.groupSize to 2 or more";
      yield { path: "rollout.curriculum.by", text };
    }
    if (curriculum.groupsMin * mix.length > all) {
      const text = `${mix.length} envs with ${curriculum.groupsMin} groups each are more than the ${all} of an update`;
      yield { path: "rollout.curriculum.groupsMin", text };
    }
  }
  if (onlineK > 1 && config.learner.minibatch !== null) {
    const text = `Online-k cuts what was played into ${onlineK} minibatches; leave out learner.minibatch`;
    yield { path: "rollout.onlineK", text };
  }
}

function* rolloutRules({ rollout, prompt }: RunConfig): Generator<Fault> {
  if (prompt.context === "single_turn" && prompt.layout === "ragen-v1") {
    yield { path: "prompt.context", text: "ragen-v1 has no message that sums up; take the layout ragen-v2 or compact" };
  }
  if (rollout.replyTokensMax < rollout.contextTokensMax) return;
  const text = `a reply of ${rollout.replyTokensMax} tokens leaves no room for a prompt in rollout.contextTokensMax, ${rollout.contextTokensMax}`;
  yield { path: "rollout.replyTokensMax", text };
}

/** Estimators that compare episodes of a group. */
const GROUP_ESTIMATORS: readonly string[] = ["grpo", "dr-grpo", "rloo", "reinforce++-baseline", "gigpo", "hybrid"];

function* learnerRules({ learner, rollout, prompt, health }: RunConfig): Generator<Fault> {
  const { estimator, mode, stalenessMax, minibatch, resampleRoundsMax, advantage, kl } = learner;
  const { groupSize } = rollout;
  const groups = groupsPerUpdate({ rollout });
  if (groupSize < 2) {
    const path = "rollout.groupSize";
    if (GROUP_ESTIMATORS.includes(estimator)) {
      const text = `${estimator} compares episodes within a group, so groupSize must be at least 2; use ppo for groups of 1`;
      yield { path, text };
    }
    if (resampleRoundsMax > 0)
      yield { path, text: "learner.resampleRoundsMax looks for groups that differ within; raise it" };
    if (advantage.softReweight)
      yield { path, text: "learner.advantage.softReweight weighs by a group's std; raise it" };
  }
  const hasKl = kl.coefficient > 0 || health.ladder.includes("raise-kl");
  if (hasKl && kl.place === "loss" && kl.estimator === "k1" && prompt.compat === "strict") {
    const text =
      "as a loss k1 has no gradient on average; use k3, or place: reward, or prompt.compat for RAGEN's own runs";
    yield { path: "learner.kl.estimator", text };
  }
  if (mode === "async" && stalenessMax < 1) {
    const text =
      "async mode plays while it learns, so stalenessMax must be at least 1; use sync for strictly on-policy";
    yield { path: "learner.stalenessMax", text };
  }
  if (minibatch !== null && minibatch > groups * groupSize) {
    const text = `${minibatch} is more than the ${groups * groupSize} trajectories of an update (rollout.groups x rollout.groupSize)`;
    yield { path: "learner.minibatch", text };
  }
  yield* filterRules(learner.filter, rollout);
}

function* filterRules(filter: RunConfig["learner"]["filter"], rollout: RunConfig["rollout"]): Generator<Fault> {
  const { groupSize } = rollout;
  const groups = groupsPerUpdate({ rollout });
  const { strategy, metric, value } = filter;
  if (strategy === "all") return;
  const path = "learner.filter.value";
  if (strategy === "top_k_abs") {
    if (!Number.isInteger(value) || value > groups) {
      yield { path, text: `top_k_abs keeps a count of groups from 1 to ${groups}, got ${value}` };
    }
  } else if (value > 1) {
    yield { path, text: `${strategy} takes a share above 0 and up to 1, got ${value}` };
  } else if (strategy === "top_ratio" && Math.floor(value * groups) < 1) {
    yield { path, text: `${value} of ${groups} groups is none; raise it to ${1 / groups} or more` };
  }
  if (groupSize < 2 && (strategy === "top_ratio" || metric === "reward_variance")) {
    const text = `${strategy} ranks groups by the std of their rewards, and a group of 1 has none; use strategy all`;
    yield { path: "learner.filter.strategy", text };
  }
}

/** Boards of validation must be new to the policy. */
function* boardRules({ validate, warmStart, rollout, learner }: RunConfig): Generator<Fault> {
  const validated: Range = [validate.firstSeed, validate.firstSeed + validate.episodes];
  const taught: Range = [warmStart.firstSeed, warmStart.firstSeed + warmStart.boards];
  const trained: Range = [
    rollout.firstSeed,
    rollout.firstSeed + learner.updates * boardsPerUpdate({ rollout, learner }),
  ];
  const overlap = (name: string, range: Range) =>
    `boards ${validated[0]} to ${validated[1] - 1} meet ${name}'s ${range[0]} to ${range[1] - 1}; validate on boards of their own`;
  if (warmStart.enabled && meet(validated, taught)) {
    yield { path: "validate.firstSeed", text: overlap("the warm start", taught) };
  }
  if (meet(validated, trained)) yield { path: "validate.firstSeed", text: overlap("the rollout", trained) };
  if (Math.max(validated[1], taught[1], trained[1]) > 2 ** 32) {
    yield { path: "rollout.firstSeed", text: "the boards' seeds pass 2^32 - 1; start lower" };
  }
}

type Range = readonly [first: number, end: number];
const meet = (a: Range, b: Range) => a[0] < b[1] && b[0] < a[1];

/** Who waits longer must not be the one who is waited for. */
function* waitRules({ envServer, transport }: RunConfig): Generator<Fault> {
  if (envServer.answerMsMax < transport.askDeadlineMs) return;
  const text = `samplers wait ${transport.askDeadlineMs} ms for an answer (transport.askDeadlineMs); an env server must give up sooner, got ${envServer.answerMsMax}`;
  yield { path: "envServer.answerMsMax", text };
}

/** A weight on thoughts needs thoughts, and somebody who can judge them. */
function* reasoningRules(config: RunConfig): Generator<Fault> {
  const { env } = config;
  if (env.reasoningWeight === 0) return;
  const path = "env.reasoningWeight";
  if (!env.think) yield { path, text: "with env.think false there are no thoughts to judge; set it to 0" };
  try {
    const mute = playedEnvs(config).find(({ name }) => tagOf(config, name).reasoning === undefined);
    if (mute !== undefined) yield { path, text: `nobody can judge thoughts about ${mute.tag}; set it to 0` };
  } catch (error) {
    // What is wrong with an env is said by its own rule.
    if (!(error instanceof TagError)) throw error;
  }
}

function* healthRules({ health, env }: RunConfig): Generator<Fault> {
  if (health.collapse.everyUpdates > 0 && !env.think) {
    const text = "it compares thoughts, and with env.think false there are none; set it to 0";
    yield { path: "health.collapse.everyUpdates", text };
  }
}

function* engineRules({ name, device, softwareAdapter }: RunConfig["engine"]): Generator<Fault> {
  if (name === "eager" && (device === "cuda" || device === "webgpu")) {
    yield { path: "engine.device", text: `engine eager computes on the CPU; for ${device} choose engine auto` };
  }
  if (name === "tensorflow" && device === "webgpu") {
    const text = "engine tensorflow computes on cpu or cuda; for webgpu choose engine compiled or auto";
    yield { path: "engine.device", text };
  }
  if (softwareAdapter && device !== "webgpu") {
    yield { path: "engine.softwareAdapter", text: "only device webgpu has adapters; choose it, or set this to false" };
  }
}

function* machineRules({ supervisor, metrics, sampler, engine }: RunConfig): Generator<Fault> {
  yield* engineRules(engine);
  const { heartbeatMs, heartbeatDeadlineMs } = supervisor;
  if (heartbeatDeadlineMs < 2 * heartbeatMs) {
    const text = `${heartbeatDeadlineMs} ms allows not even 2 heartbeats of ${heartbeatMs} ms; raise it`;
    yield { path: "supervisor.heartbeatDeadlineMs", text };
  }
  if (!isLoopback(metrics.host) && metrics.token === null) {
    const text = `${metrics.host} can be reached by others, so metrics.token must be set; or keep 127.0.0.1`;
    yield { path: "metrics.host", text };
  }
  if (sampler.count > 1024) {
    yield { path: "sampler.count", text: `${sampler.count} processes on one machine; join from others instead` };
  }
}

/** Who may come in, and how. */
function* joinRules({ join, transport, sampler, envServer }: RunConfig): Generator<Fault> {
  for (const [path, address] of [
    ["transport.listen", transport.listen],
    ["join.listen", join.listen ?? "ws://127.0.0.1:0"],
  ] as const) {
    if (URL.canParse(address) && /^wss?:$/.test(new URL(address).protocol)) continue;
    if (path === "transport.listen" && isBroker(address)) continue;
    const orBroker = path === "transport.listen" ? ", or nats://HOST:PORT of a broker" : "";
    yield { path, text: `${address} is no address; write ws://HOST:PORT${orBroker}` };
    return;
  }
  yield* isBroker(transport.listen) ? brokerRules({ join, transport }) : hereRules(transport);
  const tokens = [join.token, join.samplerToken, join.envServerToken].filter((token) => token !== null);
  if (new Set(tokens).size < tokens.length) {
    yield { path: "join.token", text: "two of join's tokens are the same, so one of them would allow too much" };
  }
  const open = join.listen !== null && !isLoopback(new URL(join.listen).hostname);
  if (open && tokens.length === 0) {
    const text = `${join.listen} can be reached by others, so join.token (or samplerToken, envServerToken) must be set; or keep 127.0.0.1`;
    yield { path: "join.listen", text };
  }
  for (const [path, count] of [
    ["sampler.count", sampler.count],
    ["envServer.count", envServer.count],
  ] as const) {
    if (count > 0 || join.listen !== null) continue;
    yield { path, text: "0 here, and nobody can lend any: join.listen is null" };
  }
  const encrypted = join.listen?.startsWith("wss:") ?? false;
  if (encrypted && (join.certFile === null || join.keyFile === null)) {
    yield { path: "join.listen", text: "wss:// needs join.certFile and join.keyFile" };
  }
  const certificates = join.certFile ?? join.keyFile ?? join.clientCaFile;
  if (!encrypted && certificates !== null) {
    yield { path: "join.listen", text: `${certificates} is never read without TLS; listen on wss://` };
  }
}

function* hereRules({ listen }: RunConfig["transport"]): Generator<Fault> {
  if (isLoopback(new URL(listen).hostname)) return;
  const text = `${listen} can be reached by others; actors of this machine meet on 127.0.0.1, others join at join.listen`;
  yield { path: "transport.listen", text };
}

/** Whoever knows a broker's token reaches everyone at the broker. */
function* brokerRules({ join, transport: { listen, token } }: Pick<RunConfig, "join" | "transport">): Generator<Fault> {
  const { hostname, pathname } = new URL(listen);
  if (hostname === "" || !["", "/"].includes(pathname)) {
    yield { path: "transport.listen", text: `${listen} should name a broker only: nats://HOST:PORT` };
  }
  if (!isLoopback(hostname) && token === null) {
    yield {
      path: "transport.listen",
      text: `${listen} can be reached by others; set transport.token, which it asks for`,
    };
  }
  if (join.samplerToken !== null || join.envServerToken !== null) {
    const path = join.samplerToken === null ? "join.envServerToken" : "join.samplerToken";
    yield { path, text: "at a broker nobody can be held to one role; use join.token" };
  }
}
