/** Keeps the folders true: who may import whom. */
import { expect, test } from "bun:test";
import { dirname, join, relative } from "node:path";

const root = join(import.meta.dir, "..");

/** What each folder may import. A folder that is not listed may be imported by no one. */
const allowed: Record<string, string[]> = {
  envs: ["envs"],
  model: ["model"],
  actors: ["actors", "envs", "model"],
  scripts: ["scripts", "actors", "envs", "model"],
  bench: ["bench", "actors", "envs", "model"],
  tests: ["tests", "actors", "envs", "model"],
};

const folder = (path: string) => path.split("/")[0]!;
const files = (
  await Array.fromAsync(new Bun.Glob("{actors,envs,model,scripts,bench,tests}/**/*.{ts,tsx}").scan(root))
).sort();

test.each(files)("%s imports only downwards", async (file) => {
  const code = await Bun.file(join(root, file)).text();
  // A scan of the text, not of the transpiled module: type-only imports and worker entries count too.
  const targets = [...code.matchAll(/(?:from|import|new URL)\s*\(?\s*"(\.{1,2}\/[^"]+)"/g)].map(([, to]) =>
    relative(root, join(root, dirname(file), to!)),
  );
  const bad = targets.filter((target) => target.includes("/") && !allowed[folder(file)]!.includes(folder(target)));
  expect(bad).toEqual([]);
});
