/** Draws a Sokoban board, the counterpart of RAGEN's rgb_array, with our own sprites. */
import { drawBoard, type Palette, type Picture, type Sprite } from "../picture.ts";
import { BOX, BOX_ON_TARGET, type Board, PLAYER, TARGET, WALL } from "./rules.ts";

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
