/** Draws boards as pixels from sprites and joins pictures into a strip. Knows no game and no file format. */

/** Rows of pixels from the top; three bytes per pixel: red, green, blue. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly rgb: Uint8Array;
}

type Color = readonly [red: number, green: number, blue: number];

/** Colors by letter. A letter without a color is transparent. */
export type Palette = Readonly<Record<string, Color>>;

/** Rows of a square of letters, one letter per pixel. */
export type Sprite = readonly string[];

/**
 * @param layers  (rows, cols) the sprites of each cell, lowest first; all sprites have equal sizes.
 * @param scale  picture pixels per sprite pixel.
 */
export function drawBoard(
  layers: readonly (readonly (readonly Sprite[])[])[],
  palette: Palette,
  scale: number,
): Picture {
  const side = layers[0]![0]![0]!.length;
  const width = layers[0]!.length * side * scale;
  const height = layers.length * side * scale;
  const rgb = new Uint8Array(3 * width * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const [dotX, dotY] = [Math.floor(x / scale), Math.floor(y / scale)];
      const cell = layers[Math.floor(dotY / side)]![Math.floor(dotX / side)]!;
      for (const sprite of cell) {
        const color = palette[sprite[dotY % side]![dotX % side]!];
        if (color !== undefined) rgb.set(color, 3 * (y * width + x));
      }
    }
  }
  return { width, height, rgb };
}

/**
 * Arranges pictures of one size in rows, with a white gap between them.
 *
 * @param columns  maximum number of pictures in a row.
 */
export function filmStrip(pictures: readonly Picture[], columns: number, gap: number): Picture {
  const [{ width: w, height: h }] = pictures as readonly [Picture, ...Picture[]];
  const across = Math.min(columns, pictures.length);
  const down = Math.ceil(pictures.length / across);
  const width = across * (w + gap) - gap;
  const height = down * (h + gap) - gap;
  const rgb = new Uint8Array(3 * width * height).fill(255);
  for (const [i, picture] of pictures.entries()) {
    const left = (i % across) * (w + gap);
    const top = Math.floor(i / across) * (h + gap);
    for (let y = 0; y < h; y++) {
      rgb.set(picture.rgb.subarray(3 * y * w, 3 * (y + 1) * w), 3 * ((top + y) * width + left));
    }
  }
  return { width, height, rgb };
}
