/**
 * Rules between several keys of a parsed config. Each error is one line, `key: text`. The text says what the config has, what is allowed and
 * what to do.
 */
import { envTag, envTags } from "../../envs/registry.ts";
import { TagError } from "../../envs/tag.ts";
import { firstRepeated } from "../../envs/text/repeats.ts";
import {
  boardsPerUpdate,
  groupsPerUpdate,
  type PlayedEnv,
  playedEnvs,
  sharedGroups,
  tagOf,
} from "../play/envs-of-run.ts";
import { isBroker, isEncrypted, isLoopback } from "../transport/address.ts";
import { ESTIMATOR_FACTS } from "./algorithms.ts";
import type { RunConfig } from "./config.ts";
import { TREATMENT_OF_RUNG } from "./health.ts";
import { WARM_START_FIRST_SEED } from "./model.ts";
import { tinkerRules } from "./tinker.ts";

export function brokenRules(config: RunConfig): string[] {
  return [
    ...envRules(config),
    ...modelRules(config),
    ...mixRules(config),
    ...rolloutRules(config),
    ...learnerRules(config),
    ...rungRules(config),
    ...covarianceRules(config),
    ...boardRules(config),
    ...thoughtRules(config),
    ...machineRules(config),
    ...joinRules(config),
    ...tinkerRules(config),
    ...servedSamplerRules(config),
  ];
}

/** Rules for samplers whose replies an inference server writes. */
function* servedSamplerRules({ sampler, engine, model, rollout }: RunConfig): Generator<string> {
  if (sampler.engine === "own") return;
  if (engine.name === "tinker")
    yield "sampler.engine: engine tinker samples on its own server; leave sampler.engine out";
  if (engine.url === null)
    yield `engine.url: sampler.engine ${sampler.engine} needs the address of its server; set engine.url`;
  if (model.path === null || model.lora.rank === 0)
    yield `model.lora.rank: sampler.engine ${sampler.engine} writes replies only with LoRA adapters; set model.path (--model) and a rank above 0`;
  if (rollout.temperature !== 1)
    yield `rollout.temperature: sampler.engine ${sampler.engine} reports log-probabilities at temperature 1, got ${rollout.temperature}; set it to 1`;
}

function* envRules(config: RunConfig): Generator<string> {
  const twice = firstRepeated(playedEnvs(config).map(({ name }) => name));
  if (twice !== undefined) yield `env.mix: two envs are named ${twice}; set a different name for one of them`;
  for (const [i, played] of playedEnvs(config).entries()) {
    const at = config.env.mix.length === 0 ? "env" : `env.mix.${i}`;
    yield* envFaults(config, played, at);
  }
}

/**
 * Limit on warmStart.boards x warmStart.plays for an env outside this process. At 1 ms an action, this many episodes take some minutes. Random
 * play opens more episodes of a board on which no play wins, up to warmStart.playsMax.
 */
const OUTSIDE_PLAYS_MAX = 20_000;

function* envFaults({ prompt, warmStart }: RunConfig, env: PlayedEnv, at: string): Generator<string> {
  try {
    const { demonstrator, external } = envTag(env.tag, env.options, prompt.compat);
    if (!warmStart.enabled) return;
    if (warmStart.imitate === "random-play") {
      const { boards, plays } = warmStart;
      if (external !== true || boards * plays <= OUTSIDE_PLAYS_MAX) return;
      const other = demonstrator === null ? "give the env a demonstrator" : "set warmStart.imitate to demonstrator";
      const most = Math.floor(OUTSIDE_PLAYS_MAX / plays);
      const fewer = most > 0 ? `set warmStart.boards to ${most} or less` : "lower warmStart.plays";
      yield `warmStart.imitate: random play would open ${boards * plays} episodes (warmStart.boards x plays) of ${env.tag}, which runs outside this process; at most ${OUTSIDE_PLAYS_MAX} are allowed; ${fewer}, or ${other}`;
    } else if (demonstrator === null)
      yield `warmStart.enabled: ${env.tag} has no scripted player to imitate; set warmStart.imitate to random-play, or warmStart.enabled to false`;
  } catch (error) {
    if (!(error instanceof TagError)) throw error;
    yield `${at}.${envTags().includes(env.tag) ? "options" : "tag"}: ${error.message}`;
  }
}

