/**
 * A run's saved policy in a program. The policy has its own thread. It writes replies, plays episodes and is evaluated. `bun run eval` and `bun
 * run serve` use this file. This file reads only the run's folder, and never connects to a run in progress.
 */
import { basename, resolve } from "node:path";
import { realClock } from "../actors/clock.ts";
import type { RunConfig } from "../actors/config/config.ts";
import { EnvConfig } from "../actors/config/env.ts";
import type { Tree } from "../actors/config/layers.ts";
import { fileBudgets } from "../actors/config/preset-files.ts";
import { ConfigError } from "../actors/errors.ts";
import { evaluatePolicy, type PolicyEvaluation } from "../actors/evaluate/evaluate.ts";
import { importEnvs, withLocalModules } from "../actors/play/env-modules.ts";
import { envAlone, playedEnvs } from "../actors/play/envs-of-run.ts";
import { completionsApp } from "../actors/policy/completions.ts";
import {
  type PolicyThread,
  readRunConfig,
  type SavedPolicy,
  savedPolicy,
  startPolicyThread,
} from "../actors/policy/saved-policy.ts";
import { Slots } from "../actors/policy/serve-counts.ts";
import { servedCard } from "../actors/policy/served-card.ts";
import { withMethods } from "../actors/process/worker-rpc.ts";
import type { PlayedOutcome } from "../actors/protocol.ts";
import { type Evaluation, evaluatePlayer, type PlayerEpisode } from "../envs/analysis/evaluate.ts";
import { envTag } from "../envs/registry.ts";
import { type Compat, type EnvTag, TagError } from "../envs/tag.ts";
import type { Message } from "../model/text/dialogue.ts";
import { checkData, checkPresent } from "./chosen-model.ts";

export interface PolicyOptions {
  /** Modules of the run's envs, as in `train`, except modules that the program has already imported. */
  readonly envs?: readonly string[];
  /** Name of one of the run's checkpoints, such as u000120. Default: the newest checkpoint. */
  readonly checkpoint?: string;
  /** Maximum number of replies and episodes in progress at once. Default: 16. */
  readonly slots?: number;
  /** Maximum number of replies that wait for a free slot; one more reply fails. Default: 256. */
  readonly queueMax?: number;
  /** Temperature of a reply whose request names none. Default: the run's `rollout.temperature`. */
  readonly temperature?: number;
  /** Bearer token that a request to `fetch` must have. Default: no token; `fetch` then answers only requests to a loopback name. */
  readonly token?: string | null;
  /** Called with problems that do not prevent the policy's use, such as a damaged checkpoint that `loadPolicy` skips. */
  readonly notice?: (text: string) => void;
}

export interface ReplyOptions {
  /** Default: the policy's temperature. */
  readonly temperature?: number;
  /** Seed of the random numbers that choose tokens; equal seeds and messages give equal replies. Default: a random seed. */
  readonly seed?: number;
  /** Maximum number of tokens of the reply. Default: the run's `rollout.replyTokensMax`, or the room left in the context if this is less. */
  readonly tokensMax?: number;
}

/** The boards of an evaluation. Defaults: the run's section `validate`; for a scripted player, 256 boards from seed 123. */
export interface Boards {
  readonly episodes?: number;
  /** Layout seed of the first board. Each further board has the next seed. */
  readonly seed?: number;
  /** Episodes per board. Default: 1. */
  readonly samples?: number;
}

export interface PlayerBoards extends Boards {
  /** Modules of envs, as in `train`. */
  readonly envs?: readonly string[];
  /** Called with each finished episode. */
  readonly record?: (episode: PlayerEpisode) => void;
}

export interface PolicyBoards extends Boards {
  /** Keys of the section `env`: another tag or other options. Default: the run's env. */
  readonly env?: Tree;
  readonly temperature?: number;
  /** Called after each episode, with the numbers of episodes played and solved so far. */
  readonly progress?: (played: number, solved: number) => void;
}

/** Defaults of `PolicyOptions`. */
export const SLOTS = 16;
export const QUEUE_MAX = 256;

/**
 * Loads a run's saved policy. The run may still be in progress.
 *
 * @param folder  the folder of the run
 * @throws {Error} in one line: an option is wrong, there is no run or checkpoint, or the checkpoint is damaged or of another run.
 */
