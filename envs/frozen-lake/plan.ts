/**
 * Optimal play on a frozen lake by value iteration over the true dynamics. Knows no game in play.
 *
 * - value(n, cell) is the highest probability of reaching the goal within n actions. Of equal actions the one that needs the fewest
 *   actions counts, then the first.
 *
 * Source: Bellman (1957), finite horizon.
 */
import type { FrozenLakeConfig } from "./game.ts";
import { type Lake, moved } from "./map.ts";

type Ice = Pick<FrozenLakeConfig, "isSlippery" | "successRate">;

export interface LakePlan {
  /** Highest probability of success from `cell` within `actionsLeft` actions. */
  value(actionsLeft: number, cell: number): number;
  /** The action that achieves this value. */
  action(actionsLeft: number, cell: number): number;
}

export function planLake(lake: Lake, ice: Ice): LakePlan {
  const step = outcomes(lake, ice);
  const values: Float64Array[] = [atGoal(lake)];
  const actions: Uint8Array[] = [new Uint8Array(lake.holes.length)];
  const extend = (horizon: number) => {
    for (let n = values.length; n <= horizon; n++) {
      const value = values[n - 1]!.slice();
      const action = new Uint8Array(value.length);
      for (let cell = 0; cell < value.length; cell++) {
        if (ends(lake, cell)) continue;
        const worth = [0, 1, 2, 3].map((a) => step(values[n - 1]!, cell, a));
        const best = Math.max(...worth);
        // If one action less is worth as much, its action: otherwise the first action may be one that only loses time.
        action[cell] = best > value[cell]! ? worth.indexOf(best) : actions[n - 1]![cell]!;
        value[cell] = best;
      }
      values.push(value);
      actions.push(action);
    }
  };
  return {
    value(actionsLeft, cell) {
      extend(actionsLeft);
      return values[actionsLeft]![cell]!;
    },
    action(actionsLeft, cell) {
      extend(actionsLeft);
      return actions[actionsLeft]![cell]!;
    },
  };
}

/** Probability that uniformly random actions reach the goal from the start within `horizon` actions. */
export function randomSuccess(lake: Lake, ice: Ice, horizon: number): number {
  const step = outcomes(lake, ice);
  let value = atGoal(lake);
  for (let n = 0; n < horizon; n++) {
    value = value.map((kept, cell) =>
      ends(lake, cell) ? kept : [0, 1, 2, 3].reduce((sum, action) => sum + step(value, cell, action) / 4, 0),
    );
  }
  return value[lake.start]!;
}

function ends(lake: Lake, cell: number): boolean {
  return cell === lake.goal || lake.holes[cell] === 1;
}

function atGoal(lake: Lake): Float64Array {
  return new Float64Array(lake.holes.length).map((_, cell) => (cell === lake.goal ? 1 : 0));
}

/** Expected value after one action. */
function outcomes(lake: Lake, ice: Ice): (value: Float64Array, cell: number, action: number) => number {
  const intended = ice.isSlippery ? ice.successRate : 1;
  const side = (1 - intended) / 2;
  return (value, cell, action) =>
    intended * value[moved(lake.size, cell, action)]! +
    side * value[moved(lake.size, cell, (action + 3) & 3)]! +
    side * value[moved(lake.size, cell, (action + 1) & 3)]!;
}
