import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { asyncBufferFromFile, parquetMetadataAsync } from "hyparquet";
import { type Columns, writeCsv, writeParquet, writeText } from "../../../scripts/export/tables.ts";
import { temporaryFolder } from "../temporary.ts";

const folder = temporaryFolder();

test("CSV as RFC 4180 has it: what would end a field is quoted, and an empty text is not a missing one", async () => {
  const columns: Columns = [["a", "STRING"], ["b", "BOOLEAN"], ["at", "TIMESTAMP"]]; // biome-ignore format: a row
  const texts = ["plain", 'a "word"', "x,y", "x\ny", "x\ry", "", null];
  const file = join(folder, "a.csv");
  await writeCsv(file, columns, texts.map((a) => ({ a, b: a === null ? null : true, at: 1500 }))); // biome-ignore format: a row
  const fields = ["plain", '"a ""word"""', '"x,y"', '"x\ny"', '"x\ry"', '""'];
  const time = "1970-01-01T00:00:01.500Z";
  expect(readFileSync(file, "utf8")).toBe(
    `a,b,at\r\n${fields.map((field) => `${field},true,${time}\r\n`).join("")},,${time}\r\n`,
  );
  await expect(writeCsv(file, columns, [])).rejects.toThrow("EEXIST");
});

test("a text larger than one piece is written once", async () => {
  const parts = ["a", "b", "c"].map((char) => char.repeat(600_000));
  await writeText(join(folder, "long.txt"), parts);
  expect(readFileSync(join(folder, "long.txt"), "utf8") === parts.join("")).toBe(true);
});

test("Parquet has row groups of 2000 rows, so that few rows are in memory", async () => {
  const file = join(folder, "a.parquet");
  await writeParquet(
    file,
    [["a", "INT32"]],
    Array.from({ length: 4001 }, (_, a) => ({ a })),
  );
  const { row_groups } = await parquetMetadataAsync(await asyncBufferFromFile(file));
  expect(row_groups.map(({ num_rows }) => Number(num_rows))).toEqual([2000, 2000, 1]);
});
