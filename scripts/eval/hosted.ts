/** The part of `bun run eval` for hosted models: `openai:MODEL` and `anthropic:MODEL`. */
import { realClock } from "../../actors/clock.ts";
import { composeRunConfig } from "../../actors/config/compose.ts";
import type { RunConfig } from "../../actors/config/config.ts";
import type { Layer } from "../../actors/config/layers.ts";
import { envLayer } from "../../actors/config/preset-files.ts";
import { HostedClient, modelCard, type Usage } from "../../actors/evaluate/hosted/client.ts";
import { evaluateHosted } from "../../actors/evaluate/hosted/play-hosted.ts";
import { PROVIDERS, type Provider } from "../../actors/evaluate/hosted/provider.ts";
import { Results, ResultsError } from "../../actors/evaluate/hosted/results.ts";
import {
  actionsAllowed,
  envAlone,
  episodeRules,
  playedEnvs,
  tagOf,
  tooSmallBudgets,
} from "../../actors/play/envs-of-run.ts";
import { ModelCard, type ServedCard } from "../../actors/policy/served-card.ts";
import { isLoopback, noProxyHere } from "../../actors/transport/address.ts";
import { checkData } from "../../library/chosen-model.ts";
import { checkBoards } from "../../library/policy.ts";
import { type Flag, type FlagValues, flag, type Override, UsageError } from "../cli/options.ts";
import { overrideLayer } from "../cli/presets.ts";
import { say, warn } from "../cli/print.ts";
import { progressLine, type Result } from "./report.ts";

/** Default limit of a reply, in tokens. */
const REPLY_TOKENS_MAX = 512;
/** Default of --timeout-s. */
const TIMEOUT_S = 120;

/** Flags of hosted models. Of these flags, other policies take only `results`. */
export const hostedFlags = {
  "base-url": flag.text(
    "URL",
    "Address of another server with the same API, such as http://127.0.0.1:8000/v1 (default for openai: the variable OPENAI_BASE_URL)",
  ),
  "key-env": flag.text(
    "NAME",
    "Environment variable of the key (default: OPENAI_API_KEY or ANTHROPIC_API_KEY; none with --base-url)",
  ),
  results: flag.text(
    "FILE",
    "New file for the episodes, one JSON line each; the evaluation of a hosted model may continue an existing file",
  ),
  concurrency: flag.positive("N", "Requests at once (default: 8)"),
  "reply-tokens": flag.positive(
    "N",
    `Maximum number of tokens of a reply (default: ${REPLY_TOKENS_MAX}; for a policy of \`bun run serve\` the policy's own limit)`,
  ),
  tries: flag.positive("N", "Tries of a request whose failure may be temporary (default: 6)"),
  "timeout-s": flag.number("S", `Longest wait for one answer, in seconds (default: ${TIMEOUT_S})`),
  "price-in": flag.number("USD", "Price of a million input tokens, to report the cost"),
  "price-out": flag.number("USD", "Price of a million output tokens, to report the cost"),
} as const satisfies Record<string, Flag>;

/** The parsed flags, without the flags that the user left out. */
interface HostedFlags extends FlagValues<typeof hostedFlags> {
  readonly episodes?: number;
  readonly seed?: number;
  readonly samples?: number;
  readonly temperature?: number;
}

/** The cost is in USD; null unless the user gave both prices. */
type HostedUsage = Usage & { readonly cost: number | null };

const HOSTED = new RegExp(`^(${Object.keys(PROVIDERS).join("|")}):(.+)$`);

export const isHosted = (policy: string): boolean => HOSTED.test(policy);

/** The model's server. @throws {UsageError} for a fault of the policy's flags or settings that shows before the server answers */
export function hostedServer(policy: string, flags: HostedFlags, overrides: readonly Override[]) {
  const [, providerName, model] = HOSTED.exec(policy)!;
  const provider = PROVIDERS[providerName!]!;
  const baseUrl = addressOf(provider, flags["base-url"]);
  const key = keyOf(provider, baseUrl, flags);
  const { temperature = 0, "timeout-s": timeoutS = TIMEOUT_S } = flags;
  if (temperature < 0) throw new UsageError(`--temperature must be 0 or more, got ${temperature}`);
  if (timeoutS <= 0) throw new UsageError(`--timeout-s must be above 0, got ${timeoutS}`);
  const other = overrides.find(({ path }) => !/^(env|prompt)\./.test(path) || isUnread(path));
  if (other !== undefined)
    throw new UsageError(
      `${other.source}: a hosted model takes keys of env and prompt, except ${UNREAD.join(", ")}; leave it out`,
    );
  const ask = (url: string, init: RequestInit) => fetch(url, { ...init, ...noProxyHere(url) });
  return { provider, model: model!, baseUrl, key, fetch: ask };
}

