/**
 * `bun run eval`: plays fixed boards with the random player, the best one or a run's policy. Shows for each env how good it is beside
 * chance and the best possible on the same boards, with 95 % intervals, and why a policy's episodes stopped and failed.
 */
import { appendFileSync, existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { realClock } from "../actors/clock.ts";
import { type RunConfig, runKeys } from "../actors/config/config.ts";
import { EnvConfig } from "../actors/config/env.ts";
import type { Tree } from "../actors/config/layers.ts";
import { entropyOf, evaluatePolicy } from "../actors/evaluate/evaluate.ts";
import { withLocalModules } from "../actors/play/env-modules.ts";
import { envsText, episodeRules, playedEnvs, tagOf, tooSmallBudgets } from "../actors/play/envs-of-run.ts";
import type { PlayedTicket } from "../actors/play/finished-ticket.ts";
import { readRunConfig, savedPolicy, startSavedPolicy } from "../actors/policy/saved-policy.ts";
import { startThread } from "../actors/process/worker-rpc.ts";
import type { PolicyMethods } from "../actors/sampler/policy.ts";
import { evaluatePlayer, type PlayerEpisode } from "../envs/analysis/evaluate.ts";
import { envTag, envTags } from "../envs/registry.ts";
import type { EnvTag } from "../envs/tag.ts";
import { checkData, checkedTag, envOverrides } from "./cli/env-choice.ts";
import { type Command, helped, type Override, parseOptions, UsageError } from "./cli/options.ts";
import { fileBudgets } from "./cli/presets.ts";
import { say, warn } from "./cli/say.ts";
import { acrossEnvs, type Evaluated } from "./eval/across.ts";
import { hostedFlags, hostedResult, isHosted, usageLine } from "./eval/hosted.ts";
import { progressLine } from "./eval/progress.ts";
import { besideOf, evaluationData, evaluationReport, type Result } from "./eval/report.ts";

const command = {
  name: "eval",
  flags: {
    env: {
      type: "text",
      value: "TAGS",
      text: `What to play, with commas between several: ${envTags().join(", ")}`,
      key: "env.tag",
    },
    policy: {
      type: "text",
      value: "WHO",
      text: "random, optimal, expert, the folder of a run, openai:MODEL, anthropic:MODEL; with commas between several",
    },
    checkpoint: { type: "text", value: "NAME", text: "One of the run's, as u000120; its newest if left out" },
    episodes: { type: "count", value: "N", text: "Boards, one episode each; the run's, or 256, if left out" },
    seed: { type: "count", value: "S", text: "Layout seed of the first board; the run's, or 123, if left out" },
    samples: { type: "count", value: "N", text: "Episodes per board; from 2 on, pass@k is estimated" },
    temperature: {
      type: "number",
      value: "T",
      text: "Of a policy, 0 is greedy; the run's, or the server's, if left out",
    },
    ...hostedFlags,
    json: { type: "switch", text: "End standard output with one JSON object" },
  },
  examples: [
    "bun run eval --env SimpleSokoban --policy random --episodes 256 --seed 123",
    "bun run eval --env FrozenLake --env.options.successRate=0.8 --policy optimal",
    "bun run eval --policy runs/2026-11-20-simplesokoban-1 --temperature 0.5",
    "bun run eval --policy runs/ONE,runs/OTHER --env Bandit,BanditTest,BanditRev --results episodes.jsonl",
    "OPENAI_API_KEY=… bun run eval --env FrozenLake --policy openai:gpt-4o-mini --results lake.jsonl --episodes 64",
    "bun run eval --policy openai:qwen2.5-7b --base-url http://127.0.0.1:8000/v1 --concurrency 32",
    "bun run eval --env Bandit --policy random --episodes 64 --samples 16",
  ],
  overrides: runKeys,
} as const satisfies Command;

const DEFAULTS = { env: "SimpleSokoban", episodes: 256, seed: 123 };

/** Episodes of a policy that are played at once. */
const SLOTS = 64;

type Options = ReturnType<typeof parseOptions<typeof command>>;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const options = parseOptions(command, args);
  const { policy } = options.flags;
  if (policy === undefined) {
    throw new UsageError(
      "say who plays: --policy random, optimal, expert, the folder of a run, openai:MODEL or anthropic:MODEL",
    );
  }
  const { results: file } = options.flags;
  const policies = policy.split(",");
  if (file !== undefined && !isHosted(policy)) newFile(file, policies);
  const reports: object[] = [];
  const all: Evaluated[] = [];
  for (const who of policies) {
    const played: [string, ReturnType<typeof evaluationData>][] = [];
    const spent: object[] = [];
    for (const one of forEachEnv(options)) {
      const { results, usage } = isHosted(who)
        ? await hosted(who, one)
        : { results: await ownResults(who, one), usage: null };
      for (const result of results) {
        const beside = await besideOf(result);
        if (all.length > 0) console.log();
        console.log(evaluationReport(who, result, beside));
        played.push([result.name, evaluationData(result, beside)]);
        all.push({ policy: who, trained: trainedOn(who), result, beside });
        const lines = result.lines.map((line) => `${JSON.stringify({ policy: who, env: result.name, ...line })}\n`);
        if (file !== undefined) appendFileSync(file, lines.join(""));
      }
      if (usage === null) continue;
      console.log(usageLine(usage));
      spent.push({ usage });
    }
    const told = played.length === 1 ? played[0]![1] : { envs: Object.fromEntries(played) };
    reports.push({ policy: who, ...told, ...spent.at(-1) });
  }
  if (all.length > 1) console.log(`\n${acrossEnvs(all)}`);
  if (options.flags.json) console.log(JSON.stringify(reports.length === 1 ? reports[0] : { policies: reports }));
  return 0;
}

