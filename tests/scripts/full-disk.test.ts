/** Commands that write files, on a full disk. A limit on the size of a file stands in for the disk. */

import { expect, test } from "bun:test";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { recordIn } from "../actors/metrics-sink/recorded.ts";
import { CommandProcess } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

/** SQLite's index of the log has as many. */
const RECORD_KIB = 32;

/** A command that fails in one line, because no file may be larger. */
async function within(kib: number, ...args: string[]) {
  const wrap = ["sh", "-c", `trap "" XFSZ; ulimit -f ${2 * kib}; exec "$@"`, "sh"];
  const ended = await new CommandProcess(args, { wrap }).ended;
  expect(ended.err).toMatch(/^error: cannot write .*: EFBIG: file too large.*; .*\n$/);
  return ended;
}

const codeWithin = async (kib: number, ...args: string[]) => (await within(kib, ...args)).code;

test("board and curves keep the former picture, and leave no other file", async () => {
  const folder = temporaryFolder();
  const runs = ["one", "other"].map((name) => join(temporaryFolder(), name));
  const entropy = Array.from({ length: 4000 }, (_, step) => [step, Math.sin(step)] as const);
  for (const run of runs) recordIn(run, { "train/entropy": entropy }).close();
  for (const name of ["board.png", "curves.svg"]) writeFileSync(join(folder, name), "former");
  expect(await codeWithin(1, "board", "--out", join(folder, "board.png"))).toBe(2);
  const curves = ["curves", ...runs, "--metrics", "train/entropy", "--out", join(folder, "curves.svg")];
  expect(await codeWithin(RECORD_KIB, ...curves)).toBe(1);
  const files = readdirSync(folder).toSorted();
  expect(files.map((name) => [name, readFileSync(join(folder, name), "utf8")])).toEqual([
    ["board.png", "former"],
    ["curves.svg", "former"],
  ]);
});

test("init and new-env leave no part of what they write", async () => {
  const folder = temporaryFolder();
  const manifest = JSON.stringify({ name: "mine", description: "long ".repeat(400) });
  writeFileSync(join(folder, "package.json"), manifest);
  const project = join(folder, "project");
  expect(await codeWithin(1, "init", "--no-install", project)).toBe(1);
  expect(await codeWithin(1, "init", "--no-install", folder)).toBe(1);
  // All but the manifest has room.
  expect(await codeWithin(2, "init", "--no-install", folder)).toBe(1);
  expect(await codeWithin(1, "new-env", join(folder, "maze.ts"))).toBe(2);
  expect([readdirSync(folder), readdirSync(join(folder, "envs"))]).toEqual([["envs", "package.json"], []]);
  expect(readFileSync(join(folder, "package.json"), "utf8")).toBe(manifest);
});

test("eval has its table where the file of episodes is full, and its episodes where standard output is", async () => {
  const file = join(temporaryFolder(), "episodes.jsonl");
  const args = ["eval", "--env", "Bandit", "--policy", "random", "--episodes", "16", "--results", file];
  const { code, out } = await within(1, ...args);
  expect([code, out.split("\n")[0], readFileSync(file, "utf8")]).toEqual([
    1,
    expect.stringContaining("Bandit, 16 boards"),
    "",
  ]);
  const redirected = ["sh", "-c", 'exec "$@" > /dev/full', "sh"];
  const { code: second, err } = await new CommandProcess(args, { wrap: redirected }).ended;
  expect([second, err]).toEqual([1, expect.stringContaining("error: cannot write to standard output: ENOSPC")]);
  expect(readFileSync(file, "utf8").trimEnd().split("\n")).toHaveLength(16);
});
