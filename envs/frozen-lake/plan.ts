/**
 * Optimal play on a frozen lake by value iteration over the true dynamics, and the players that use it.
 *
 * - value(n, cell) is the highest probability of reaching the goal within n actions. If several actions have the highest value, the plan
 *   takes the first of those that reach this value with the fewest actions.
 *
 * Source: Bellman (1957), finite horizon.
 */
import { noisyReply, type Plan } from "../demonstrator.ts";
import type { Game } from "../env.ts";
import { type Demonstrator, expectGame, type Player } from "../tag.ts";
import { type FrozenLakeConfig, FrozenLakeGame } from "./game.ts";
import { type Lake, moved } from "./map.ts";

type Ice = Pick<FrozenLakeConfig, "isSlippery" | "successRate">;

export interface LakePlan {
  /** Highest probability of success from `cell` within `actionsLeft` actions. */
  value(actionsLeft: number, cell: number): number;
  /** The action that achieves this value. */
  action(actionsLeft: number, cell: number): number;
}

export function planLake(lake: Lake, ice: Ice): LakePlan {
  const step = expectation(lake, ice);
  const atGoal = new Float64Array(lake.holes.length).map((_, cell) => (cell === lake.goal ? 1 : 0));
  /** (actions left) The value and the best action of each cell. */
  const budgets = [{ values: atGoal, actions: new Uint8Array(atGoal.length) }];
  const planFor = (actionsLeft: number) => {
    while (budgets.length <= actionsLeft) {
      const before = budgets.at(-1)!;
      const values = before.values.slice();
      const actions = before.actions.slice();
      for (let cell = 0; cell < values.length; cell++) {
        if (cell === lake.goal || lake.holes[cell] === 1) continue;
        const actionValues = [0, 1, 2, 3].map((action) => step(before.values, cell, action));
        const best = Math.max(...actionValues);
        // If one more action adds no value, keep the action of the smaller budget: `actionValues`'s first best action may waste an action.
        if (best > values[cell]!) actions[cell] = actionValues.indexOf(best);
        values[cell] = best;
      }
      budgets.push({ values, actions });
    }
    return budgets[actionsLeft]!;
  };
  return {
    value: (actionsLeft, cell) => planFor(actionsLeft).values[cell]!,
    action: (actionsLeft, cell) => planFor(actionsLeft).actions[cell]!,
  };
}

/** Returns a function for the expected value after one action. */
function expectation(lake: Lake, ice: Ice): (value: Float64Array, cell: number, action: number) => number {
  const intended = ice.isSlippery ? ice.successRate : 1;
  const side = (1 - intended) / 2;
  return (value, cell, action) =>
    intended * value[moved(lake.size, cell, action)]! +
    side * value[moved(lake.size, cell, (action + 3) & 3)]! +
    side * value[moved(lake.size, cell, (action + 1) & 3)]!;
}

const plans = new WeakMap<FrozenLakeGame, LakePlan>();

function planOf(game: FrozenLakeGame): LakePlan {
  return plans.getOrInsertComputed(game, () => planLake(game.lake, game.config));
}

/** Value iteration. The player sees the whole lake. */
export const optimalFrozenLake: Player = (game, actionsLeft) => {
  const lake = expectGame(game, FrozenLakeGame);
  return planOf(lake).action(actionsLeft, lake.player);
};

export function bestFrozenLake(game: Game, actionsMax: number): number {
  const lake = expectGame(game, FrozenLakeGame);
  return planOf(lake).value(actionsMax, lake.lake.start);
}

const BABBLE_ACTIONS_MAX = 3;

export const frozenLakeDemonstrator: Demonstrator = {
  reply(game, actionsLeft, skill, uniform) {
    const lake = expectGame(game, FrozenLakeGame);
    return noisyReply(lake, actionsLeft, skill, uniform, BABBLE_ACTIONS_MAX, () => planSteps(lake, actionsLeft));
  },
};

/** The best first step. If the game goes on at the cell that this step intends to reach, also the best second step from there. */
function planSteps(game: FrozenLakeGame, actionsLeft: number): Plan | null {
  const plan = planOf(game);
  if (plan.value(actionsLeft, game.player) === 0) return null;
  const first = plan.action(actionsLeft, game.player);
  const thought = `go ${game.actions[first]}`;
  const { size, goal, holes } = game.lake;
  const reached = moved(size, game.player, first);
  const onward = actionsLeft > 1 && reached !== goal && holes[reached] === 0;
  return { thought, actions: onward ? [first, plan.action(actionsLeft - 1, reached)] : [first] };
}
