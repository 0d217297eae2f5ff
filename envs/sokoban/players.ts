/** Players of Sokoban: the shortest solution, and a demonstrator whose thoughts name the next push. */

import { noisyReply, type Plan } from "../demonstrator.ts";
import type { Game } from "../env.ts";
import { type Demonstrator, expectGame, type Player, uniformPlayer } from "../tag.ts";
import { SokobanGame } from "./game.ts";
import { type Board, boxesOf, deltas, PLAYER, SokobanState } from "./rules.ts";
import { shortestPath } from "./solve.ts";

/** A solution that a player follows; `position` is the position after its first `taken` actions. */
interface Followed {
  readonly path: readonly number[];
  readonly position: SokobanState;
  taken: number;
}

const followed = new WeakMap<SokobanGame, Followed>();

/**
 * The rest of a shortest solution; null if the board has no solution. Searches again only if the game's position is not on the solution that
 * the last search found.
 */
function solution(game: SokobanGame): readonly number[] | null {
  const last = followed.get(game);
  if (last !== undefined) {
    for (; ; last.taken++) {
      if (samePosition(last.position.board, game.board)) return last.path.slice(last.taken);
      if (last.taken === last.path.length) break;
      last.position.act(last.path[last.taken]!);
    }
  }
  const path = shortestPath(game.board);
  if (path === null) return null;
  const copy = { ...game.board, state: game.board.state.slice() };
  followed.set(game, { path, position: new SokobanState(copy, Number.POSITIVE_INFINITY), taken: 0 });
  return path;
}

function samePosition(a: Board, b: Board): boolean {
  return a.state.every((cell, i) => cell === b.state[i]);
}

/** Plays a shortest solution. If the board has no solution, plays uniformly random moves. */
export const optimalSokoban: Player = (game, actionsLeft, uniform) =>
  solution(expectGame(game, SokobanGame))?.[0] ?? uniformPlayer(game, actionsLeft, uniform);

export function bestSokoban(game: Game, actionsMax: number): number {
  const path = shortestPath(expectGame(game, SokobanGame).board);
  return path !== null && path.length <= actionsMax ? 1 : 0;
}

/** Maximum number of actions of one reply. */
const REPLY_ACTIONS_MAX = 5;

export const sokobanDemonstrator: Demonstrator = {
  reply(game, actionsLeft, skill, uniform) {
    const sokoban = expectGame(game, SokobanGame);
    const lengthMax = Math.min(REPLY_ACTIONS_MAX, actionsLeft);
    return noisyReply(sokoban, actionsLeft, skill, uniform, REPLY_ACTIONS_MAX, () => planPushes(sokoban, lengthMax));
  },
};

/**
 * The next part of a shortest solution: the walk to the next push, this push, and the pushes that follow without a walk. At most `lengthMax`
 * actions.
 */
function planPushes(game: SokobanGame, lengthMax: number): Plan | null {
  const path = solution(game);
  if (path === null || path.length === 0) return null;
  const pushes = whichPush(game.board, path);
  const first = pushes.indexOf(true);
  let end = first + 1;
  while (pushes[end]) end++;
  return { thought: `push ${game.actions[path[first]!]}`, actions: path.slice(0, Math.min(end, lengthMax)) };
}

/** True for each action of the path that moves a box. */
function whichPush(board: Board, path: readonly number[]): boolean[] {
  const steps = deltas(board.cols);
  const boxes = new Set(boxesOf(board));
  let player = board.state.indexOf(PLAYER);
  return path.map((action) => {
    player += steps[action]!;
    if (!boxes.delete(player)) return false;
    boxes.add(player + steps[action]!);
    return true;
  });
}
