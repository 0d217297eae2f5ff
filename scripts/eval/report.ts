/**
 * The texts that `bun run eval` prints. They are a player's results beside the results of random and of best play on the same boards, one table
 * for several policies and envs, and the progress.
 */
import { percent, plural } from "../../actors/number-text.ts";
import type { StopReason } from "../../actors/protocol.ts";
import type { Thoughts } from "../../actors/training/behavior.ts";
import { bestPossible, type Evaluation, evaluateRandom, expertSuccess } from "../../envs/analysis/evaluate.ts";
import { FAILURES, type Failure } from "../../envs/analysis/failure.ts";
import type { EnvTag } from "../../envs/tag.ts";
import { aligned } from "../cli/texts.ts";

export interface Result extends Evaluation {
  /** The env's name in the run: its tag, unless a mix gives it another name. */
  readonly name: string;
  readonly tag: EnvTag;
  readonly episodes: number;
  readonly seed: number;
  /** Episodes per board. */
  readonly samples: number;
  readonly actionsMax: number;
  readonly formatErrors: number;
  /** `stops`, `failures` and `thoughts` are null for scripted players, which choose single actions. */
  readonly stops: Readonly<Record<StopReason, number>> | null;
  readonly failures: Readonly<Record<Failure, number>> | null;
  readonly thoughts: Thoughts | null;
  /** Nats per written token; null for players, for hosted models, and at temperature 0. */
  readonly entropy: number | null;
  /** The episodes as lines of --results; empty for hosted models, which keep their own file. */
  readonly lines: readonly object[];
}

export type References = Awaited<ReturnType<typeof referencesOf>>;

/** Reference values on the same boards. */
export async function referencesOf({ tag, episodes, seed, actionsMax }: Result) {
  const boards = { episodes, seed, actionsMax };
  return {
    /** null if the env has no random player. */
    random: await evaluateRandom(tag, boards),
    /** Success of the env's expert; null if the env has no expert, or if the best possible success is known. */
    expert: await expertSuccess(tag, boards),
    /** null if the best possible success is unknown. */
    best: bestPossible(tag, boards),
  };
}

/** @param policy  title of the first row */
export function evaluationReport(policy: string, result: Result, { random, expert, best }: References): string {
  const { name, tag, episodes, seed, samples, actionsMax, stops, failures, thoughts, entropy } = result;
  const { success, ci95, formatErrors } = result;
  const interval = `${(100 * ci95[0]).toFixed(1)} – ${percent(ci95[1])}`;
  const rows = [[policy, percent(success), interval, ...means(result), percent(formatErrors)]];
  // The random player's success is a mean over rounds, so it has no interval.
  if (policy !== "random")
    rows.push(random === null ? ["random", "unknown"] : ["random", percent(random.success), "", ...means(random)]);
  if (policy !== "expert" && expert !== null) rows.push(["expert", percent(expert)]);
  rows.push(["best possible", best === null ? "unknown" : percent(best)]);
  const width = Math.max(...rows.map(([title]) => title!.length));
  const head = ["", "success", "95 % interval", "reward", "turns", "actions", "format errors"];
  const line = ([title, ...cells]: readonly string[]) =>
    [title!.padEnd(width), ...cells.map((cell, i) => cell.padStart(Math.max(8, head[i + 1]!.length)))]
      .join("  ")
      .trimEnd();
  const passes = result.passAt.map(({ k, share }) => `pass@${k} ${percent(share)}`);
  const env = name === tag.tag ? name : `${name} (${tag.tag})`;
  return [
    `${env}, ${plural(episodes, "board")} from seed ${seed}${samples === 1 ? "" : `, ${samples} episodes each`}, at most ${plural(actionsMax, "action")} each`,
    "",
    line(head),
    ...rows.map(line),
    ...(samples === 1 ? [] : ["", `solved by at least one of k tries: ${passes.join(" · ")}`]),
    ...(stops === null ? [] : ["", countLine("stopped", STOPPED, stops, episodes * samples)]),
    ...(failures === null ? [] : [countLine("failed", FAILED, failures, episodes * samples)]),
    ...(thoughts === null ? [] : [thoughtLine(thoughts)]),
    ...(entropy === null
      ? []
      : [`entropy: ${entropy.toFixed(3)} nats per written token, estimated from the sampled tokens`]),
  ].join("\n");
}

