/** Rules for the source files: who may import whom, no file too long, no file unused, no promise that only a comment keeps. */
import { describe, expect, test } from "bun:test";
import { basename, dirname, join, relative } from "node:path";

const root = join(import.meta.dir, "..");

/** What each folder may import. A folder that is not listed may be imported by no one. */
const allowed: Record<string, string[]> = {
  envs: ["envs"],
  model: ["model"],
  actors: ["actors", "envs", "model"],
  library: ["library", "actors", "envs", "model"],
  scripts: ["scripts", "library", "actors", "envs", "model", "bench"],
  bench: ["bench", "actors", "envs", "model"],
  examples: ["examples", "actors", "envs", "model"],
  tests: ["tests", "scripts", "library", "actors", "envs", "model", "bench", "examples"],
};

/** The command of the golden vectors, whose checks are in the tests; the package has neither. */
const mayImportTests = ["scripts/golden.ts"];

const scan = async (pattern: string) =>
  (await Array.fromAsync(new Bun.Glob(pattern).scan({ cwd: root, dot: true }))).sort();
const folders = "{actors,envs,model,library,scripts,bench,examples,tests}";
const [sources, written, documents] = await Promise.all([
  scan(`${folders}/**/*.{ts,tsx}`),
  scan(`${folders}/**/*.{ts,tsx,js,css,py}`),
  scan("{*.md,docs/*.md,configs/**/*.yaml,.ci/*}"),
]);
const text = new Map(
  await Promise.all(
    [...written, ...documents].map(async (file) => [file, await Bun.file(join(root, file)).text()] as const),
  ),
);

const folder = (path: string) => path.split("/")[0]!;

/** The files that a source names, by path from the root. A scan of the text, so type-only imports count too. */
const filesNamed = (file: string, by: RegExp) =>
  [...text.get(file)!.matchAll(by)].map(([, to]) => relative(root, join(root, dirname(file), to!)));
const imported = (file: string) => filesNamed(file, /(?:from|import)\s*\(?\s*"(\.{1,2}\/[^"]+)"/g);
const workerEntries = (file: string) => filesNamed(file, /new URL\(\s*"(\.{1,2}\/[^"]+)"/g);

/** Files that import one another: strongly connected components of more than one file, by Tarjan's algorithm. */
function circles(): string[][] {
  const found: string[][] = [];
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  function visit(file: string): void {
    index.set(file, index.size);
    low.set(file, index.get(file)!);
    stack.push(file);
    for (const target of imported(file).filter((target) => text.has(target))) {
      if (!index.has(target)) visit(target);
      if (stack.includes(target)) low.set(file, Math.min(low.get(file)!, low.get(target)!));
    }
    if (low.get(file) !== index.get(file)) return;
    const members = stack.splice(stack.indexOf(file));
    if (members.length > 1) found.push(members);
  }
  for (const file of sources) if (!index.has(file)) visit(file);
  return found;
}

describe("sources", () => {
  test.each(sources)("%s imports only downwards", (file) => {
    const targets = [...imported(file), ...workerEntries(file)];
    const folders = [...allowed[folder(file)]!, ...(mayImportTests.includes(file) ? ["tests"] : [])];
    const bad = targets.filter((target) => target.includes("/") && !folders.includes(folder(target)));
    expect(bad).toEqual([]);
  });

  test("none imports itself through others, types included", () => {
    expect(circles()).toEqual([]);
  });

  test.each(["actors", "model"])("%s/ has at most six files at its top", (name) => {
    expect(sources.filter((file) => dirname(file) === name).length).toBeLessThanOrEqual(6);
  });

  test("none is longer than 500 lines", () => {
    const long = written.filter((file) => text.get(file)!.split("\n").length > 501);
    expect(long).toEqual([]);
  });

  test("none spreads a literal into a literal, where the compiler checks no excess keys", () => {
    const packed = sources.flatMap((file) =>
      text
        .get(file)!
        .split("\n")
        .filter((line) => /^\s*\.{3}(\{|\(\[|\[.*\],?$)/.test(line))
        .map((line) => `${file}: ${line.trim()}`),
    );
    expect(packed).toEqual([]);
  });

  test("none puts off what it should do", () => {
    const putOff = new RegExp(`\\b(${["TO" + "DO", "FIX" + "ME", "X" + "XX"].join("|")})\\b`);
    expect([...text].filter(([, code]) => putOff.test(code)).map(([file]) => file)).toEqual([]);
  });

  test("none is forgotten: each is an entry, or named by another file", () => {
    const entry =
      /\.(test|bench)\.ts$|^examples\/|^actors\/[^/]+\/(main|[a-z]+-worker)\.ts$|^library\/([a-z-]+\.ts|bin\.js|needs-bun\.js|create\/create\.js)$|^bench\/peers\/|^tests\/golden\/.*\.py$/;
    const command = /^export (async function main\b|\{[^}]*\bmain\b[^}]*\})/m;
    const isEntry = (file: string) =>
      entry.test(file) ||
      file === "scripts/run.ts" ||
      (/^scripts\/[^/]+\.ts$/.test(file) && command.test(text.get(file)!));
    const forgotten = written.filter(
      (file) =>
        !isEntry(file) && !written.some((other) => other !== file && text.get(other)!.includes(`${basename(file)}"`)),
    );
    expect(forgotten).toEqual([]);
  });
});

describe("commands", async () => {
  const { scripts } = (await Bun.file(join(root, "package.json")).json()) as { scripts: Record<string, string> };

  test("every one of package.json goes through scripts/run.ts", () => {
    const names = Object.keys(scripts);
    expect(names.map((name) => scripts[name]!)).toEqual(names.map((name) => `bun scripts/run.ts ${name}`));
  });

  test("every one that a document or a page of help shows exists", () => {
    const showing = [...documents, ...sources.filter((file) => folder(file) === "scripts")];
    const shown = showing.flatMap((file) =>
      [...text.get(file)!.matchAll(/\bbun(?:@[\d.]+)? run ([a-z][a-z-]*)/g)].map(([, name]) => ({ file, name: name! })),
    );
    expect(shown.filter(({ name }) => !Object.hasOwn(scripts, name))).toEqual([]);
    expect(shown.length).toBeGreaterThan(10);
  });
});