export async function loadPolicy(folder: string, options: PolicyOptions = {}): Promise<Policy> {
  const { envs = [], checkpoint = null, slots = SLOTS, queueMax = QUEUE_MAX, notice = () => {} } = options;
  checkCount("slots", slots, 1);
  checkCount("queueMax", queueMax, 0);
  checkTemperature(options.temperature);
  if (options.token?.trim() === "") {
    throw new ConfigError(
      "token is empty, which would let everybody in; use a secret, or null to answer loopback names only",
    );
  }
  for (const specifier of envs) await importEnvs(specifier, process.cwd());
  const config = withLocalModules(readRunConfig(folder));
  const saved = await savedPolicy(folder, config, checkpoint);
  for (const { path, reason } of saved.skipped) notice(`${path} is not used: ${reason}`);
  return new Policy(folder, config, saved, await startPolicyThread(saved, config, slots, notice), options);
}

/** An answer of `Policy.complete`, or one piece of it. */
export interface Completion {
  readonly error?: { readonly message: string };
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly choices: readonly {
    readonly message?: { readonly content: string };
    readonly delta?: { readonly content?: string };
    readonly finish_reason: string | null;
  }[];
}

export class Policy {
  /** Config of the run that trained the policy. */
  readonly config: RunConfig;
  /** Name of the run that trained the policy. Requests to `fetch` use this name as the model's name. */
  readonly name: string;
  /** Name of the checkpoint that holds the policy. */
  readonly checkpoint: string;
  /** Rejects when the policy's thread dies. */
  readonly died: Promise<never>;
  /** Answers OpenAI's chat completions API (actors/policy/completions.ts). Serve this function, or give it to a client as its `fetch`. */
  readonly fetch: (request: Request) => Response | Promise<Response>;
  readonly #saved: SavedPolicy;
  readonly #thread: PolicyThread;
  readonly #methods: PolicyThread["methods"];
  readonly #options: PolicyOptions;
  #evaluations = 0;

  /** Call `loadPolicy` instead. */
  constructor(folder: string, config: RunConfig, saved: SavedPolicy, thread: PolicyThread, options: PolicyOptions) {
    const { slots = SLOTS, queueMax = QUEUE_MAX, temperature = config.rollout.temperature, token = null } = options;
    const { contextTokensMax, replyTokensMax } = config.rollout;
    this.config = config;
    this.name = basename(resolve(folder));
    this.checkpoint = basename(saved.path);
    this.died = thread.died;
    this.#saved = saved;
    this.#thread = thread;
    this.#methods = sharing(thread.methods, slots);
    this.#options = options;
    const app = completionsApp({
      policy: this.#methods,
      dialogue: saved.dialogue,
      model: this.name,
      slots,
      queueMax,
      card: servedCard(config),
      token,
      temperature,
      contextTokensMax,
      replyTokensMax,
      prefix: config.env.think ? "<think>" : "<answer>",
      wallClock: Date.now,
      freshSeed: () => crypto.getRandomValues(new Uint32Array(1))[0]!,
    });
    this.fetch = (request) => app.fetch(request);
  }

  /**
   * @param messages system messages may stand only before the first reply
   * @returns the text that an env would read: `<think>…</think><answer>…</answer>`
   * @throws {Error} if the messages cannot be encoded or are too long, or too many replies wait
   */
  async reply(messages: readonly Message[], { temperature, seed, tokensMax }: ReplyOptions = {}): Promise<string> {
    // JSON turns a number that is not finite into null, which would select the default.
    for (const [name, value] of Object.entries({ temperature, seed, tokensMax })) {
      if (value !== undefined && !Number.isFinite(value)) {
        throw new ConfigError(`${name} must be a finite number, got ${value}; leave it out for the default`);
      }
    }
    const response = await this.complete({ messages, temperature, seed, max_tokens: tokensMax });
    const { error, choices } = (await response.json()) as Completion;
    if (error !== undefined) throw new Error(`no reply: ${error.message}`);
    return choices[0]!.message!.content;
  }

  /** Asks `fetch` for a chat completion of this policy. @param body  body of the request, without the model's name */
  async complete(body: object, signal: AbortSignal | null = null): Promise<Response> {
    const { token = null } = this.#options;
    return this.fetch(
      new Request("http://localhost/v1/chat/completions", {
        method: "POST",
        headers: { "Content-Type": "application/json", ...(token !== null && { Authorization: `Bearer ${token}` }) },
        body: JSON.stringify({ ...body, model: this.name }),
        signal,
      }),
    );
  }

