/** Writes tables as Parquet or CSV. Other files decide what the tables have. */
import { type BasicType, fileWriter, parquetWriteRows } from "hyparquet-writer";
import { realDisk } from "../../actors/checkpoint/disk.ts";

export type Columns = readonly (readonly [name: string, type: BasicType])[];

/** A TIMESTAMP is a number of milliseconds since the epoch. */
export type Row = Readonly<Record<string, string | number | boolean | null>>;

export const named = (type: BasicType, ...names: string[]): Columns => names.map((name) => [name, type]);

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
export function writeCsv(path: string, columns: Columns, rows: Iterable<Row>): Promise<void> {
  function* lines() {
    yield csvLine(columns.map(([column]) => column));
    for (const row of rows) {
      const cells = columns.map(([column, type]) =>
        type === "TIMESTAMP" ? new Date(row[column] as number).toISOString() : row[column]!,
      );
      yield csvLine(cells);
    }
  }
  return writeText(path, lines());
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

/** Writes a new file in pieces of many lines, and syncs it to the disk. */
export const writeText = (path: string, lines: Iterable<string>): Promise<void> => realDisk.write(path, pieces(lines));

const PIECE_CHARS = 1 << 20;

function* pieces(lines: Iterable<string>) {
  let text = "";
  for (const line of lines) {
    text += line;
    if (text.length < PIECE_CHARS) continue;
    yield Buffer.from(text);
    text = "";
  }
  yield Buffer.from(text);
}
