/** What chance and perfect play reach on the boards that a policy is judged by. */
import { bestPossible, evaluateRandom, expertSuccess } from "../../envs/analysis/evaluate.ts";
import { Refused } from "../../envs/outside/json-server.ts";
import type { RunConfig } from "../config/config.ts";
import { RunError } from "../errors.ts";
import { type MetricName, partName } from "../metrics/metrics.ts";
import { episodeRules, playedEnvs, tagOf } from "../play/envs-of-run.ts";
import type { TrainingContext } from "./context.ts";
import type { Success } from "./report.ts";
import { percent } from "./update-metrics.ts";

export type Baselines = Pick<Success, "random" | "best" | "expert">;

/**
 * By env, in the order of the mix.
 *
 * @throws {RunError} if an env's server refuses: started again, we would ask it the same. One that cannot be reached may come back.
 */
export async function measureBaselines(config: RunConfig): Promise<ReadonlyMap<string, Baselines>> {
  const { episodes, firstSeed: seed } = config.validate;
  const measured = new Map<string, Baselines>();
  for (const { name } of playedEnvs(config)) {
    const tag = tagOf(config, name);
    const { actionsMax } = episodeRules(config, name, tag);
    const boards = { episodes, seed, actionsMax };
    try {
      const { success: random } = await evaluateRandom(tag, boards);
      measured.set(name, { random, best: bestPossible(tag, boards), expert: await expertSuccess(tag, boards) });
    } catch (error) {
      if (error instanceof Refused) throw new RunError(`${name} cannot be played: ${error.message}`, { cause: error });
      throw error;
    }
  }
  return measured;
}

/** Over all envs, on equally many boards each; what is not known of one env is not known of them. */
export function meanBaselines(measured: ReadonlyMap<string, Baselines>): Baselines {
  const all = [...measured.values()];
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const known = (values: readonly (number | null)[]) => {
    const numbers = values.filter((value) => value !== null);
    return numbers.length === all.length ? mean(numbers) : null;
  };
  return {
    random: mean(all.map(({ random }) => random)),
    best: known(all.map(({ best }) => best)),
    expert: known(all.map(({ expert }) => expert)),
  };
}

/** Measure, and tell the sink and people. */
export async function tellBaselines({ config, reporter, say }: Pick<TrainingContext, "config" | "reporter" | "say">) {
  const measured = await measureBaselines(config);
  const mean = meanBaselines(measured);
  const tell = ({ random, best, expert }: Baselines, named: (row: MetricName) => MetricName) => {
    const known = best === null ? {} : { [named("baseline/best")]: best };
    const played = expert === null ? {} : { [named("baseline/expert")]: expert };
    reporter.metrics(0, { [named("baseline/random")]: random, ...known, ...played });
  };
  tell(mean, (row) => row);
  if (measured.size > 1) for (const [env, own] of measured) tell(own, (row) => partName(row, "env", env));
  say(
    "baselines",
    `random ${percent(mean.random)}, best possible ${mean.best === null ? "unknown" : percent(mean.best)}` +
      (mean.expert === null ? "" : `, expert ${percent(mean.expert)}`),
  );
  return measured;
}