  /**
   * Plays one episode on the board of this layout seed. An evaluation that begins with this board has the same random numbers.
   *
   * @param env  a tag; null for the run's env, if the run has only one
   * @throws {Error} if the env or its options are unknown, or the episode could not be played
   */
  async episode(
    env: string | null,
    seed: number,
    boards: Omit<PolicyBoards, "episodes" | "seed" | "samples"> = {},
  ): Promise<PlayedOutcome> {
    const asked = { ...boards, env: { ...boards.env, ...(env !== null && { tag: env }) }, episodes: 1, seed };
    const names = playedEnvs(this.config).map(({ name }) => name);
    if (names.length > 1 && asked.env["tag"] === undefined) {
      throw new ConfigError(`this run plays several envs; name the env of the episode: ${names.join(", ")}`);
    }
    const [evaluation] = [...(await this.evaluate(asked)).values()];
    return evaluation!.played[0]!.outcome;
  }

  /**
   * Plays fixed boards. With the run's own boards, samples and temperature the result equals the run's validation at this checkpoint.
   *
   * @returns the result of each env of the run, by name; only the chosen env's result if `boards` chooses an env
   * @throws {Error} if the env or its options are unknown, or an episode could not be played
   */
  async evaluate(boards: PolicyBoards = {}): Promise<ReadonlyMap<string, PolicyEvaluation>> {
    const { slots = SLOTS, notice = () => {} } = this.#options;
    const { progress = () => {} } = boards;
    // Two evaluations at the same time may have episodes with equal names. This number makes the names of their sequences differ.
    const evaluation = ++this.#evaluations;
    const nameOf = (sequence: string) => `evaluation ${evaluation} ${sequence}`;
    return evaluatePolicy({
      config: this.evaluated(boards),
      policy: {
        open: (sequence) => this.#methods.open(nameOf(sequence)),
        reply: (sequence, request) => this.#methods.reply(nameOf(sequence), request),
        close: (sequence) => this.#methods.close(nameOf(sequence)),
      },
      dialogue: this.#saved.dialogue,
      weights: this.#thread.weights,
      slots,
      clock: realClock,
      warn: notice,
      progress,
    });
  }

  /** The run's config for an evaluation: `boards` overrides keys. @throws {ConfigError} */
  evaluated({ env = {}, ...boards }: PolicyBoards): RunConfig {
    const { validate: run } = this.config;
    const { episodes = run.episodes, seed = run.firstSeed, samples = 1, temperature = run.temperature } = boards;
    checkBoards(episodes, seed, samples);
    checkTemperature(temperature);
    const validate = { ...run, episodes, firstSeed: seed, groupSize: samples, temperature };
    const config = { ...this.config, env: envWithOverrides(this.config, env), validate };
    checkData(config);
    return config;
  }

