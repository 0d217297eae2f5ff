/** Texts of several commands: aligned tables, tables of docs/, costs, words of a shell. */
import type { Costs } from "../../actors/record/costs.ts";

/** Aligns the columns of rows of text: the first column to the left, the other columns to the right. */
export function aligned(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const cell = (text: string, column: number) =>
    column === 0 ? text.padEnd(widths[column]!) : text.padStart(widths[column]!);
  return rows.map((row) => row.map(cell).join("  ").trimEnd()).join("\n");
}

/** Aligns rows as tables of at most `width` characters, one below the other. Each table has the first column and at least one other column. */
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

/** Rows as a Markdown table with even columns; the first row is its head. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const shown = rows.map((row) => row.map((text) => text.replaceAll("|", "\\|").replaceAll("<", "&lt;")));
  const widths = shown[0]!.map((_, column) => Math.max(...shown.map((row) => Bun.stringWidth(row[column]!))));
  const lines = shown.map((row) => {
    const cells = row.map((text, column) => text + " ".repeat(widths[column]! - Bun.stringWidth(text)));
    return `| ${cells.join(" | ")} |`;
  });
  return [lines[0]!, `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`, ...lines.slice(1)];
}

/** The names of the costs of a run, as tables show them. */
export const COST_NAMES: readonly (readonly [key: keyof Costs["total"], name: string])[] = [
  ["tokens", "tokens"],
  ["actions", "env actions"],
  ["cpuSeconds", "CPU seconds"],
  ["joules", "joules"],
];

/** "1,234"; below 10 with at most one decimal; "–" if unknown. */
export const amountText = (amount: number | null): string =>
  amount === null ? "–" : amount.toLocaleString("en", { maximumFractionDigits: amount < 10 ? 1 : 0 });

/** A word of a command line, quoted if it has characters with a meaning in a shell. */
export const shellWord = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