/** The options with one env each: "--env Bandit,BanditRev" asks for two evaluations. */
function forEachEnv(options: Options): Options[] {
  const chosen = options.overrides.findLast(({ path }) => path === "env.tag");
  if (chosen === undefined) return [options];
  const others = options.overrides.filter((one) => one.path !== "env.tag");
  return chosen.text.split(",").map((text) => {
    const one = { ...chosen, text, source: chosen.source.replace(chosen.text, text) };
    return { ...options, overrides: [...others, one] };
  });
}

/** @throws {UsageError} if there is something already: it may be the results of another evaluation */
function newFile(file: string, policies: readonly string[]): void {
  if (policies.some(isHosted))
    throw new UsageError("--results keeps one hosted model, or runs and players; evaluate the hosted model alone");
  if (existsSync(file)) throw new UsageError(`--results ${file} exists; name another file`);
  writeFileSync(file, "");
}

/** Envs of a run; null for other policies. */
const trainedOn = (policy: string): string | null =>
  existsSync(join(policy, "config.json")) ? envsText(readRunConfig(policy)) : null;

async function hosted(policy: string, { flags, overrides }: Options) {
  if (flags.checkpoint !== undefined) throw new UsageError(`--checkpoint is for a run's policy, not for ${policy}`);
  const { result, usage } = await hostedResult(policy, flags, overrides, checkBoards);
  return { results: [result], usage };
}

/** Of a run over a mix one for each of its envs, unless one of them is chosen. */
async function ownResults(policy: string, options: Options): Promise<readonly Result[]> {
  const foreign = Object.keys(hostedFlags).find((name) => name !== "results" && Object.hasOwn(options.flags, name));
  if (foreign !== undefined)
    throw new UsageError(`--${foreign} is for hosted models, as openai:MODEL, not for ${policy}`);
  if (policy === "random" || policy === "optimal" || policy === "expert") return [await playerResult(policy, options)];
  return policyResults(policy, options);
}