  /** Ends the policy's thread. The thread keeps the program alive until then. */
  close(): void {
    this.#thread.stop();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** The thread's methods, for callers that together may open more sequences than the thread has slots. `open` waits for a free slot. */
function sharing(policy: PolicyThread["methods"], count: number): PolicyThread["methods"] {
  const slots = new Slots(count, Number.POSITIVE_INFINITY);
  const taken = new Map<string, () => void>();
  const { signal } = new AbortController();
  return withMethods(policy, {
    async open(sequence) {
      taken.set(sequence, await slots.take(signal));
      await policy.open(sequence).catch((error: unknown) => {
        release(sequence);
        throw error;
      });
    },
    close: (sequence) => policy.close(sequence).finally(() => release(sequence)),
  });

  function release(sequence: string): void {
    taken.get(sequence)?.();
    taken.delete(sequence);
  }
}

/** Scripted players that an env may have. */
export type PlayerName = "random" | "optimal" | "expert";

/**
 * Plays fixed boards with a scripted player.
 *
 * @param env  keys of the section `env`: its tag, options and actionsMax
 * @throws {ConfigError} if the env or its options are unknown, or the env has no such player
 */
export async function evaluate(
  player: PlayerName,
  env: Tree & { readonly tag: string },
  { envs = [], episodes = 256, seed = 123, samples = 1, ...record }: PlayerBoards = {},
): Promise<Evaluation & { readonly tag: EnvTag; readonly actionsMax: number }> {
  for (const specifier of envs) await importEnvs(specifier, process.cwd());
  const other = Object.keys(env).find((key) => !["tag", "options", "actionsMax"].includes(key));
  if (other !== undefined) {
    throw new ConfigError(`env.${other}: a player takes env.options and env.actionsMax only; leave it out`);
  }
  const tag = checkedTag(env.tag, env["options"]);
  const { actionsMax } = checkedEnv({ actionsMax: tag.actionsMax, ...fileBudgets(tag.tag), ...env });
  checkBoards(episodes, seed, samples);
  const found = tag[player];
  if (!found) {
    const has = tag.expert === undefined ? "random" : "expert or random";
    throw new ConfigError(`${tag.tag} has no ${player} player; use ${has}`);
  }
  const evaluation = await evaluatePlayer(tag, found, { episodes, seed, actionsMax, tries: samples, ...record });
  return { ...evaluation, tag, actionsMax };
}

/**
 * The run's env; `asked` overrides keys. If `asked` names another env, that env has its own options and budgets. For a run with a mix, an empty
 * `asked` gives the whole mix, and any other `asked` must have the name of an env of the mix as its tag.
 */
function envWithOverrides(config: RunConfig, asked: Tree): RunConfig["env"] {
  const { env: ran, prompt } = config;
  if (ran.mix.length > 0 && Object.keys(asked).length === 0) return ran;
  const trained = envOfMix(config, asked["tag"]);
  const name = asked["tag"] === undefined || ran.mix.length > 0 ? trained.tag : String(asked["tag"]);
  const same = name === trained.tag;
  const options = { ...(same ? trained.options : {}), ...(asked["options"] as Tree | undefined) };
  const tag = checkedTag(name, options, prompt.compat);
  const budgets = same ? {} : { ...standardBudgets(trained.tag), actionsMax: tag.actionsMax, ...fileBudgets(name) };
  const env = checkedEnv({ ...trained, ...budgets, ...asked, tag: name, options });
  if (ran.mix.length === 0) return env;
  // The env keeps its name in the mix, because two envs of a mix may have the same tag.
  const [alone] = playedEnvs({ env: { ...env, mix: [] } });
  return { ...env, mix: [{ ...alone!, name: String(asked["tag"]) }] };
}

/**
 * The defaults of the budgets that configs/env/TAG.yaml sets. An env other than the run's gets these defaults. Otherwise it would get, for
 * example, Bandit's limit of one turn.
 */
function standardBudgets(tag: string): Tree {
  const own = Object.keys(fileBudgets(tag));
  return Object.fromEntries(Object.entries(EnvConfig.parse({})).filter(([key]) => own.includes(key)));
}

/** One env of a run's mix, as if the run had played that env alone. */
function envOfMix(config: RunConfig, asked: unknown): RunConfig["env"] {
  if (config.env.mix.length === 0) return config.env;
  const names = playedEnvs(config).map(({ name }) => name);
  if (typeof asked === "string" && names.includes(asked)) return envAlone(config, asked);
  throw new ConfigError(
    `this run plays several envs; name one of them as env.tag, or leave all keys of env out: ${names.join(", ")}`,
  );
}

function checkedEnv(env: Tree): RunConfig["env"] {
  const parsed = EnvConfig.safeParse(env, { reportInput: true });
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.map((issue) => {
    return `${["env", ...issue.path].join(".")}: ${issue.message}, got ${Bun.inspect(issue.input, { compact: true })}`;
  });
  throw new ConfigError(faults.join("\n"));
}

/** @throws {ConfigError} for an unknown tag or option, and if the env's data are missing. */
export function checkedTag(name: string, options: unknown, compat: Compat = "strict"): EnvTag {
  try {
    const tag = envTag(name, options ?? {}, compat);
    checkPresent(tag);
    return tag;
  } catch (error) {
    throw error instanceof TagError ? new ConfigError(error.message) : error;
  }
}

/** Maximum number of episodes of an evaluation. All episodes are in memory until the evaluation ends. */
const EPISODES_MAX = 10_000_000;

/**
 * @throws {ConfigError} if a count is below 1, if there are more than `EPISODES_MAX` episodes in all, or if a board's seed is not from 0 to
 * 2^32 - 1
 */
export function checkBoards(episodes: number, seed: number, samples: number): void {
  checkCount("episodes", episodes, 1);
  checkCount("samples", samples, 1);
  checkCount("seed", seed, 0);
  if (episodes * samples > EPISODES_MAX)
    throw new ConfigError(
      `${episodes} episodes with ${samples} samples each: an evaluation has at most ${EPISODES_MAX} in all; lower one of them`,
    );
  if (seed + episodes <= 2 ** 32) return;
  const first = Math.max(0, 2 ** 32 - episodes);
  throw new ConfigError(
    `seed ${seed}: the last of ${episodes} boards would have a seed above ${2 ** 32 - 1}; start at ${first} or lower`,
  );
}

function checkTemperature(temperature: number | undefined): void {
  if (temperature === undefined || (temperature >= 0 && temperature < Number.POSITIVE_INFINITY)) return;
  throw new ConfigError(`temperature must be a finite number of at least 0, got ${temperature}`);
}

function checkCount(name: string, count: number, least: number): void {
  if (Number.isInteger(count) && count >= least) return;
  throw new ConfigError(`${name} must be a whole number of at least ${least}, got ${count}`);
}
