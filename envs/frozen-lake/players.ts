/** Players of FrozenLake: value iteration, and a demonstrator whose thought names its first step. They see the whole lake. */

import { noisyReply, type Plan } from "../demonstrator.ts";
import type { Game, Uniform } from "../env.ts";
import { type Demonstrator, expectGame, type Player, type Skill } from "../tag.ts";
import { FrozenLakeGame } from "./game.ts";
import { moved } from "./map.ts";
import { type LakePlan, planLake } from "./plan.ts";

const plans = new WeakMap<FrozenLakeGame, LakePlan>();

function planOf(game: FrozenLakeGame): LakePlan {
  const known = plans.get(game);
  if (known !== undefined) return known;
  const plan = planLake(game.lake, game.config);
  plans.set(game, plan);
  return plan;
}

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
  reply(game: Game, actionsLeft: number, skill: Skill, uniform: Uniform): string {
    const lake = expectGame(game, FrozenLakeGame);
    return noisyReply(lake, actionsLeft, skill, uniform, BABBLE_ACTIONS_MAX, () => planSteps(lake, actionsLeft));
  },
};

/** The best first step, and the best second step from the intended next cell if the game continues there. */
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