/** The result of one env, with the tokens and cost of its episodes. */
export async function hostedResults(
  policy: string,
  flags: HostedFlags,
  overrides: readonly Override[],
): Promise<{ results: Result[]; usage: HostedUsage }> {
  const server = hostedServer(policy, flags, overrides);
  const { provider, baseUrl } = server;
  // Only the card of a policy of `bun run serve` has this part: the env, prompts and lengths of training.
  const served = baseUrl === provider.baseUrl ? null : ModelCard.safeParse(await modelCard(server));
  const card = served?.data?.bunraku ?? null;
  const config = hostedConfig(flags, overrides, card);
  const { episodes, firstSeed: seed, groupSize: samples } = config.validate;
  checkBoards(episodes, seed, samples);
  checkData(config);
  const { "reply-tokens": asked = null } = flags;
  const replyTokensMax = asked ?? card?.replyTokensMax ?? REPLY_TOKENS_MAX;
  const { temperature = null } = flags;
  const { env, prompt } = config;
  const settings = { policy, baseUrl, temperature, replyTokensMax, env, prompt, seed, samples };
  const results = flags.results === undefined ? Results.none() : openResults(flags.results, settings);
  const client = new HostedClient({
    ...server,
    temperature,
    // A policy of `bun run serve` has limits of its own, so the client sends only the user's limit.
    replyTokensMax: card === null ? replyTokensMax : asked,
    timeoutMs: 1000 * (flags["timeout-s"] ?? TIMEOUT_S),
    warn,
    triesMax: flags.tries ?? 6,
    clock: realClock,
    uniform: Math.random,
    wallClock: Date.now,
  });
  // The file may have episodes of more boards than this evaluation plays.
  const kept = [...results.episodes.keys()].filter((index) => index < episodes * samples).length;
  if (kept > 0) say(`${kept} episodes are taken from ${flags.results}`);
  for (const line of tooSmallBudgets(config)) warn(line);
  const tag = tagOf(config, env.tag);
  const evaluation = await evaluateHosted({
    config,
    tag,
    client,
    results,
    requestsMax: flags.concurrency ?? 8,
    clock: realClock,
    warn,
    progress: progressLine(episodes * samples),
  }).catch((error) => {
    const kept = `${results.episodes.size} episodes are in ${flags.results}; the same command continues from there`;
    const advice = flags.results === undefined ? "with --results FILE the same command could continue" : kept;
    throw new Error(`${error instanceof Error ? error.message : error}; ${advice}`, { cause: error });
  });
  const usage = { ...client.usage, cost: cost(client.usage, flags) };
  const boards = { episodes, seed, samples, actionsMax: actionsAllowed(episodeRules(config, env.tag, tag)) };
  // If the server's policy was trained on a mix, the env may have a name other than its tag.
  const name = overrides.findLast(({ path }) => path === "env.tag")?.text ?? tag.tag;
  // Only the server knows the tokens and their probabilities, so the result has no entropy.
  return { results: [{ ...evaluation, ...boards, name, tag, entropy: null, lines: [] }], usage };
}

export function usageLine({ requests, retries, inputTokens, outputTokens, cost }: HostedUsage): string {
  const price = cost === null ? "cost unknown (--price-in, --price-out)" : `${cost.toFixed(4)} USD`;
  const tokens = `${inputTokens} input tokens, ${outputTokens} output tokens`;
  return `${requests} requests, ${retries} of them retries · ${tokens} · ${price}`;
}

/** The cost of this session; the results file has the tokens of earlier sessions. */
function cost({ inputTokens, outputTokens }: Usage, flags: HostedFlags): number | null {
  const { "price-in": priceIn, "price-out": priceOut } = flags;
  if (priceIn === undefined || priceOut === undefined) return null;
  return (inputTokens * priceIn + outputTokens * priceOut) / 1e6;
}

