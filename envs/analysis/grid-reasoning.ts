/**
 * A reasoning scorer for grid worlds: it checks the positions and the plan that a thought states. Reads observations as
 * grids of symbols or lists of coordinates. Knows no game.
 *
 * - A position claim is an object and its "(row, column)", counted from 0 at the top left: "the box is at (2, 3)".
 * - A plan claim is a list of directions after verbs: "go left, then up". The claim holds if the plan and the actions agree in all steps that
 *   both have. "left twice" is two steps. "push left" is a claim about the direction of the first push; the player may walk any number of steps
 *   before this push.
 * - A step that the thought denies or only supposes ("if I go up") is not part of the plan. "I cannot go left" claims that the next cell on the
 *   left has a wall, or a box without a free cell behind the box.
 * - A relation is a claim: "the box is to my right", "the target is below the box". A relation may hold at
 *   any distance, unless the thought says "directly". A wall must be in the next cell, because some wall lies in every direction.
 * - The score is the share of claims that hold; the whole plan is one claim.
 */
import type { Legend } from "../tag.ts";
import { clausesOf, isDenied, isSupposed, type ReasonedTurn, type ReasoningScorer, shareOf } from "./reasoning.ts";

/** Objects of a cell and the words for them in thoughts and observations. */
const OBJECTS: readonly (readonly [object: string, words: RegExp])[] = [
  ["player", /^(player|agent|i|me|i'm)$/],
  ["box", /^(box|boxes|crates?)$/],
  ["target", /^(targets?|goals?)$/],
  ["hole", /^holes?$/],
  ["wall", /^walls?$/],
  ["start", /^start$/],
];
const objectOf = (word: string): string | null =>
  OBJECTS.find(([, words]) => words.test(word.toLowerCase()))?.[0] ?? null;

interface World {
  /** Objects by "row,column". */
  readonly cells: ReadonlyMap<string, ReadonlySet<string>>;
  /** True if the observation shows the walls, which a simulation of pushes needs. */
  readonly hasWalls: boolean;
}

/** @param legend  null if observations are coordinates only */
export function gridScorer(legend: Legend | null): ReasoningScorer {
  const meanings = legend === null ? null : new Map(legend.map(([symbol, meaning]) => [symbol, objectsIn(meaning)]));
  return (turn) => {
    const world = worldOf(turn.observation, meanings);
    return shareOf([
      ...positionClaims(turn.thought, world),
      ...relationClaims(turn.thought, world),
      ...planClaims(turn, world),
    ]);
  };
}

const objectsIn = (meaning: string): ReadonlySet<string> =>
  new Set(
    meaning
      .split(/ +/)
      .map(objectOf)
      .filter((object) => object !== null),
  );

/** The world that an observation shows. */
function worldOf(observation: string, meanings: ReadonlyMap<string, ReadonlySet<string>> | null): World {
  const cells = new Map<string, ReadonlySet<string>>();
  const put = (row: number, column: number, objects: ReadonlySet<string>) => {
    const key = `${row},${column}`;
    cells.set(key, cells.get(key)?.union(objects) ?? objects);
  };
  // Lines such as "Boxes on target: (1, 2), (3, 4)".
  for (const [, name, places] of observation.matchAll(/^([A-Z][a-z ]*): ((?:\(\d+, \d+\)(?:, )?)+)$/gm)) {
    for (const [, row, column] of places!.matchAll(/\((\d+), (\d+)\)/g))
      put(Number(row), Number(column), objectsIn(name!));
  }
  if (meanings === null) return { cells, hasWalls: false };
  const grid = observation
    .split("\n")
    .filter((line) => line !== "" && [...line].every((symbol) => meanings.has(symbol)));
  grid.forEach((line, row) => {
    [...line].forEach((symbol, column) => {
      put(row, column, meanings.get(symbol)!);
    });
  });
  return { cells, hasWalls: grid.length > 0 };
}

/** An object and its stated positions: "boxes at (1, 2) and (3, 4)". */
const PLACED = /\b([A-Za-z']+)\b[^.;:()\n]{0,30}?:?\s*((?:\(\s*\d+\s*,\s*\d+\s*\)(?:\s*(?:,|and)\s*)*)+)/g;

function positionClaims(thought: string, world: World): boolean[] {
  const claims: boolean[] = [];
  for (const [clause, , places] of thought.matchAll(PLACED)) {
    const before = clause.slice(0, clause.indexOf("("));
    const object = before
      .match(/[A-Za-z']+/g)
      ?.map(objectOf)
      .findLast((found) => found !== null);
    if (object === undefined) continue;
    for (const [, row, column] of places!.matchAll(/\(\s*(\d+)\s*,\s*(\d+)\s*\)/g)) {
      claims.push(world.cells.get(`${Number(row)},${Number(column)}`)?.has(object!) ?? false);
    }
  }
  return claims;
}

const RELATION = new RegExp(
  [
    String.raw`\b(there\s+(?:is|are)\s+(?:an?\s+|no\s+)?)?(i|i'm|player|agent|box|crate|target|goal|hole|wall)\b`,
    String.raw`(\s+(?:is|am|are|lies|sits|stands))?(\s+not)?(\s+(?:directly|immediately|just|right))?`,
    String.raw`(?:\s+(?:to|on|at)\s+(the|my))?\s+(left|right|above|over|below|under|beneath|up|down)\b`,
    String.raw`(?:\s+side)?(?:\s+(?:of|from))?(?:\s+(?:the\s+)?(me|player|agent|box|crate|target|goal|hole|wall)\b)?`,
  ].join(""),
  "gi",
);
const WAYS: Readonly<Record<string, string>> = {
  above: "up",
  over: "up",
  below: "down",
  under: "down",
  beneath: "down",
};

function relationClaims(thought: string, world: World): boolean[] {
  const placesOf = (object: string | null) =>
    [...world.cells].flatMap(([key, objects]) => (objects.has(object ?? "player") ? [key.split(",").map(Number)] : []));
  return clausesOf(thought)
    .filter((clause) => !isSupposed(clause))
    .flatMap((clause) => [...clause.matchAll(RELATION)])
    .flatMap(([, there, object, is, not, directly, whose, word, other]) => {
      // "push the box up" and "move to the right" state no position.
      const statesPosition =
        there !== undefined || is !== undefined || /^i'm$/i.test(object!) || /^my$/i.test(whose ?? "");
      if (!statesPosition || world.cells.size === 0) return [];
      const way = word!.toLowerCase();
      const [down, right] = DIRECTIONS[WAYS[way] ?? way]!;
      const [from, to] = [objectOf(object!), other === undefined ? null : objectOf(other)];
      const isNext = directly !== undefined || from === "wall" || to === "wall";
      const holds = placesOf(from).some(([row, column]) =>
        placesOf(to).some(([ownRow, ownColumn]) => {
          const [rows, columns] = [row! - ownRow!, column! - ownColumn!];
          return isNext ? rows === down && columns === right : rows * down + columns * right > 0;
        }),
      );
      const isNot = not !== undefined || /\bno\b/i.test(there ?? "");
      return [holds !== isNot];
    });
}

const DIRECTIONS: Readonly<Record<string, readonly [row: number, column: number]>> = {
  up: [-1, 0],
  down: [1, 0],
  left: [0, -1],
  right: [0, 1],
};
const COUNTS = new Map(Object.entries({ once: 1, one: 1, twice: 2, two: 2, thrice: 3, three: 3, four: 4, five: 5 }));
const COUNT = `(${[...COUNTS.keys()].join("|")}|\\d)\\b`;
const UNIT = `(?:times?|steps?|cells?|squares?|tiles?)`;
/** "go down", "push it down twice", "move two cells to the right". */
const STEP = new RegExp(
  [
    String.raw`\b(push|go|going|move|moving|step|walk|head|try|then|and)\s+(?:(?:the\s+box|it|to\s+the)\s+)?`,
    String.raw`(?:${COUNT}\s+${UNIT}\s+(?:to\s+the\s+)?)?`,
    String.raw`(up|down|left|right)(?:wards?)?\b(?:\s+${COUNT}(?:\s+${UNIT})?)?`,
  ].join(""),
  "gi",
);
const countOf = (word = "one"): number => COUNTS.get(word.toLowerCase()) ?? Number(word);

function planClaims({ thought, actions }: ReasonedTurn, world: World): boolean[] {
  const taken = actions.map((action) => action.toLowerCase());
  if (taken.some((action) => !(action in DIRECTIONS))) return [];
  const steps: { push: boolean; direction: string }[] = [];
  const claims: boolean[] = [];
  for (const clause of clausesOf(thought)) {
    const named = [...clause.matchAll(STEP)].flatMap(([, verb, before, direction, behind]) => {
      const step = { push: verb!.toLowerCase() === "push", direction: direction!.toLowerCase() };
      return Array.from({ length: countOf(before ?? behind) }, () => step);
    });
    if (!isDenied(clause)) steps.push(...named);
    // After the plan's first step, "cannot" is about a cell that the player reaches later. This file does not check such a claim.
    else if (CANNOT.test(clause) && world.hasWalls && steps.length === 0) {
      claims.push(...named.map(({ direction }) => isBlocked(direction, world)));
    }
  }
  if (steps.length === 0) return claims;
  if (!steps[0]!.push) {
    claims.push(steps.slice(0, taken.length).every(({ direction }, i) => direction === taken[i]));
  } else if (world.hasWalls) claims.push(firstPush(taken, world) === steps[0]!.direction);
  return claims;
}

const CANNOT = /\bcan(?:not| not|'t)\b/i;

/** True if a step of the player in this direction would change nothing. */
function isBlocked(direction: string, world: World): boolean {
  const { row, column, has, free } = lookAround(world);
  const [down, right] = DIRECTIONS[direction]!;
  if (has(row + down, column + right, "box")) return !free(row + 2 * down, column + 2 * right);
  return !free(row + down, column + right);
}

function lookAround({ cells }: World) {
  const has = (row: number, column: number, object: string) => cells.get(`${row},${column}`)?.has(object) ?? false;
  const free = (row: number, column: number) =>
    cells.has(`${row},${column}`) && !has(row, column, "wall") && !has(row, column, "box");
  const start = [...cells].find(([, objects]) => objects.has("player"))?.[0] ?? "";
  const [row = Number.NaN, column = Number.NaN] = start === "" ? [] : start.split(",").map(Number);
  return { row, column, has, free };
}

/** The direction of the first push among the actions; null if the actions push no box. */
function firstPush(actions: readonly string[], world: World): string | null {
  let { row, column, has, free } = lookAround(world);
  for (const action of actions) {
    const [down, right] = DIRECTIONS[action]!;
    const [toRow, toColumn] = [row + down, column + right];
    if (has(toRow, toColumn, "box")) {
      if (free(toRow + down, toColumn + right)) return action;
    } else if (free(toRow, toColumn)) [row, column] = [toRow, toColumn];
  }
  return null;
}
