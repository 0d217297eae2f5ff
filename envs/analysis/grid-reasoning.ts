/**
 * Scores thoughts about grid worlds by rule: are the positions stated in it true, and does the plan stated in it match the
 * actions? Reads observations as text, grids or lists of coordinates; knows no game and no particular env.
 *
 * - A position is a thing and its "(row, column)": "the box is at (2, 3)". Rows and columns count from 0 at the top left.
 * - A plan is a list of directions after verbs: "go left, then up". It matches if it and the actions begin alike: what the longer
 *   one has beyond the other says nothing. "push left" is about the first push, whatever walk there is before it.
 * - The score is the share of all claims that hold; the plan is one claim.
 */
import type { ReasonedTurn, ReasoningScorer } from "./reasoning.ts";

/** Things that may stand in a cell, by the words that thoughts and observations use for them. */
const THINGS: readonly (readonly [thing: string, words: RegExp])[] = [
  ["player", /^(player|agent|i|me|i'm)$/],
  ["box", /^(box|boxes|crates?)$/],
  ["target", /^(targets?|goals?)$/],
  ["hole", /^holes?$/],
  ["wall", /^walls?$/],
  ["start", /^start$/],
];
const thingOf = (word: string): string | null =>
  THINGS.find(([, words]) => words.test(word.toLowerCase()))?.[0] ?? null;

/** What is where; keys are "row,column". */
interface World {
  readonly cells: ReadonlyMap<string, ReadonlySet<string>>;
  /** Walls are known, so that pushes can be followed. */
  readonly whole: boolean;
}

export interface GridSymbols {
  /** Each symbol and its meaning, as "box on target"; null if observations are coordinates alone. */
  readonly symbols: readonly (readonly [symbol: string, meaning: string])[] | null;
}

export function gridScorer({ symbols }: GridSymbols): ReasoningScorer {
  const meanings = symbols === null ? null : new Map(symbols.map(([symbol, meaning]) => [symbol, thingsIn(meaning)]));
  return (turn) => {
    const world = worldOf(turn.observation, meanings);
    const claims = [...positionClaims(turn.thought, world), ...planClaims(turn, world)];
    return claims.length === 0 ? null : claims.filter(Boolean).length / claims.length;
  };
}

const thingsIn = (meaning: string): string[] =>
  meaning
    .split(/ +/)
    .map(thingOf)
    .filter((thing) => thing !== null);

function worldOf(observation: string, meanings: ReadonlyMap<string, readonly string[]> | null): World {
  const cells = new Map<string, Set<string>>();
  const put = (row: number, column: number, things: readonly string[]) => {
    const key = `${row},${column}`;
    cells.set(key, new Set([...(cells.get(key) ?? []), ...things]));
  };
  // Lines such as "Boxes on target: (1, 2), (3, 4)".
  for (const [, name, places] of observation.matchAll(/^([A-Z][a-z ]*): ((?:\(\d+, \d+\)(?:, )?)+)$/gm)) {
    for (const [, row, column] of places!.matchAll(/\((\d+), (\d+)\)/g))
      put(Number(row), Number(column), thingsIn(name!));
  }
  if (meanings === null) return { cells, whole: false };
  const grid = observation
    .split("\n")
    .filter((line) => line !== "" && [...line].every((symbol) => meanings.has(symbol)));
  grid.forEach((line, row) => {
    [...line].forEach((symbol, column) => {
      put(row, column, meanings.get(symbol)!);
    });
  });
  return { cells, whole: grid.length > 0 };
}

/** A thing and the places said of it: "boxes at (1, 2) and (3, 4)". */
const PLACED = /\b([A-Za-z']+)\b[^.;:()\n]{0,30}?:?\s*((?:\(\s*\d+\s*,\s*\d+\s*\)(?:\s*(?:,|and)\s*)*)+)/g;

function positionClaims(thought: string, { cells }: World): boolean[] {
  const claims: boolean[] = [];
  for (const [clause, , places] of thought.matchAll(PLACED)) {
    const before = clause.slice(0, clause.indexOf("("));
    const thing = before
      .match(/[A-Za-z']+/g)
      ?.map(thingOf)
      .findLast((found) => found !== null);
    if (thing === undefined) continue;
    for (const [, row, column] of places!.matchAll(/\(\s*(\d+)\s*,\s*(\d+)\s*\)/g)) {
      claims.push(cells.get(`${Number(row)},${Number(column)}`)?.has(thing!) ?? false);
    }
  }
  return claims;
}

const DIRECTIONS: Readonly<Record<string, readonly [row: number, column: number]>> = {
  up: [-1, 0],
  down: [1, 0],
  left: [0, -1],
  right: [0, 1],
};
const STEP =
  /\b(push|go|going|move|moving|step|walk|head|try|then|and)\s+(?:(?:the\s+box|it|to\s+the)\s+)?(up|down|left|right)\b/gi;

function planClaims({ thought, actions }: ReasonedTurn, world: World): boolean[] {
  const steps = [...thought.matchAll(STEP)].map(([, verb, direction]) => ({
    push: verb!.toLowerCase() === "push",
    direction: direction!.toLowerCase(),
  }));
  const taken = actions.map((action) => action.toLowerCase());
  if (steps.length === 0 || taken.some((action) => !(action in DIRECTIONS))) return [];
  if (!steps[0]!.push) {
    return [steps.slice(0, taken.length).every(({ direction }, i) => direction === taken[i])];
  }
  return world.whole ? [firstPush(taken, world) === steps[0]!.direction] : [];
}

/** The direction in which the actions first move a box; null if they move none. */
function firstPush(actions: readonly string[], { cells }: World): string | null {
  const has = (row: number, column: number, thing: string) => cells.get(`${row},${column}`)?.has(thing) ?? false;
  const free = (row: number, column: number) =>
    cells.has(`${row},${column}`) && !has(row, column, "wall") && !has(row, column, "box");
  const start = [...cells].find(([, things]) => things.has("player"))?.[0];
  if (start === undefined) return null;
  let [row, column] = start.split(",").map(Number) as [number, number];
  for (const action of actions) {
    const [down, right] = DIRECTIONS[action]!;
    const [toRow, toColumn] = [row + down, column + right];
    if (has(toRow, toColumn, "box")) {
      if (free(toRow + down, toColumn + right)) return action;
    } else if (free(toRow, toColumn)) [row, column] = [toRow, toColumn];
  }
  return null;
}
