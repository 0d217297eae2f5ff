/**
 * `bun run eval`: plays fixed boards with a scripted player, a run's policy or a hosted model. For each env, the command shows the player's
 * results with 95 % intervals, and the results of random and of best play on the same boards. It also shows why episodes stopped and failed.
 */
import { closeSync, existsSync, mkdirSync, openSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { checkpointsIn } from "../actors/checkpoint/checkpoint.ts";
import { appendWhole } from "../actors/checkpoint/disk.ts";
import { runKeys } from "../actors/config/config.ts";
import type { Tree } from "../actors/config/layers.ts";
import { messageOf } from "../actors/errors.ts";
import { entropyOf } from "../actors/evaluate/evaluate.ts";
import {
  actionsAllowed,
  envsText,
  episodeRules,
  playedEnvs,
  tagOf,
  tooSmallBudgets,
} from "../actors/play/envs-of-run.ts";
import type { PlayedTicket } from "../actors/play/finished-ticket.ts";
import { readRunConfig } from "../actors/policy/saved-policy.ts";
import type { PlayerEpisode } from "../envs/analysis/evaluate.ts";
import { envTags } from "../envs/registry.ts";
import { firstRepeated } from "../envs/text/repeats.ts";
import { checkedTag, evaluate, loadPolicy, type PlayerName } from "../library/policy.ts";
import { PROJECT_FILE } from "../library/project.ts";
import { type Command, expectOnly, flag, type Parsed, UsageError } from "./cli/options.ts";
import { envOverrides, projectEnv } from "./cli/presets.ts";
import { say, warn } from "./cli/print.ts";
import { hostedFlags, hostedResults, hostedServer, isHosted, usageLine } from "./eval/hosted.ts";
import {
  acrossEnvs,
  type Evaluated,
  evaluationData,
  evaluationReport,
  progressLine,
  type Result,
  referencesOf,
} from "./eval/report.ts";

export const command = {
  flags: {
    env: flag.text(
      "TAGS",
      `Envs to play, with commas between several (default: the run's env, or the project's, or SimpleSokoban): ${envTags().join(", ")}`,
      "env.tag",
    ),
    policy: flag.text(
      "WHO",
      "random, optimal, expert, the folder of a run, openai:MODEL, anthropic:MODEL; with commas between several",
    ),
    checkpoint: flag.text("NAME", "Checkpoint of the run, such as u000120 (default: the newest)"),
    episodes: flag.count("N", "Number of boards (default: the run's validate.episodes, or 256)"),
    seed: flag.count("S", "Layout seed of the first board (default: the run's validate.firstSeed, or 123)"),
    samples: flag.count("N", "Episodes per board (default: 1); with 2 or more, eval estimates pass@k"),
    temperature: flag.number(
      "T",
      "Sampling temperature of a policy; 0 is greedy (default: the run's validate.temperature; for a hosted model, the server's default)",
    ),
    ...hostedFlags,
    json: flag.switch("End standard output with one JSON object"),
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
  keys: "A key of env; random, optimal and expert take only env.options and env.actionsMax; hosted models take keys of env and of prompt",
} as const satisfies Command;

const DEFAULTS = { env: "SimpleSokoban", episodes: 256, seed: 123 };

/** Maximum number of episodes of a policy at the same time. */
const SLOTS = 64;

type Options = Parsed<typeof command>;

export async function main(options: Parsed<typeof command>): Promise<number> {
  const { policy } = options.flags;
  if (policy === undefined) {
    throw new UsageError(
      "name who plays: --policy random, optimal, expert, the folder of a run, openai:MODEL or anthropic:MODEL",
    );
  }
  const { results: file } = options.flags;
  const policies = policy.split(",");
  const forEnvs = forEachEnv(options);
  for (const who of policies) for (const one of forEnvs) expectPlayable(who, one);
  if (options.flags.temperature !== undefined && policies.every(isPlayer))
    throw new UsageError("--temperature is for policies that sample; leave it out for random, optimal and expert");
  if (file !== undefined) makeResults(file, policies, forEnvs.length);
  for (const who of policies.filter(isHosted)) hostedServer(who, options.flags, forEnvs[0]!.overrides);
  const reports: object[] = [];
  const all: Evaluated[] = [];
  for (const who of policies) {
    const played: [string, object][] = [];
    for (const one of forEnvs) {
      const { results, usage } = await resultsOf(who, one);
      for (const result of results) {
        const references = await referencesOf(result);
        const lines = result.lines.map((line) => `${JSON.stringify({ policy: who, env: result.name, ...line })}\n`);
        // If the file cannot be written, the command still prints the table.
        try {
          if (file !== undefined) appendWhole(file, lines.join(""));
        } finally {
          if (all.length > 0) console.log();
          console.log(evaluationReport(who, result, references));
        }
        played.push([result.name, { ...evaluationData(result, references), ...(usage !== null && { usage }) }]);
        all.push({ policy: who, trained: trainedOn(who), result, references });
      }
      if (usage !== null) console.log(usageLine(usage));
    }
    const evaluated = played.length === 1 ? played[0]![1] : { envs: Object.fromEntries(played) };
    reports.push({ policy: who, ...evaluated });
  }
  if (all.length > 1) console.log(`\n${acrossEnvs(all)}`);
  if (options.flags.json) console.log(JSON.stringify(reports.length === 1 ? reports[0] : { policies: reports }));
  return 0;
}

/** For each env, the options with this env only: "--env Bandit,BanditRev" asks for two evaluations. */
function forEachEnv(options: Options): Options[] {
  const chosen = options.overrides.findLast(({ path }) => path === "env.tag");
  if (chosen === undefined) return [options];
  const others = options.overrides.filter((one) => one.path !== "env.tag");
  const names = chosen.text.split(",");
  const twice = firstRepeated(names);
  if (twice !== undefined) throw new UsageError(`${chosen.source} names ${twice} twice; leave one out`);
  return names.map((text) => {
    const one = { ...chosen, text, source: chosen.source.replace(chosen.text, text) };
    return { ...options, overrides: [...others, one] };
  });
}

/** Makes the file of --results and its folder before the first episode. @throws {UsageError} if it cannot hold this evaluation's episodes */
function makeResults(file: string, policies: readonly string[], envs: number): void {
  const hosted = policies.filter(isHosted).length;
  if (hosted > 0 && policies.length > 1)
    throw new UsageError("--results cannot mix a hosted model with other policies; evaluate the hosted model alone");
  if (hosted > 0 && envs > 1)
    throw new UsageError(
      "--results of a hosted model holds the episodes of one env only; evaluate the envs one after another",
    );
  // Only the evaluation of a hosted model continues from earlier results.
  if (hosted === 0 && existsSync(file) && statSync(file).size > 0)
    throw new UsageError(`--results ${file} exists; name another file`);
  try {
    mkdirSync(dirname(file), { recursive: true });
    closeSync(openSync(file, "a"));
  } catch (error) {
    throw new UsageError(`--results ${file} cannot be written: ${messageOf(error)}; name another file`);
  }
}

/** Envs of a run; null for other policies. */
const trainedOn = (policy: string): string | null =>
  existsSync(join(policy, "config.json")) ? envsText(readRunConfig(policy)) : null;

const isPlayer = (policy: string): policy is PlayerName => ["random", "optimal", "expert"].includes(policy);

/**
 * Called for every policy and env before the first policy plays.
 *
 * @throws {UsageError} for a flag or a folder that does not fit the policy. @throws {ConfigError} for an unknown env or option
 */
function expectPlayable(policy: string, { flags, overrides }: Options): void {
  const { checkpoint, temperature } = flags;
  if (checkpoint !== undefined && (isHosted(policy) || isPlayer(policy)))
    throw new UsageError(`--checkpoint is for a run's policy, not for ${policy}; leave it out`);
  if (isHosted(policy)) return;
  const foreign = Object.keys(hostedFlags).find((name) => name !== "results" && Object.hasOwn(flags, name));
  if (foreign !== undefined)
    throw new UsageError(`--${foreign} is for hosted models, such as openai:MODEL, not for ${policy}; leave it out`);
  if (isPlayer(policy)) {
    const why = `${policy} writes no replies, and takes env.options and env.actionsMax only`;
    expectOnly(/^env\.(tag|options|actionsMax)\b/, overrides, why);
    const { tag, options } = playerEnv(policy, flags.policy!, overrides);
    checkedTag(tag, options);
    return;
  }
  if (!existsSync(join(policy, "config.json"))) {
    throw new UsageError(
      `no run in ${policy}: --policy takes random, optimal, expert, the folder of a run, openai:MODEL or anthropic:MODEL`,
    );
  }
  const checkpoints = join(policy, "checkpoints");
  if (checkpoint !== undefined && !checkpointsIn(checkpoints).some(({ name }) => name === checkpoint))
    throw new UsageError(`${policy} has no checkpoint named ${checkpoint}; its checkpoints are in ${checkpoints}`);
  if (temperature !== undefined && temperature < 0)
    throw new UsageError(`--temperature must be 0 or more, got ${temperature}`);
  expectOnly(/^env\./, overrides, "a run keeps its config, except for keys of env");
  const { tag, options } = envOverrides(overrides);
  const config = readRunConfig(policy);
  if (tag !== undefined && !playedEnvs(config).some(({ name }) => name === tag))
    checkedTag(String(tag), options, config.prompt.compat);
}

/** One result for each env: all envs of a run's mix, or the env that the options choose. `usage` is null if the policy is not a hosted model */
async function resultsOf(policy: string, options: Options) {
  if (isHosted(policy)) return hostedResults(policy, options.flags, options.overrides);
  const results = isPlayer(policy) ? [await playerResult(policy, options)] : await policyResults(policy, options);
  return { results, usage: null };
}

/**
 * The env of a scripted player: the chosen env; if none is chosen, the env of a run in the same evaluation; if there is none, the project's env.
 *
 * @throws {UsageError} if no env is chosen, and the run or the project has a mix
 */
function playerEnv(
  player: PlayerName,
  policies: string,
  overrides: Options["overrides"],
): Tree & { readonly tag: string } {
  const chosen = envOverrides(overrides);
  const run = policies.split(",").find((who) => existsSync(join(who, "config.json")));
  const usual: Tree = run === undefined ? projectEnv() : readRunConfig(run).env;
  if (chosen["tag"] !== undefined) return { ...chosen, tag: String(chosen["tag"]) };
  if (Array.isArray(usual["mix"]) && usual["mix"].length > 0) {
    const several = `${player} would play one env, and ${run ?? PROJECT_FILE} plays several`;
    throw new UsageError(`${several}; name one of their tags: --env TAG`);
  }
  const { tag = DEFAULTS.env, options, actionsMax } = usual;
  const kept = actionsMax === undefined ? {} : { actionsMax };
  return { ...kept, ...chosen, tag: String(tag), options: { ...(options as Tree), ...(chosen["options"] as Tree) } };
}

async function playerResult(policy: PlayerName, { flags, overrides }: Options): Promise<Result> {
  const { episodes = DEFAULTS.episodes, seed = DEFAULTS.seed, samples = 1 } = flags;
  const env = playerEnv(policy, flags.policy!, overrides);
  const lines: PlayerEpisode[] = [];
  const record = flags.results === undefined ? {} : { record: (episode: PlayerEpisode) => lines.push(episode) };
  const evaluation = await evaluate(policy, env, { episodes, seed, samples, ...record });
  const unmeasured = { formatErrors: 0, stops: null, failures: null, thoughts: null, entropy: null };
  return { ...evaluation, ...unmeasured, episodes, seed, samples, lines, name: evaluation.tag.tag };
}

async function policyResults(folder: string, { flags, overrides }: Options): Promise<Result[]> {
  const { checkpoint = null, temperature } = flags;
  const env = envOverrides(overrides);
  const { validate } = readRunConfig(folder);
  const { episodes = validate.episodes, seed = validate.firstSeed, samples = 1 } = flags;
  using policy = await loadPolicy(folder, { slots: SLOTS, notice: warn, ...(checkpoint !== null && { checkpoint }) });
  const boards = { env, episodes, seed, samples, ...(temperature !== undefined && { temperature }) };
  const config = policy.evaluated(boards);
  for (const line of tooSmallBudgets(config)) warn(line);
  say(`playing with ${join(folder, "checkpoints", policy.checkpoint)}`);
  const progress = progressLine(playedEnvs(config).length * episodes * samples);
  const evaluations = await policy.evaluate({ ...boards, progress });
  return [...evaluations].map(([name, evaluation]) => {
    const tag = tagOf(config, name);
    const actionsMax = actionsAllowed(episodeRules(config, name, tag));
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