function* modelRules({ model, warmStart, engine }: RunConfig): Generator<string> {
  const { path, checkpoint, lora, pretrainedOnly, width, heads, kvHeads } = model;
  if (checkpoint !== null && warmStart.enabled)
    yield "warmStart.enabled: the warm start would overwrite the policy of model.checkpoint; set it to false, or leave model.checkpoint out";
  if (path !== null) {
    if (warmStart.enabled && engine.name !== "tinker")
      yield "warmStart.enabled: the warm start would overwrite the pretrained model; set it to false, or use --preset pretrained";
    return;
  }
  // With pretrainedOnly and no checkpoint, `checkRun` refuses a run without a pretrained model.
  if (lora.rank > 0 && (checkpoint !== null || !pretrainedOnly))
    yield "model.lora.rank: adapters need a pretrained model; set model.path, or set the rank to 0";
  if ((width / heads) % 2 !== 0)
    yield `model.heads: model.width / model.heads is ${width} / ${heads}; rotary positions need an even whole number; change one of them`;
  if (heads % kvHeads !== 0)
    yield `model.kvHeads: ${kvHeads} does not divide model.heads, ${heads}; change one of them`;
}

function* mixRules(config: RunConfig): Generator<string> {
  const { mix } = config.env;
  const { groupSize, onlineK, curriculum } = config.rollout;
  const all = groupsPerUpdate(config);
  try {
    if (mix.length > 0 && curriculum.by !== "difficulty") sharedGroups(playedEnvs(config), all);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    yield `env.mix: ${error.message}`;
  }
  if (curriculum.by !== "none") {
    if (mix.length < 2)
      yield "rollout.curriculum.by: a curriculum moves groups between the envs of env.mix; list at least 2 envs, or set it to none";
    if (groupSize < 2)
      yield "rollout.curriculum.by: a curriculum compares the episodes of one board; set rollout.groupSize to 2 or more";
    if (curriculum.groupsMin * mix.length > all)
      yield `rollout.curriculum.groupsMin: ${mix.length} envs with ${curriculum.groupsMin} groups each need ${curriculum.groupsMin * mix.length} groups, but an update has ${all}; lower it`;
  }
  if (onlineK > 1 && config.learner.minibatch !== null)
    yield `rollout.onlineK: Online-k divides the episodes of an update into ${onlineK} minibatches; leave out learner.minibatch`;
}

/** Maximum number of episodes of an update or of a validation of one env; the learner holds them all in memory. */
const EPISODES_MAX = 1_000_000;

function* rolloutRules({ rollout, validate, prompt }: RunConfig): Generator<string> {
  const counts: readonly (readonly [path: string, factor: string, count: number])[] = [
    ["rollout.groupSize", "rollout.groups", groupsPerUpdate({ rollout }) * rollout.groupSize],
    ["validate.groupSize", "validate.episodes", validate.episodes * validate.groupSize],
  ];
  for (const [path, factor, count] of counts) {
    if (count > EPISODES_MAX)
      yield `${path}: ${path} times ${factor} makes ${count} episodes; at most ${EPISODES_MAX} are allowed; lower one of them`;
  }
  if (prompt.context === "single_turn" && prompt.layout === "ragen-v1")
    yield "prompt.context: single_turn needs a summary message, and the layout ragen-v1 has none; set prompt.layout to ragen-v2 or compact";
  if (rollout.replyTokensMax < rollout.contextTokensMax) return;
  yield `rollout.replyTokensMax: a reply of ${rollout.replyTokensMax} tokens leaves no room for a prompt in rollout.contextTokensMax, ${rollout.contextTokensMax}; lower rollout.replyTokensMax, or raise rollout.contextTokensMax`;
}