export function evaluationData(result: Result, { random, expert, best }: References) {
  const { tag, episodes, seed, samples, success, ci95, meanReward, meanTurns, meanActions, formatErrors } = result;
  const { failures, thoughts, entropy } = result;
  return {
    env: tag.tag,
    episodes,
    seed,
    samples,
    success,
    ci95,
    random: random?.success ?? null,
    expert,
    best,
    passAt: Object.fromEntries(result.passAt.map(({ k, share }) => [k, share])),
    meanReward,
    meanTurns,
    meanActions,
    formatErrors,
    ...(failures === null ? {} : { failures, thoughts, entropy }),
  };
}

const means = ({ meanReward, meanTurns, meanActions }: NonNullable<References["random"]>): string[] =>
  [meanReward, meanTurns, meanActions].map((value) => value.toFixed(2));

const STOPPED: Readonly<Record<StopReason, string>> = {
  success: "solved",
  over: "over without success",
  actions: "out of actions",
  turns: "out of turns",
  context: "context full",
};

const thoughtLine = ({ faithful, claiming }: Thoughts): string =>
  `thoughts: ${percent(claiming)} make a checkable claim; on average ${percent(faithful)} of the claims are true`;

const FAILED: Readonly<Record<Failure, string>> = {
  invalid_format: "invalid format",
  dead_end: "dead end",
  premature_stop: "premature stop",
  local_cycle: "local cycle",
  budget: "budget alone",
};

/** "failed: dead end 3 (50.0 %) · …", in the order of the names. */
function countLine<K extends string>(
  what: string,
  names: Readonly<Record<K, string>>,
  counts: Readonly<Record<K, number>>,
  episodes: number,
): string {
  const keys = Object.keys(names) as K[];
  const parts = keys.map((key) => `${names[key]} ${counts[key]} (${percent(counts[key] / episodes)})`);
  return `${what}: ${parts.join(" · ")}`;
}

export interface Evaluated {
  readonly policy: string;
  /** The envs that the policy was trained on; null for players and hosted models. */
  readonly trained: string | null;
  readonly result: Result;
  readonly references: References;
}

/**
 * A row for each policy and a column for each env; then a row of failures for each policy and env. If policies played an env with
 * different options or boards, a reference has several values, in the order of the policies.
 */
export function acrossEnvs(all: readonly Evaluated[]): string {
  const titles = new Map(
    all.map(({ policy, trained }) => [policy, trained === null ? policy : `${policy} (trained on ${trained})`]),
  );
  const envs = [...new Set(all.map(({ result }) => result.name))];
  const cell = (policy: string, env: string) => {
    const found = all.find((one) => one.policy === policy && one.result.name === env);
    return found === undefined ? "" : percent(found.result.success);
  };
  const referenceRow = (of: (one: References) => number | null) =>
    envs.map((env) => {
      const values = all.filter(({ result }) => result.name === env).map(({ references }) => of(references));
      return [...new Set(values.map((value) => (value === null ? "unknown" : percent(value))))].join(" / ");
    });
  const success = [
    ["success", ...envs],
    ...[...titles].map(([policy, title]) => [title, ...envs.map((env) => cell(policy, env))]),
    ["random", ...referenceRow(({ random }) => random?.success ?? null)],
    ["best possible", ...referenceRow(({ best }) => best)],
  ];
  const failed = all.flatMap(({ policy, result: { name, failures, episodes, samples } }) =>
    failures === null
      ? []
      : [[`${policy} on ${name}`, ...FAILURES.map((one) => percent(failures[one] / (episodes * samples)))]],
  );
  const names = FAILURES.map((one) => FAILED[one]);
  const tables = failed.length === 0 ? [success] : [success, [["failed, of all episodes", ...names], ...failed]];
  return tables.map(aligned).join("\n\n");
}

/** Shows the progress. On a terminal it redraws one line; elsewhere it prints at most four lines. */
export function progressLine(episodes: number): (played: number, solved: number) => void {
  const terminal = process.stderr.isTTY === true;
  const step = Math.ceil(episodes / 4);
  return (played, solved) => {
    const text = `played ${played} of ${episodes}, ${solved} solved`;
    if (terminal) process.stderr.write(played === episodes ? "\r\u001b[2K" : `\r${text}`);
    else if (played % step === 0 || played === episodes) process.stderr.write(`${text}\n`);
  };
}
