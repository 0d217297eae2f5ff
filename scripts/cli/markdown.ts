/** Tables for the pages of docs/ that commands print. */

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
