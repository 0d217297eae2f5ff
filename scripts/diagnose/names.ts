/**
 * The names that other trainers give to the numbers that the Echo Trap detector reads, and the numbers that a log lacks.
 *
 * Sources: TRL's GRPOTrainer ("Logged metrics"), verl's metric_utils.py and dp_actor.py, RAGEN's es_manager.py and rollout_filter.py,
 * prime-rl's docs/metrics.
 */
import type { Measured } from "../../actors/training/health.ts";
import { didYouMean, nearest } from "../../envs/text/nearest.ts";
import { UsageError } from "../cli/options.ts";
import type { Log } from "./logs.ts";

interface Quantity {
  /** The quantity's name in the flag `--column`. */
  readonly name: string;
  readonly text: string;
  readonly key: keyof Measured;
  /** Names in the order of preference. */
  readonly known: readonly RegExp[];
  /** Names that count only if all values are from 0 to 1. */
  readonly ifShare?: readonly RegExp[];
  /** The name of a metric that is 1 minus the quantity. */
  readonly opposite?: RegExp;
}

const quantity = (
  name: string,
  key: keyof Measured,
  text: string,
  known: readonly RegExp[],
  others: Pick<Quantity, "ifShare" | "opposite"> = {},
): Quantity => ({ name, key, text, known, ...others });

const QUANTITIES: readonly Quantity[] = [
  quantity(
    "success",
    "success",
    "share of solved episodes",
    [/^train\/success$/, /^(train-env|train|env)\/[^/]+\/success$/],
    {
      ifShare: [
        /^(train\/)?rewards\/[^/]*(accuracy|correct|success|solved)[^/]*(\/mean)?$/i,
        /^(train\/)?reward$/,
        /^critic\/(score|rewards)\/mean$/,
        /^reward\/(all\/)?mean$/,
      ],
    },
  ),
  quantity("spread", "rewardStd", "in-group std of the reward", [
    /^train\/in_group_std$/,
    /^(train\/)?reward_std$/,
    /^rollout\/in_group_(reward_)?std$/,
  ]),
  quantity("constant", "zeroStdShare", "share of groups without spread", [
    /^train\/zero_std_groups$/,
    /^(train\/)?frac_reward_zero_std$/,
  ]),
  quantity("entropy", "entropy", "entropy", [
    /^train\/entropy$/,
    /^entropy$/,
    /^actor\/entropy(_loss)?$/,
    /^entropy\/(all\/)?mean$/,
    /^objective\/entropy$/,
  ]),
  quantity("gradient", "gradNorm", "norm of the gradient", [
    /^(train\/)?grad_norm$/,
    /^actor\/grad_norm$/,
    /^optim\/grad_norm$/,
  ]),
  quantity("repetition", "repetition", "repeated n-grams", [/^train\/repetition$/]),
  quantity("information", "mutualInformation", "information of thoughts about their prompt", [
    /^collapse\/mi_estimate$/,
    /^collapse_trajectory_sample\/mi_estimate$/,
  ]),
  quantity("form", "validity", "share of well-formed replies", [/^(train-env|train|env)\/[^/]+\/action_is_valid$/], {
    ifShare: [/^(train\/)?rewards\/[^/]*format[^/]*(\/mean)?$/i],
    opposite: /^train\/format_errors$/,
  }),
  quantity("likelihood", "likelihood", "log-probability of solved episodes", [/^train\/solved_log_prob$/]),
  quantity("kept", "groupsKept", "share of groups that the filter kept", [
    /^train\/kept_groups$/,
    /^rollout\/filter_kept_ratio$/,
  ]),
];

/**
 * @param chosen  "QUANTITY=NAME" of the flag `--column`
 * @returns names in the log by the quantity's name; the measured quantities by step, without steps that have none; and the missing quantities
 * @throws {UsageError} for an unknown quantity or name, or if nothing can be judged
 */
export function seenIn(steps: Log["steps"], path: string, chosen: readonly string[]) {
  const names = [...new Set([...steps.values()].flatMap((values) => [...values.keys()]))];
  const given = new Map<string, string>();
  for (const [quantity, name] of chosen.map((text) => givenColumn(text, path, names))) {
    const other = given.get(quantity);
    if (other !== undefined)
      throw new UsageError(`--column names two columns for ${quantity}, "${other}" and "${name}"; leave one out`);
    given.set(quantity, name);
  }
  const isShare = (name: string) =>
    steps.values().every((values) => {
      const value = values.get(name) ?? 0;
      return value >= 0 && value <= 1;
    });
  const find = (patterns: readonly RegExp[], fits = (_name: string) => true) =>
    patterns.flatMap((pattern) => names.find((name) => pattern.test(name) && fits(name)) ?? [])[0];
  const columns: Record<string, string> = {};
  const opposites = new Set<string>();
  for (const { name, known, ifShare = [], opposite } of QUANTITIES) {
    const inverse = opposite && find([opposite]);
    const found = given.get(name) ?? find(known) ?? find(ifShare, isShare) ?? inverse;
    if (found === undefined) continue;
    columns[name] = found;
    if (found === inverse && !given.has(name)) opposites.add(name);
  }
  if (!["success", "spread", "entropy"].some((name) => name in columns)) {
    throw new UsageError(
      `${path} has no column for success, for the spread of reward or for entropy; name one: --column entropy=NAME. The log has ${some(names)}`,
    );
  }
  const measured = new Map<number, Measured>();
  for (const [step, values] of steps) {
    const known = QUANTITIES.flatMap(({ name, key }) => {
      const column = columns[name];
      const value = column === undefined ? undefined : values.get(column);
      return value === undefined ? [] : [[key, opposites.has(name) ? 1 - value : value] as const];
    });
    if (known.length > 0) measured.set(step, Object.fromEntries(known));
  }
  const unseen = QUANTITIES.filter(({ name }) => !(name in columns));
  return { columns, measured, unseen: unseen.map(({ name, text }) => `${text} (${name})`) };
}

function givenColumn(text: string, path: string, names: readonly string[]): [string, string] {
  const at = text.indexOf("=");
  const [quantity, name] = [text.slice(0, at), text.slice(at + 1)];
  const quantities = QUANTITIES.map((one) => one.name);
  if (at < 1 || !quantities.includes(quantity)) {
    throw new UsageError(`--column takes QUANTITY=NAME with one of ${quantities.join(", ")}, got "${text}"`);
  }
  if (names.includes(name)) return [quantity, name];
  const hint = didYouMean(nearest(name, names)) || `; it has ${some(names)}`;
  throw new UsageError(`--column ${text}: ${path} has no "${name}"${hint}`);
}

const some = (names: readonly string[]): string =>
  `${names.slice(0, 12).join(", ")}${names.length > 12 ? `, and ${names.length - 12} more` : ""}`;