function* learnerRules({ learner, rollout, prompt, health }: RunConfig): Generator<string> {
  const { estimator, mode, stalenessMax, minibatch, resampleRoundsMax, advantage, kl } = learner;
  const { groupSize } = rollout;
  const groups = groupsPerUpdate({ rollout });
  if (groupSize === 1) {
    const more = ", so groupSize must be at least 2; raise it";
    if (ESTIMATOR_FACTS[estimator].compares)
      yield `rollout.groupSize: ${estimator} compares episodes within a group${more}, or use the algorithm ppo`;
    if (resampleRoundsMax > 0)
      yield `rollout.groupSize: learner.resampleRoundsMax compares the episodes of a group${more}`;
    if (advantage.softReweight)
      yield `rollout.groupSize: learner.advantage.softReweight weights by a group's std${more}`;
  }
  const hasKl = kl.coefficient > 0 || health.ladder.includes("raise-kl");
  if (hasKl && kl.place === "loss" && kl.estimator === "k1" && prompt.compat === "strict")
    yield "learner.kl.estimator: in the loss the expected gradient of k1 is zero, so k1 adds only noise; use k3, or learner.kl.place reward; to repeat RAGEN's runs, set prompt.compat";
  if (mode === "async" && stalenessMax < 1)
    yield "learner.stalenessMax: async mode plays while it learns, so stalenessMax must be at least 1; to train only on the newest policy's episodes, set learner.mode to sync";
  if (minibatch !== null && minibatch > groups * groupSize)
    yield `learner.minibatch: ${minibatch} is more than the ${groups * groupSize} trajectories of an update (rollout.groups x rollout.groupSize); lower it`;
  yield* filterRules(learner.filter, rollout);
}

/** Refuses rungs of `health.ladder` that would change nothing, or would leave no group to train on. */
function* rungRules({ env, learner, rollout, health }: RunConfig): Generator<string> {
  const { epochs, minibatch } = learner;
  const trajectories = groupsPerUpdate({ rollout }) * rollout.groupSize;
  const isFresh = epochs === 1 && rollout.onlineK === 1 && (minibatch === null || minibatch >= trajectories);
  if (health.ladder.includes("fresh-rollouts") && isFresh)
    yield "health.ladder: an update takes one gradient step already, so fresh-rollouts would change nothing; leave it out, or set learner.epochs, learner.minibatch or rollout.onlineK";
  const { strategy } = learner.filter;
  if (health.ladder.includes("tighten-filter") && rollout.groupSize < 2 && strategy === "all")
    yield "health.ladder: this run has no filter, so tighten-filter ranks groups by the std of their rewards, and a group of 1 has no std; leave it out, or raise rollout.groupSize";
  const perTurn = playedEnvs({ env }).map((one) => one.actionsPerTurnMax ?? env.actionsPerTurnMax);
  if (health.ladder.includes("fewer-actions") && Math.max(...perTurn) === 1)
    yield "health.ladder: a turn has one action already, so fewer-actions would change nothing; leave it out, or raise env.actionsPerTurnMax";
}

/** Refuses bounds in the wrong order, and rungs of `TREATMENT_OF_RUNG` that would change nothing. */
function* covarianceRules({ learner, health }: RunConfig): Generator<string> {
  const [low, high] = learner.covariance.bounds;
  if (low >= high)
    yield `learner.covariance.bounds: the first must be below the second, got ${low} and ${high}; swap or change them`;
  for (const [rung, treatment] of Object.entries(TREATMENT_OF_RUNG)) {
    if (!health.ladder.some((one) => one === rung)) continue;
    const why =
      learner.estimator === "tpo"
        ? "the estimator tpo makes new advantages before each step, and no treatment of covariance changes them"
        : `learner.covariance.treatment is ${treatment} already`;
    if (learner.estimator === "tpo" || learner.covariance.treatment === treatment)
      yield `health.ladder: ${why}, so ${rung} would change nothing; leave it out`;
  }
}

function* filterRules(filter: RunConfig["learner"]["filter"], rollout: RunConfig["rollout"]): Generator<string> {
  const { groupSize } = rollout;
  const groups = groupsPerUpdate({ rollout });
  const { strategy, metric, value } = filter;
  if (strategy === "all") return;
  const path = "learner.filter.value";
  if (strategy === "top_k_abs") {
    if (!Number.isInteger(value) || value > groups)
      yield `${path}: top_k_abs keeps this many groups, a whole number from 1 to ${groups}, got ${value}; change it`;
  } else if (value > 1) {
    yield `${path}: ${strategy} takes a share above 0 and up to 1, got ${value}; change it`;
  } else if (strategy === "top_ratio" && Math.floor(value * groups) < 1) {
    // Round up: in floating point, 1 / 49 times 49 groups is less than one group.
    const least = Math.ceil(10_000 / groups) / 10_000;
    yield `${path}: ${value} of ${groups} groups is less than one group; raise it to ${least} or more`;
  }
  const ranksByReward = strategy === "top_ratio" || metric === "reward_variance";
  if (groupSize < 2 && (ranksByReward || metric === "entropy_variance"))
    yield `learner.filter.strategy: ${strategy} ranks groups by the std of their ${ranksByReward ? "rewards" : "entropies"}, and a group of 1 has no std; use strategy all`;
}