function addressOf(provider: Provider, flag: string | undefined): string {
  const variable = provider.baseUrlName;
  const fromVariable = variable === null ? "" : (process.env[variable] ?? "").trim();
  const asked = flag ?? (fromVariable === "" ? provider.baseUrl : fromVariable);
  const name = flag === undefined && variable !== null ? variable : "--base-url";
  if (!URL.canParse(asked) || !/^https?:$/.test(new URL(asked).protocol)) {
    throw new UsageError(`${name} takes an address such as https://host/v1, got "${asked}"`);
  }
  const { username, password, search, hash } = new URL(asked);
  if (username + password + search + hash !== "") {
    throw new UsageError(`${name} takes host and path only; put the key into an environment variable (--key-env)`);
  }
  return asked.replace(/\/+$/, "");
}

/** The key, only from the environment, because every user of this machine can read another user's flags. */
function keyOf(provider: Provider, baseUrl: string, flags: HostedFlags): string | null {
  const own = baseUrl === provider.baseUrl;
  const name = flags["key-env"] ?? (flags["base-url"] === undefined ? provider.keyName : null);
  if (name === null) return null;
  const key = process.env[name]?.trim() ?? "";
  // The server that OPENAI_BASE_URL names may need no key.
  if (key === "" && !own && flags["key-env"] === undefined) return null;
  if (key === "")
    throw new UsageError(`${provider.name} needs a key in the environment variable ${name}, which is not set`);
  if (!/^[\x21-\x7e]+$/.test(key))
    throw new UsageError(`the key in ${name} has spaces or characters beyond ASCII; correct the key`);
  const { protocol, hostname } = new URL(baseUrl);
  if (protocol === "http:" && !isLoopback(hostname)) {
    throw new UsageError(`${baseUrl} is not encrypted, and the command would send the key in ${name} to it; use https`);
  }
  return key;
}

/** Keys of the sections `env` and `prompt` that an evaluation of a hosted model does not read. */
const UNREAD = ["env.mix", "prompt.overflow", "env.reasoningWeight"];
const isUnread = (path: string): boolean => UNREAD.some((key) => path === key || path.startsWith(`${key}.`));

/**
 * The config of the evaluation. It has RAGEN-2's prompts and the budgets of the env's file. For a policy of `bun run serve` it has the policy's
 * own prompts and budgets. Flags override both.
 */
function hostedConfig(
  { episodes = 256, seed = 123, samples = 1 }: HostedFlags,
  overrides: readonly Override[],
  card: ServedCard | null,
): RunConfig {
  const asked = overrides.findLast(({ path }) => path === "env.tag")?.text;
  const trained = card === null ? null : trainedEnv(card, asked);
  const values = card === null ? { prompt: { layout: "ragen-v2" } } : trainedForm(card, trained);
  const base: Layer = { source: "hosted models", values: { ...values, warmStart: { enabled: false } } };
  // An env of a mix may have a name other than its tag.
  const given = trained === null ? overrides : overrides.filter(({ path }) => path !== "env.tag");
  const layers = [base, ...given.map(overrideLayer)];
  const env = envLayer(layers);
  const config = composeRunConfig(env === null ? layers : [env, ...layers]);
  return { ...config, validate: { ...config.validate, episodes, firstSeed: seed, groupSize: samples } };
}

/** The settings of env `asked`; null if the policy was not trained on this env. @throws {UsageError} if `asked` names none of several envs */
function trainedEnv(card: ServedCard, asked: string | undefined): RunConfig["env"] | null {
  const names = playedEnvs(card).map(({ name }) => name);
  if (asked === undefined && names.length > 1)
    throw new UsageError(`this policy was trained on several envs; name one with --env: ${names.join(", ")}`);
  const name = asked ?? names[0]!;
  return names.includes(name) ? envAlone(card, name) : null;
}

/** The policy's settings from training; for an env that the policy was not trained on, only the settings of prompts and replies. */
function trainedForm({ env, prompt, replyTokensMax, contextTokensMax }: ServedCard, trained: RunConfig["env"] | null) {
  if (prompt.overflow === "drop")
    warn("this policy was trained with prompt.overflow drop; here a full context ends an episode");
  const { modules: _, ...settings } = trained ?? env;
  const { overflow: __, contextTurnsMax, ...prompts } = prompt;
  return {
    env: trained === null ? { think: env.think } : settings,
    // The config does not allow `contextTurnsMax` together with the full context.
    prompt: prompt.context === "full" ? prompts : { ...prompts, contextTurnsMax },
    rollout: { replyTokensMax, contextTokensMax },
  };
}

function openResults(file: string, settings: Record<string, unknown>): Results {
  try {
    return Results.open(file, settings);
  } catch (error) {
    throw error instanceof ResultsError ? new UsageError(error.message) : error;
  }
}