async function playerResult(policy: "random" | "optimal" | "expert", { flags, overrides }: Options): Promise<Result> {
  if (flags.checkpoint !== undefined) throw new UsageError(`--checkpoint is for a run's policy, not for ${policy}`);
  for (const { path, source } of overrides) {
    if (/^env\.(tag|options|actionsMax)\b/.test(path)) continue;
    throw new UsageError(
      `${source}: ${policy} writes no replies; of the config it takes env.options and env.actionsMax`,
    );
  }
  const env = envOverrides(overrides);
  const tag = checkedTag(String(env["tag"] ?? DEFAULTS.env), env["options"]);
  const { actionsMax } = checkedEnv({ actionsMax: tag.actionsMax, ...fileBudgets(tag.tag), ...env });
  const { episodes = DEFAULTS.episodes, seed = DEFAULTS.seed, samples = 1 } = flags;
  checkBoards(episodes, seed, samples);
  const player = tag[policy];
  if (!player) throw new UsageError(lackingPlayer(tag, policy));
  const boards = { episodes, seed, actionsMax };
  const lines: PlayerEpisode[] = [];
  const record = flags.results === undefined ? {} : { record: (episode: PlayerEpisode) => lines.push(episode) };
  const evaluation = await evaluatePlayer(tag, player, { ...boards, tries: samples, ...record });
  const unsaid = { formatErrors: 0, stops: null, failures: null, thoughts: null, entropy: null };
  return { ...evaluation, ...boards, ...unsaid, samples, lines, name: tag.tag, tag };
}

/** The player that the env lacks, and those that it has. */
function lackingPlayer({ tag, expert }: EnvTag, policy: string): string {
  const has = expert === undefined ? "--policy random" : "--policy expert or random";
  return `${tag} has no ${policy} player; use ${has}`;
}

async function policyResults(folder: string, { flags, overrides }: Options): Promise<readonly Result[]> {
  if (!existsSync(join(folder, "config.json"))) {
    throw new UsageError(`no run in ${folder}: --policy takes random, optimal, expert, or the folder of a run`);
  }
  const { checkpoint = null, temperature } = flags;
  if (
    checkpoint !== null &&
    (!/^u\d+(-\d+)?$/.test(checkpoint) || !existsSync(join(folder, "checkpoints", checkpoint)))
  )
    throw new UsageError(`${folder} has no checkpoint named ${checkpoint}; they are in ${join(folder, "checkpoints")}`);
  if (temperature !== undefined && temperature < 0)
    throw new UsageError(`--temperature must be 0 or more, got ${temperature}`);
  const run = withLocalModules(readRunConfig(folder));
  const { episodes = run.validate.episodes, seed = run.validate.firstSeed, samples = 1 } = flags;
  checkBoards(episodes, seed, samples);
  const env = playedEnv(run, overrides);
  const boards = { episodes, firstSeed: seed, groupSize: samples };
  const validate = { ...run.validate, ...boards, temperature: temperature ?? run.validate.temperature };
  const config = { ...run, env, validate };
  checkData(config);
  for (const line of tooSmallBudgets(config)) warn(line);
  const evaluations = await play(folder, config, checkpoint);
  return [...evaluations].map(([name, evaluation]) => {
    const tag = tagOf(config, name);
    const { actionsMax } = episodeRules(config, name, tag);
    const lines = flags.results === undefined ? [] : evaluation.played.map(episodeLine);
    return { ...evaluation, lines, name, tag, episodes, seed, samples, actionsMax };
  });
}

/** An episode as text, without its tokens. */
function episodeLine(played: PlayedTicket): object {
  const { ticket, outcome } = played;
  const { member, layoutSeed, dynamicsSeed } = ticket;
  const { stop, success, turns, finalObservation, extra } = outcome;
  return {
    member,
    layoutSeed,
    dynamicsSeed,
    success,
    turns,
    finalObservation,
    stop,
    extra,
    entropy: entropyOf([played]),
  };
}