/** Validation needs boards that the policy was not trained on. */
function* boardRules({ validate, warmStart, rollout, learner }: RunConfig): Generator<string> {
  const validated: Range = [validate.firstSeed, validate.firstSeed + validate.episodes];
  const taught: Range = [WARM_START_FIRST_SEED, WARM_START_FIRST_SEED + warmStart.boards];
  const trained: Range = [
    rollout.firstSeed,
    rollout.firstSeed + learner.updates * boardsPerUpdate({ rollout, learner }),
  ];
  const overlap = (name: string, range: Range) =>
    `validate.firstSeed: the seeds ${validated[0]} to ${validated[1] - 1} overlap ${name}'s, ${range[0]} to ${range[1] - 1}; choose another validate.firstSeed`;
  if (warmStart.enabled && meet(validated, taught)) yield overlap("the warm start", taught);
  if (meet(validated, trained)) yield overlap("the rollout", trained);
  for (const [path, [, end]] of [
    ["validate.firstSeed", validated],
    ["warmStart.boards", taught],
    ["rollout.firstSeed", trained],
  ] as const) {
    if (end > 2 ** 32) yield `${path}: the last board's seed is above 2^32 - 1; lower it`;
  }
}

type Range = readonly [first: number, end: number];
const meet = (a: Range, b: Range) => a[0] < b[1] && b[0] < a[1];

/** Settings that judge or compare thoughts need replies with thoughts. env.reasoningWeight also needs an env that can judge thoughts. */
function* thoughtRules(config: RunConfig): Generator<string> {
  const { env, health } = config;
  if (health.collapse.everyUpdates > 0 && !env.think)
    yield "health.collapse.everyUpdates: env.think is false, so there are no thoughts to compare; set it to 0";
  if (env.reasoningWeight === 0) return;
  if (!env.think) yield "env.reasoningWeight: env.think is false, so there are no thoughts to judge; set it to 0";
  try {
    const unchecked = playedEnvs(config).find(({ name }) => tagOf(config, name).reasoning === undefined);
    if (unchecked !== undefined)
      yield `env.reasoningWeight: the env ${unchecked.tag} has no check of thoughts; set it to 0`;
  } catch (error) {
    // envRules reports this error.
    if (!(error instanceof TagError)) throw error;
  }
}

function* engineRules(engine: RunConfig["engine"]): Generator<string> {
  const { name, device, softwareAdapter, tf32, bfloat16Products } = engine;
  if (name === "eager" && (device === "cuda" || device === "webgpu"))
    yield `engine.device: engine eager computes on the CPU only; for ${device}, set engine.name to auto`;
  if (name === "tensorflow" && device === "webgpu")
    yield "engine.device: engine tensorflow computes on cpu or cuda; for webgpu, set engine.name to compiled or auto";
  if (softwareAdapter && device !== "webgpu")
    yield "engine.softwareAdapter: only engine.device webgpu reads it; set engine.device to webgpu, or leave it out";
  if (tf32 && !(name === "compiled" && device === "cuda"))
    yield "engine.tf32: only engine compiled on device cuda reads it; set engine.name to compiled and engine.device to cuda, or leave it out";
  if (bfloat16Products !== "none" && !(device === "cpu" && (name === "auto" || name === "compiled")))
    yield "engine.bfloat16Products: only engine compiled on device cpu rounds products; set engine.name to compiled and engine.device to cpu, or leave it out";
}

function* machineRules({ metrics, sampler, engine }: RunConfig): Generator<string> {
  yield* engineRules(engine);
  if (!isLoopback(metrics.host) && metrics.token === null)
    yield `metrics.host: ${metrics.host} can be reached from other machines; set metrics.token, or use 127.0.0.1`;
  if (sampler.count > 1024)
    yield `sampler.count: ${sampler.count} is more than the 1024 processes allowed on one machine; lower it, or let other machines lend samplers`;
}

