/**
 * Renders boards as a grid of symbols, as coordinates or as a picture. Knows no rules.
 * Source: RAGEN ragen/env/sokoban/env.py (render). As in RAGEN, the coordinates omit the walls.
 */
import { drawBoard, type Palette, type Picture, type Sprite } from "../picture.ts";
import { BOX, BOX_ON_TARGET, type Board, PLAYER, TARGET, WALL } from "./rules.ts";

/** Index of the symbol for a player on a target. */
const PLAYER_ON_TARGET = 6;

/** The index of a cell's symbol. */
function shown(board: Board, cell: number): number {
  const code = board.state[cell]!;
  return code === PLAYER && board.fixed[cell] === TARGET ? PLAYER_ON_TARGET : code;
}

const NEW_LINE = 10;
const UTF_8 = new TextDecoder();
const UTF_16 = new TextDecoder("utf-16", { ignoreBOM: true });

/**
 * Decodes an array of characters. A text from 40 concatenations takes twice as long to make and to compare, and random play renders
 * thousands of boards a second. ASCII characters decode in a third of the time of others, and their text needs half the memory.
 *
 * @param lookup  symbols; each is one character
 */
export function renderGrid(board: Board, lookup: readonly string[]): string {
  const characters = board.rows * (board.cols + 1) - 1;
  const ascii = new Uint8Array(characters);
  if (writeGrid(ascii, board, lookup) < 128) return UTF_8.decode(ascii);
  const wide = new Uint16Array(characters);
  writeGrid(wide, board, lookup);
  return UTF_16.decode(wide);
}

/** Writes the characters' codes. @returns the bits that at least one code has */
function writeGrid(text: Uint8Array | Uint16Array, board: Board, lookup: readonly string[]): number {
  const { rows, cols } = board;
  let bits = 0;
  let at = 0;
  for (let row = 0; row < rows; row++) {
    if (row > 0) text[at++] = NEW_LINE;
    for (let col = 0; col < cols; col++) {
      const code = lookup[shown(board, row * cols + col)]!.charCodeAt(0);
      text[at++] = code;
      bits |= code;
    }
  }
  return bits;
}

const NAMES: readonly (readonly [number, string])[] = [
  [BOX, "Boxes"],
  [BOX_ON_TARGET, "Boxes on target"],
  [PLAYER, "Player"],
  [PLAYER_ON_TARGET, "Player on target"],
];

/** The line `Targets` lists all targets, including those under a box or the player. */
export function renderCoordinates(board: Board): string {
  const lines = [`Board size: ${board.rows} rows x ${board.cols} cols (zero-indexed).`];
  const list = (name: string, holds: (cell: number) => boolean) => {
    const cells = [...board.state.keys()].filter(holds);
    const places = cells.map((cell) => `(${Math.floor(cell / board.cols)}, ${cell % board.cols})`);
    if (places.length > 0) lines.push(`${name}: ${places.join(", ")}`);
  };
  list("Targets", (cell) => board.fixed[cell] === TARGET);
  for (const [code, name] of NAMES) list(name, (cell) => shown(board, cell) === code);
  return lines.join("\n");
}

const PALETTE: Palette = {
  W: [139, 84, 58],
  m: [196, 170, 146],
  f: [236, 228, 210],
  s: [224, 214, 192],
  t: [200, 60, 50],
  B: [184, 134, 60],
  b: [222, 178, 104],
  D: [62, 128, 70],
  d: [124, 184, 120],
  h: [246, 204, 164],
  p: [40, 84, 160],
  l: [38, 38, 48],
};

const WALLS: Sprite = ["WWWmWWWm", "WWWmWWWm", "mmmmmmmm", "WmWWWmWW", "WmWWWmWW", "mmmmmmmm", "WWWmWWWm", "mmmmmmmm"];
const FLOOR: Sprite = ["ffffffff", "ffffffff", "ffffffff", "ffffffff", "ffffffff", "ffffffff", "ffffffff", "ssssssss"];
const MARK: Sprite = ["........", "..tttt..", ".t....t.", ".t.tt.t.", ".t.tt.t.", ".t....t.", "..tttt..", "........"];
const CRATE: Sprite = ["........", ".BBBBBB.", ".BbbbbB.", ".BbBBbB.", ".BbBBbB.", ".BbbbbB.", ".BBBBBB.", "........"];
const STORED: Sprite = CRATE.map((row) => row.replaceAll("B", "D").replaceAll("b", "d"));
const MAN: Sprite = ["...hh...", "...hh...", ".pppppp.", ".pppppp.", "..pppp..", "..p..p..", "..l..l..", ".ll..ll."];

const PIECES: Readonly<Record<number, Sprite>> = { [PLAYER]: MAN, [BOX]: CRATE, [BOX_ON_TARGET]: STORED };

/** Picture pixels per sprite pixel; a cell is 32 pixels wide. */
const SCALE = 4;

/** Draws a board with our own sprites. Corresponds to RAGEN's render mode rgb_array. */
export function sokobanPicture(board: Board): Picture {
  const cells = Array.from({ length: board.rows }, (_, row) =>
    Array.from({ length: board.cols }, (_, col) => layersOf(board, row * board.cols + col)),
  );
  return drawBoard(cells, PALETTE, SCALE);
}

function layersOf({ fixed, state }: Board, cell: number): Sprite[] {
  if (fixed[cell] === WALL) return [WALLS];
  const ground = fixed[cell] === TARGET ? [FLOOR, MARK] : [FLOOR];
  const piece = PIECES[state[cell]!];
  return piece === undefined ? ground : [...ground, piece];
}