/**
 * The run's env with what was asked for instead. Another env has its own options and budget of actions. A mix is played whole,
 * unless one of its envs is chosen by the name that it has there.
 */
function playedEnv({ env: ran, prompt }: RunConfig, overrides: readonly Override[]): RunConfig["env"] {
  for (const { path, source } of overrides) {
    if (!path.startsWith("env.")) throw new UsageError(`${source}: a run keeps its config; only env.… can be changed`);
  }
  const asked = envOverrides(overrides);
  if (ran.mix.length > 0 && Object.keys(asked).length === 0) return ran;
  const trained = oneOf(ran, asked["tag"]);
  const name = asked["tag"] === undefined || ran.mix.length > 0 ? trained.tag : String(asked["tag"]);
  const same = name === trained.tag;
  const options = { ...(same ? trained.options : {}), ...(asked["options"] as Tree | undefined) };
  const tag = checkedTag(name, options, prompt.compat);
  const budgets = same ? {} : { actionsMax: tag.actionsMax, ...fileBudgets(name) };
  return checkedEnv({ ...trained, ...budgets, ...asked, tag: name, options });
}

/** A run's env as if it had played that alone. */
function oneOf(env: RunConfig["env"], asked: unknown): RunConfig["env"] {
  if (env.mix.length === 0) return env;
  const all = playedEnvs({ env });
  const found = all.find(({ name }) => name === asked);
  if (found === undefined) {
    const names = all.map(({ name }) => name).join(", ");
    throw new UsageError(
      `this run plays several envs; choose one of them with --env, or leave env.… out for all: ${names}`,
    );
  }
  const { tag, options, turnsMax, actionsMax, actionsPerTurnMax } = found;
  return {
    ...env,
    mix: [],
    tag,
    options: { ...options },
    turnsMax: turnsMax ?? env.turnsMax,
    actionsMax: actionsMax ?? envTag(tag).actionsMax,
    actionsPerTurnMax: actionsPerTurnMax ?? env.actionsPerTurnMax,
  };
}

async function play(folder: string, config: RunConfig, checkpoint: string | null) {
  const saved = await savedPolicy(folder, config, checkpoint);
  for (const { path, reason } of saved.skipped) warn(`${path} is not used: ${reason}`);
  say(`playing with ${saved.path}`);
  // A thread that dies rejects every open call, which is how it is heard of here.
  const thread = startThread<PolicyMethods>(new URL("../actors/sampler/policy-worker.ts", import.meta.url), () => {});
  try {
    const weights = await startSavedPolicy(saved, config, SLOTS, thread.methods, warn);
    const { dialogue } = saved;
    const { episodes, groupSize } = config.validate;
    const progress = progressLine(playedEnvs(config).length * episodes * groupSize);
    return await evaluatePolicy({
      config,
      policy: thread.methods,
      dialogue,
      weights,
      slots: SLOTS,
      clock: realClock,
      warn,
      progress,
    });
  } finally {
    thread.stop();
  }
}

function checkedEnv(env: Tree): RunConfig["env"] {
  const parsed = EnvConfig.safeParse(env, { reportInput: true });
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.map((issue) => {
    return `env.${issue.path.join(".")}: ${issue.message}, got ${JSON.stringify(issue.input)}`;
  });
  throw new UsageError(faults.join("\n"));
}

function checkBoards(episodes: number, seed: number, samples: number): void {
  if (samples < 1) throw new UsageError(`--samples must be at least 1, got ${samples}`);
  if (episodes < 1) throw new UsageError(`--episodes must be at least 1, got ${episodes}`);
  if (seed + episodes <= 2 ** 32) return;
  throw new UsageError(
    `--seed ${seed}: ${episodes} boards from there pass the last, ${2 ** 32 - 1}; start at ${Math.max(0, 2 ** 32 - episodes)} or lower`,
  );
}
