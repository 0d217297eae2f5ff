/**
 * Do thoughts still depend on what the policy sees? Draws turns of an update's episodes, has their reasoning scored under each
 * other's prompts, and says RAGEN-2's metrics of it. The formulas are model/health/mutual-information.ts; the scoring is the trainer's.
 *
 * - Measured with the policy that is about to be updated; draws are a function of run seed and update.
 * - Two samples, as in RAGEN-2: one turn of each of some episodes, and the first turns of some episodes.
 */

import type { Reasoned } from "../../model/health/cross-score.ts";
import {
  type CrossScores,
  collapseMetrics,
  isCollapseStep,
  type MarginalSpread,
} from "../../model/health/mutual-information.ts";
import type { BatchLimits } from "../../model/learn/batch.ts";
import { sequence, shuffle } from "../../model/rng.ts";
import type { Trajectory } from "../../model/trajectory.ts";
import type { Clock } from "../clock.ts";
import type { RunConfig } from "../config/config.ts";
import { RunError } from "../errors.ts";
import type { Values } from "./update-metrics.ts";
import { limitsOf } from "./warm-start.ts";

/** What the running means need from one measurement to the next. */
export interface CollapseState {
  readonly trajectory: MarginalSpread | null;
  readonly firstTurn: MarginalSpread | null;
}

export const COLLAPSE_START: CollapseState = { trajectory: null, firstTurn: null };

export interface CollapseContext {
  readonly config: RunConfig;
  readonly clock: Clock;
  /** The token that closes a thought; null if there is none. */
  readonly thinkEnd: number | null;
  readonly trainer: {
    crossScore(turns: readonly Reasoned[], limits: BatchLimits, temperature: number): Promise<CrossScores>;
  };
}

/** @throws {RunError} if thoughts are to be compared, and the policy has no token by which to tell where they end. */
export function checkCollapse({ health }: RunConfig, thinkEnd: number | null): void {
  if (health.collapse.everyUpdates === 0 || thinkEnd !== null) return;
  const why = "this policy's tokenizer has no token that closes a thought";
  throw new RunError(`health.collapse.everyUpdates: thoughts cannot be compared, as ${why}; set it to 0`);
}

/** @param update  from 0. @returns the state as it was and no values if this update is not measured, or nobody thought. */
export async function measureCollapse(
  { config, clock, thinkEnd, trainer }: CollapseContext,
  update: number,
  trajectories: readonly Trajectory[],
  before: CollapseState,
): Promise<{ state: CollapseState; values: Values }> {
  const { everyUpdates, samples } = config.health.collapse;
  if (thinkEnd === null || everyUpdates === 0 || !isCollapseStep(update + 1, everyUpdates)) {
    return { state: before, values: {} };
  }
  const started = clock.now();
  const uniform = sequence(config.seed, `collapse ${update}`);
  const thought = trajectories.map((trajectory) => reasonedTurns(trajectory, thinkEnd));
  const any = thought.flatMap((turns) => {
    const said = turns.filter((turn) => turn !== null);
    return said.length === 0 ? [] : [said[Math.floor(uniform() * said.length)]!];
  });
  const first = thought.flatMap(([turn = null]) => (turn === null ? [] : [turn]));
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
    return { spread: next, values: Object.fromEntries(named) as Values };
  }
  const trajectory = await measure("", any, before.trajectory);
  const firstTurn = await measure("first_", first, before.firstTurn);
  return {
    state: { trajectory: trajectory.spread, firstTurn: firstTurn.spread },
    values: { ...trajectory.values, ...firstTurn.values, "speed/collapse_s": (clock.now() - started) / 1000 },
  };
}

/** By turn: what was thought, after what; null for a turn whose thought is empty or was never closed. */
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