/** Addresses, tokens and certificates. */
function* joinRules(config: RunConfig): Generator<string> {
  const { actors, join, transport, sampler, envServer } = config;
  const withPassword = [...passwordRules(config)];
  if (withPassword.length > 0) return yield* withPassword;
  for (const [path, address] of [
    ["transport.listen", transport.listen],
    ["join.listen", join.listen ?? "ws://127.0.0.1:0"],
  ] as const) {
    if (URL.canParse(address) && /^wss?:$/.test(new URL(address).protocol)) continue;
    if (path === "transport.listen" && isBroker(address)) continue;
    const orBroker = path === "transport.listen" ? ", or nats://HOST:PORT of a broker" : "";
    yield `${path}: ${address} is not an address; write ws://HOST:PORT${orBroker}`;
    return;
  }
  yield* isBroker(transport.listen) ? brokerRules(config) : loopbackRules(transport);
  const tokens = [join.token, join.samplerToken, join.envServerToken].filter((token) => token !== null);
  if (new Set(tokens).size < tokens.length)
    yield "join.token: two of join.token, join.samplerToken and join.envServerToken are equal, so a token for one role would allow both; make them different";
  const open = join.listen !== null && !isLoopback(new URL(join.listen).hostname);
  if (open && tokens.length === 0)
    yield `join.listen: ${join.listen} can be reached from other machines; set join.token (or samplerToken, envServerToken), or use 127.0.0.1`;
  for (const [path, count] of [
    ["sampler.count", sampler.count],
    ["envServer.count", envServer.count],
  ] as const) {
    if (count > 0) continue;
    if (actors !== "processes")
      yield `${path}: the count is 0, and with actors ${actors} no other machine can lend any; raise the count`;
    else if (join.listen === null)
      yield `${path}: the count is 0, and with join.listen null no other machine can lend any; raise the count, or set join.listen`;
  }
  const encrypted = join.listen !== null && isEncrypted(join.listen);
  if (encrypted && (join.certFile === null || join.keyFile === null))
    yield "join.listen: wss:// needs a certificate; set join.certFile and join.keyFile";
  const certificates = join.certFile ?? join.keyFile ?? join.clientCaFile;
  if (!encrypted && certificates !== null)
    yield `join.listen: ${certificates} is not read without TLS; change the address to wss://, or leave the file out`;
}

/** The run's folder stores addresses, so an address must not contain a password. The error's text does not repeat the password. */
function* passwordRules({ engine, join, transport }: RunConfig): Generator<string> {
  for (const [path, address, instead] of [
    ["transport.listen", transport.listen, ", and set transport.token"],
    ["join.listen", join.listen, ", and set join.token"],
    ["engine.url", engine.url, ""],
  ] as const) {
    if (address === null || !URL.canParse(address)) continue;
    const { username, password } = new URL(address);
    if (username + password === "") continue;
    yield `${path}: the address has a user or a password, which no actor sends; leave it out${instead}`;
  }
}

function* loopbackRules({ listen }: RunConfig["transport"]): Generator<string> {
  if (isLoopback(new URL(listen).hostname)) return;
  yield `transport.listen: ${listen} can be reached from other machines, but only this machine's actors use it; use 127.0.0.1, and join.listen for other machines`;
}

/** A process with the broker's token reaches every actor that is connected to the broker. */
function* brokerRules({ join, transport: { listen, token } }: RunConfig): Generator<string> {
  const { hostname, pathname } = new URL(listen);
  if (hostname === "" || !["", "/"].includes(pathname))
    yield `transport.listen: ${listen} is not the address of a broker; write nats://HOST:PORT`;
  if (!isLoopback(hostname) && token === null)
    yield `transport.listen: ${listen} can be reached from other machines; set transport.token, which the broker asks for`;
  if (join.samplerToken !== null || join.envServerToken !== null) {
    const path = join.samplerToken === null ? "join.envServerToken" : "join.samplerToken";
    yield `${path}: a broker cannot limit a token to one role; use join.token`;
  }
}
