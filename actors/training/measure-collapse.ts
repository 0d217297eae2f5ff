/**
 * Measures reasoning collapse: whether thoughts still depend on the prompt. The trainer computes the log-probability of
 * each thought under each prompt, for a sample of an update's turns. RAGEN-2's metrics (model/health/mutual-information.ts) come from
 * these numbers.
 *
 * - The trainer uses the weights from before the update. Run seed and update number decide the random draw of turns.
 * - There are two samples, as in RAGEN-2: one has a random turn of each drawn episode, the other has the first turn of each drawn episode.
 */
import type { Reasoned } from "../../model/health/cross-score.ts";
import { collapseMetrics, isCollapseStep, type MarginalSpread } from "../../model/health/mutual-information.ts";
import { sequence, shuffle } from "../../model/rng.ts";
import type { Trajectory } from "../../model/trajectory.ts";
import type { Clock } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import { RunError } from "../errors.ts";
import type { TrainerMethods } from "../learner/trainer.ts";
import type { MetricValues } from "../metrics/metrics.ts";
import type { Remote } from "../process/worker-rpc.ts";
import { limitsOf } from "./warm-start.ts";

/** The running values of both samples. Each measurement updates them, and the next measurement uses them. */
export interface CollapseState {
  readonly trajectory: MarginalSpread | null;
  readonly firstTurn: MarginalSpread | null;
}

export const COLLAPSE_START: CollapseState = { trajectory: null, firstTurn: null };

export interface CollapseContext {
  readonly config: RunConfig;
  readonly clock: Clock;
  /** The token that closes a thought; null if `env.think` is false, or if no single token closes a thought. */
  readonly thinkEnd: number | null;
  readonly trainer: Pick<Remote<TrainerMethods>, "crossScore">;
}

/** @throws {RunError} if the config asks to measure collapse, but no single token of the policy closes a thought */
export function checkCollapse({ health }: RunConfig, thinkEnd: number | null): void {
  if (health.collapse.everyUpdates === 0 || thinkEnd !== null) return;
  throw new RunError(
    `health.collapse.everyUpdates is ${health.collapse.everyUpdates}, but this policy's tokenizer has no token that closes a thought; set this key to 0`,
  );
}

/** @param update  the first update has number 0. @returns no values and the state `before` if this update measures no collapse */
export async function measureCollapse(
  { config, clock, thinkEnd, trainer }: CollapseContext,
  update: number,
  trajectories: readonly Trajectory[],
  before: CollapseState,
): Promise<{ state: CollapseState; values: MetricValues }> {
  const { everyUpdates, samples } = config.health.collapse;
  if (thinkEnd === null || everyUpdates === 0 || !isCollapseStep(update + 1, everyUpdates)) {
    return { state: before, values: {} };
  }
  const started = clock.now();
  const uniform = sequence(config.seed, `collapse ${update}`);
  const thoughts = trajectories.map((trajectory) => reasonedTurns(trajectory, thinkEnd));
  const any = thoughts.flatMap((turns) => {
    const closed = turns.filter((turn) => turn !== null);
    return closed.length === 0 ? [] : [closed[Math.floor(uniform() * closed.length)]!];
  });
  const first = thoughts.flatMap(([turn = null]) => (turn === null ? [] : [turn]));
  const limits = limitsOf(config.learner);
  async function measure(prefix: "" | "first_", turns: Reasoned[], spread: MarginalSpread | null) {
    const drawn = shuffle(turns, uniform).slice(0, samples);
    if (drawn.length === 0) return { spread, values: {} };
    const scores = await trainer.crossScore(drawn, limits, config.rollout.temperature);
    const { metrics, spread: next } = collapseMetrics(scores, spread);
    const named = Object.entries(metrics).map(([name, value]) => [
      `collapse/${prefix}${name.replace("@", "_at_")}`,
      value,
    ]);
    return { spread: next, values: Object.fromEntries(named) as MetricValues };
  }
  const trajectory = await measure("", any, before.trajectory);
  const firstTurn = await measure("first_", first, before.firstTurn);
  return {
    state: { trajectory: trajectory.spread, firstTurn: firstTurn.spread },
    values: { ...trajectory.values, ...firstTurn.values, "speed/collapse_s": (clock.now() - started) / 1000 },
  };
}

/** Prompt and thought of each turn; null if the thought is empty, or if no token closes the thought. */
export function reasonedTurns({ tokens, written, contexts, turns }: Trajectory, thinkEnd: number): (Reasoned | null)[] {
  let from = 0;
  return turns.map(({ end }) => {
    const start = written.indexOf(1, from);
    const close = tokens.indexOf(thinkEnd, start);
    from = end + 1;
    if (close <= start || close > end) return null;
    const context = contexts.findLast((begin) => begin <= start) ?? 0;
    return { prompt: tokens.slice(context, start), reasoning: tokens.slice(start, close) };
  });
}
