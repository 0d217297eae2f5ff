import { describe, expect, test } from "bun:test";
import { drawBoard, filmStrip, type Picture } from "../../envs/picture.ts";
import { sokobanPicture } from "../../envs/sokoban/render.ts";
import { boardOf } from "./sokoban-boards.ts";

const pixel = ({ width, rgb }: Picture, x: number, y: number) => [
  ...rgb.subarray(3 * (y * width + x), 3 * (y * width + x) + 3),
];

test("a board is drawn cell by cell, layer over layer, each dot as a square", () => {
  const palette = { a: [1, 2, 3], b: [4, 5, 6] } as const;
  const [ground, dot] = [
    ["aa", "aa"],
    ["b.", ".."],
  ];
  const picture = drawBoard([[[ground!], [ground!, dot!]]], palette, 2);
  expect([picture.width, picture.height]).toEqual([8, 4]);
  expect([
    pixel(picture, 0, 0),
    pixel(picture, 4, 0),
    pixel(picture, 5, 1),
    pixel(picture, 6, 0),
    pixel(picture, 4, 2),
  ]).toEqual([
    [1, 2, 3],
    [4, 5, 6],
    [4, 5, 6],
    [1, 2, 3],
    [1, 2, 3],
  ]);
});

test("a strip has its pictures in rows, and white between them", () => {
  const one = (value: number): Picture => ({ width: 2, height: 1, rgb: new Uint8Array(6).fill(value) });
  const strip = filmStrip([one(1), one(2), one(3)], 2, 1);
  expect([strip.width, strip.height]).toEqual([5, 3]);
  const reds = Array.from({ length: 3 }, (_, y) => Array.from({ length: 5 }, (_, x) => pixel(strip, x, y)[0]!));
  expect(reds).toEqual([
    [1, 1, 255, 2, 2],
    [255, 255, 255, 255, 255],
    [3, 3, 255, 255, 255],
  ]);
});

describe("a picture of Sokoban", () => {
  // Fixed: 2 is a target. State: 3 box on target, 4 box, 5 player.
  const wall = [0, 0, 0, 0, 0, 0];
  const board = (inner: number[], fixed: number[]) =>
    boardOf([wall, [0, ...fixed, 0], wall], [wall, [0, ...inner, 0], wall]);
  const middle = (picture: Picture, col: number) => pixel(picture, 32 * col + 15, 32 + 15);

  test("has 32 pixels a cell, and every kind of cell looks its own", () => {
    const picture = sokobanPicture(board([5, 4, 3, 2], [1, 1, 2, 2]));
    expect([picture.width, picture.height]).toEqual([6 * 32, 3 * 32]);
    const cells = [0, 1, 2, 3, 4].map((col) => String(middle(picture, col)));
    expect(new Set(cells).size).toBe(5);
  });

  test("shows the target under the player", () => {
    const corner = (picture: Picture) => pixel(picture, 32 + 2 * 4, 32 + 4 * 1 + 1);
    const on = sokobanPicture(board([5, 1, 1, 4], [2, 1, 1, 1]));
    const off = sokobanPicture(board([5, 1, 1, 4], [1, 1, 1, 2]));
    expect(corner(on)).not.toEqual(corner(off));
  });
});
