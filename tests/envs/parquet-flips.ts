/**
 * Reads a parquet file with each of its bytes changed in turn; the test of parquet runs it as a process that it can kill.
 *
 * `bun parquet-flips.ts FILE FOLDER COLUMN...` prints {cases, intact, refused, faults}. A case is intact if it has as many rows
 * as the file, and refused if it ends with an error that names the file.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { DataError, readRows } from "../../envs/data/rows.ts";

const [file, folder, ...columns] = process.argv.slice(2) as [string, string, ...string[]];
const bytes = readFileSync(file);
const schema = z.object(
  Object.fromEntries(columns.map((name) => [name, z.unknown().refine((value) => value !== undefined)])),
);
const rowCount = [...readRows(file, schema)].length;
const path = join(folder, "damaged.parquet");
const result = { cases: 0, intact: 0, refused: 0, faults: [] as string[] };
for (let change = 0; change < 2 * bytes.length; change++) {
  const position = change >> 1;
  result.cases++;
  const damaged = Buffer.from(bytes);
  // One bit, then all of them.
  damaged[position]! ^= change % 2 === 0 ? 1 << (position % 8) : 0xff;
  writeFileSync(path, damaged);
  try {
    const rows = [...readRows(path, schema)].length;
    if (rows === rowCount) result.intact++;
    else result.faults.push(`byte ${position}: ${rows} rows of ${rowCount}`);
  } catch (error) {
    const named = error instanceof DataError && error.message.startsWith(path) && !error.message.includes("\n");
    if (named) result.refused++;
    else result.faults.push(`byte ${position}: ${error}`);
  }
}
console.log(JSON.stringify(result));
