/** `bun run page` reads a run and writes nothing to it, not even to bring its store up to date. */
import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Store } from "../../actors/metrics-sink/store.ts";
import { main } from "../../scripts/page.ts";
import { commandHere } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

test("a run of an older schema is refused, and every byte of its store stays", async () => {
  const folder = temporaryFolder();
  const path = join(folder, "run.sqlite");
  new Store({ path, durability: "normal", wallClock: () => 0 }).close();
  const db = new Database(path);
  db.run("DROP TABLE actors");
  db.run("PRAGMA user_version = 3");
  db.run("PRAGMA wal_checkpoint(TRUNCATE)");
  db.close();
  const before = readFileSync(path);
  await expect(main({ flags: { port: 0 }, words: [folder], overrides: [] })).rejects.toThrow(
    "an older version recorded it",
  );
  expect(readFileSync(path).equals(before)).toBe(true);
});

test("a token file that cannot be read is refused in one line with its name", async () => {
  const folder = temporaryFolder();
  const { code, err } = await commandHere(["page", folder, "--port", "0", "--token-file", folder]);
  expect([code, err]).toEqual([
    2,
    `error: cannot read --token-file ${folder}: EISDIR: illegal operation on a directory, read; name a file with the token\n`,
  ]);
});

test("a token file without an end is refused", async () => {
  const { code, err } = await commandHere(["page", temporaryFolder(), "--port", "0", "--token-file", "/dev/zero"]);
  expect([code, err]).toEqual([
    2,
    "error: --token-file /dev/zero has more than the 4096 bytes that a token may have; name a file with the token\n",
  ]);
});

test("a file is no folder of runs", async () => {
  const file = join(temporaryFolder(), "run.sqlite");
  writeFileSync(file, "");
  expect(await commandHere(["page", file, "--token-file", file])).toEqual({
    code: 2,
    out: "",
    err: `error: there is no folder ${file}; name the folder of a run, or a folder of runs\n`,
  });
});
