/** docs/ragen-features.md covers RAGEN's 77 features, names files that exist, and says of each whether it is real, shallow, missing or not needed. */
import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
const rows = readFileSync(join(root, "docs/ragen-features.md"), "utf8")
  .split("\n")
  .filter((line) => /^\| (V?\d+) /.test(line))
  .map((line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim()),
  )
  .map(([number, feature, is, here, tests]) => ({
    number: number!,
    feature: feature!,
    is: is!,
    here: here!,
    tests: tests!,
  }));
const pathsIn = (cell: string) => [...cell.matchAll(/`([\w.-]+(?:\/[\w.-]+)+)`/g)].map(([, path]) => path!);

test("every feature has its row, in RAGEN's order, and VAGEN's theirs", () => {
  const numbers = [...Array(77).keys()].map((i) => String(i + 1));
  expect(rows.map(({ number }) => number)).toEqual([...numbers, ...[1, 2, 3, 4, 5, 6, 7].map((i) => `V${i}`)]);
});

test.each(rows.map((row) => [`${row.number} ${row.feature}`, row] as const))("%s", (_, { is, here, tests }) => {
  const [files, proofs] = [pathsIn(here), pathsIn(tests)];
  expect([...files, ...proofs].filter((path) => !existsSync(join(root, path)))).toEqual([]);
  expect(files.length > 0 ? ["real", "shallow"] : ["missing", "not needed"]).toContain(is);
  if (files.length > 0) expect(proofs.length).toBeGreaterThan(0);
  // What is there in part, or not at all, has its reason in words.
  if (is !== "real") expect(here.replaceAll(/`[^`]*`/g, "")).toMatch(/\w+ \w+/);
  for (const path of proofs) expect(path).toMatch(/^tests\/.*\.test\.ts$/);
});
