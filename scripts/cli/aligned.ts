/** Aligns the columns of rows of text: the first to the left, the others to the right. */
export function aligned(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const cell = (text: string, column: number) =>
    column === 0 ? text.padEnd(widths[column]!) : text.padStart(widths[column]!);
  return rows.map((row) => row.map(cell).join("  ").trimEnd()).join("\n");
}

/** Aligns rows as tables of at most `width` characters, one below the other. Each has the first column and at least one other. */
export function alignedWithin(width: number, rows: readonly (readonly string[])[]): string {
  const [first, ...widths] = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const tables: number[][] = [];
  let left = 0;
  for (const [i, cells] of widths.entries()) {
    if (left < cells + 2) {
      tables.push([]);
      left = width - first!;
    }
    tables.at(-1)!.push(i + 1);
    left -= cells + 2;
  }
  return tables
    .map((columns) => aligned(rows.map((row) => [0, ...columns].map((column) => row[column]!))))
    .join("\n\n");
}
