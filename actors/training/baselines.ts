/** Success of random, optimal and scripted play on the validation boards. */
import { bestPossible, evaluateRandom, expertSuccess } from "../../envs/analysis/evaluate.ts";
import { DataError } from "../../envs/data/rows.ts";
import { Refused } from "../../envs/outside/json-server.ts";
import { mean } from "../../model/statistics.ts";
import type { RunConfig } from "../config/config.ts";
import { RunError } from "../errors.ts";
import { type MetricName, partName } from "../metrics/metrics.ts";
import { percent } from "../number-text.ts";
import { actionsAllowed, episodeRules, playedEnvs, tagOf } from "../play/envs-of-run.ts";
import type { TrainingContext } from "./context.ts";

export interface Baselines {
  /** Success of random play; null if the env has no random player. */
  readonly random: number | null;
  /** Success of optimal play; null if it is unknown. */
  readonly best: number | null;
  /** Success of the env's expert; null if the env has no expert, or if `best` is known. */
  readonly expert: number | null;
}

/**
 * The baselines of each env, in the order of the mix.
 *
 * @throws {RunError} if an env's server refuses the request, or if a data file is missing or invalid: a restarted learner would fail in the
 *   same way. Other errors of the server may be temporary; this function throws them unchanged.
 */
export async function measureBaselines(config: RunConfig): Promise<ReadonlyMap<string, Baselines>> {
  const { episodes, firstSeed: seed } = config.validate;
  const measured = new Map<string, Baselines>();
  for (const { name } of playedEnvs(config)) {
    const tag = tagOf(config, name);
    const boards = { episodes, seed, actionsMax: actionsAllowed(episodeRules(config, name, tag)) };
    try {
      const random = (await evaluateRandom(tag, boards))?.success ?? null;
      measured.set(name, { random, best: bestPossible(tag, boards), expert: await expertSuccess(tag, boards) });
    } catch (error) {
      if (error instanceof Refused || error instanceof DataError)
        throw new RunError(`${name} cannot be played: ${error.message}`, { cause: error });
      throw error;
    }
  }
  return measured;
}

/** Means over the envs; all envs have the same number of boards. If one env has no value for a baseline, the baseline's mean is null. */
export function meanBaselines(measured: ReadonlyMap<string, Baselines>): Baselines {
  const all = [...measured.values()];
  const known = (values: readonly (number | null)[]) => {
    const numbers = values.filter((value) => value !== null);
    return numbers.length === all.length ? mean(numbers) : null;
  };
  return {
    random: known(all.map(({ random }) => random)),
    best: known(all.map(({ best }) => best)),
    expert: known(all.map(({ expert }) => expert)),
  };
}

/** Measures the baselines and reports them as metrics and as a line of the log. */
export async function reportBaselines({ config, reporter, log }: Pick<TrainingContext, "config" | "reporter" | "log">) {
  const measured = await measureBaselines(config);
  const over = meanBaselines(measured);
  const report = ({ random, best, expert }: Baselines, named: (row: MetricName) => MetricName) => {
    reporter.metrics(0, {
      ...(random === null ? {} : { [named("baseline/random")]: random }),
      ...(best === null ? {} : { [named("baseline/best")]: best }),
      ...(expert === null ? {} : { [named("baseline/expert")]: expert }),
    });
  };
  report(over, (row) => row);
  if (measured.size > 1) for (const [env, own] of measured) report(own, (row) => partName(row, "env", env));
  log.line(
    "baselines",
    `random ${over.random === null ? "unknown" : percent(over.random)}, best possible ${over.best === null ? "unknown" : percent(over.best)}` +
      (over.expert === null ? "" : `, expert ${percent(over.expert)}`),
  );
  return measured;
}
