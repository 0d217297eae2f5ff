/** Writes tables as Parquet or CSV. Other files decide what the tables have. */
import { closeSync, fsyncSync, mkdirSync, openSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { type BasicType, fileWriter, parquetWriteRows } from "hyparquet-writer";

export type Columns = readonly (readonly [name: string, type: BasicType])[];

/** A TIMESTAMP is a number of milliseconds since the epoch. */
export type Row = Readonly<Record<string, string | number | boolean | null>>;

export function named(type: BasicType, ...names: string[]): (readonly [string, BasicType])[] {
  return names.map((name) => [name, type] as const);
}

/** Number of rows of a Parquet row group. The writer keeps one row group in memory. */
const ROW_GROUP = 2000;

/** @throws {Error} if the file cannot be written */
export async function writeParquet(path: string, columns: Columns, rows: Iterable<Row>): Promise<void> {
  await parquetWriteRows({
    writer: fileWriter(path),
    rows: parquetRows(columns, rows),
    columns: columns.map(([column, type]) => ({ name: column, type, nullable: true })),
    rowGroupSize: ROW_GROUP,
  });
}

function* parquetRows(columns: Columns, rows: Iterable<Row>) {
  for (const row of rows) {
    const cells = columns.map(([column, type]): [string, unknown] => {
      return [column, type === "TIMESTAMP" ? new Date(row[column] as number) : row[column]];
    });
    yield Object.fromEntries(cells);
  }
}

/** RFC 4180, with a header line; times in ISO 8601. @throws {Error} if the file exists or cannot be written */
export function writeCsv(path: string, columns: Columns, rows: Iterable<Row>): void {
  const file = new TextFile(path);
  file.write(csvLine(columns.map(([column]) => column)));
  for (const row of rows) {
    const cells = columns.map(([column, type]) =>
      type === "TIMESTAMP" ? new Date(row[column] as number).toISOString() : row[column]!,
    );
    file.write(csvLine(cells));
  }
  file.close();
}

/** A null becomes an empty field; an empty text becomes an empty field in quotes. */
function csvLine(cells: readonly Row[string][]): string {
  const fields = cells.map((cell) => {
    if (cell === null) return "";
    if (typeof cell !== "string") return String(cell);
    return cell === "" || /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
  });
  return `${fields.join(",")}\r\n`;
}

const BUFFER_CHARS = 1 << 20;

/** A new text file. The class writes large pieces, and syncs the file to the disk when it closes the file. */
export class TextFile {
  readonly #file: number;
  #buffer = "";

  constructor(path: string) {
    mkdirSync(dirname(path), { recursive: true });
    this.#file = openSync(path, "wx");
  }

  write(text: string): void {
    this.#buffer += text;
    if (this.#buffer.length >= BUFFER_CHARS) this.#flush();
  }

  close(): void {
    this.#flush();
    fsyncSync(this.#file);
    closeSync(this.#file);
  }

  #flush(): void {
    writeFileSync(this.#file, this.#buffer);
    this.#buffer = "";
  }
}
