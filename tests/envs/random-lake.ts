import { type Lake, moved } from "../../envs/frozen-lake/map.ts";

/**
 * Probability that uniformly random actions reach the goal from the start within `horizon` actions. Ice changes nothing: a random
 * action that slips is a random action.
 */
export function randomSuccess({ size, goal, holes, start }: Lake, horizon: number): number {
  let value = Float64Array.from(holes, (_, cell) => Number(cell === goal));
  for (let n = 0; n < horizon; n++) {
    value = value.map((kept, cell) =>
      cell === goal || holes[cell] === 1
        ? kept
        : [0, 1, 2, 3].reduce((sum, action) => sum + value[moved(size, cell, action)]! / 4, 0),
    );
  }
  return value[start]!;
}
