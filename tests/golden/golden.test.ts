/** `bun run golden` as a process, on the repository's vectors and on broken copies of them. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = join(import.meta.dir, "../..");
const vectors = join(import.meta.dir, "ragen.json");
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "bunraku-golden-"));
});
afterAll(() => rm(folder, { recursive: true }));

async function golden(...args: string[]): Promise<{ code: number; lines: string[]; errors: string }> {
  const command = [process.execPath, join(root, "scripts/run.ts"), "golden", ...args];
  const child = Bun.spawn(command, { stdout: "pipe", stderr: "pipe", stdin: "ignore" });
  const [code, output, errors] = await Promise.all([
    child.exited,
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { code, lines: output.trimEnd().split("\n"), errors };
}

/** A copy of the vectors, changed. */
async function copy(name: string, change: (file: GoldenFile) => void): Promise<string> {
  const file = (await Bun.file(vectors).json()) as GoldenFile;
  change(file);
  const path = join(folder, name);
  await Bun.write(path, JSON.stringify(file));
  return path;
}

interface GoldenFile {
  cases: { id: string; vectors?: Record<string, unknown>[] }[];
  extras: Record<string, unknown>;
}

interface H9 {
  readonly id: string;
  readonly v1: { readonly results: { method: string }[] };
}

describe("bun run golden", () => {
  test.each(["ragen.json", "ragen-more.json"])("passes every vector of %s", async (name) => {
    const { code, lines } = await golden(join(import.meta.dir, name));
    expect(lines.filter((line) => line.includes("expected"))).toEqual([]);
    expect(lines.at(-1)).toMatch(/^\d{3,} passed, 0 failed$/);
    expect(code).toBe(0);
  });

  test("prints expected and got of the one answer that was altered", async () => {
    const path = await copy("altered.json", ({ cases }) => {
      cases[0]!.vectors![0]!["bfs_shortest_actions"] = [2, 3, 2];
    });
    const { code, lines } = await golden(path, "--json");
    expect(lines.slice(0, 3)).toEqual(["H1 vectors[0] seed 123: solution", "  expected [2,3,2]", "  got      [2,3,1]"]);
    expect(JSON.parse(lines.at(-1)!)).toEqual({ passed: expect.any(Number), failed: 1 });
    expect(lines.at(-2)).toEndWith(" passed, 1 failed");
    expect(code).toBe(1);
  });

  test("counts a case it does not know and one it cannot run as failures", async () => {
    const path = await copy("unknown.json", (file) => {
      file.cases = [{ id: "H99" }, { id: "H1", vectors: [{ seed: -1 }] }];
      file.extras = { X99_new: 1 };
    });
    const { code, lines } = await golden(path);
    expect(lines.filter((line) => line.endsWith("(case)"))).toEqual(["H99 (case)", "H1 (case)", "X99 (case)"]);
    expect(lines.at(-1)).toBe("0 passed, 3 failed");
    expect(code).toBe(1);
  });

  test("takes no rule by a name that it does not know", async () => {
    const path = await copy("rules.json", (file) => {
      const h9 = structuredClone(file.cases.find(({ id }) => id === "H9")) as unknown as H9;
      h9.v1.results[0]!.method = "median";
      file.cases = [h9];
      file.extras = {};
    });
    const { code, lines } = await golden(path);
    expect(lines[0]).toBe("H9 (case)");
    expect(lines[2]).toContain("Invalid option: expected one of");
    expect(code).toBe(1);
  });

  test.each([
    ["no file", [], 2, "golden needs a FILE of golden vectors"],
    ["a file that is not there", ["nowhere.json"], 2, "nowhere.json does not exist"],
    ["a file that is not JSON", [import.meta.path], 1, "is not JSON"],
    ["an unknown flag", ["--jsn", vectors], 2, "--json"],
  ])("says what is wrong with %s in one line", async (_, args, expectedCode, message) => {
    const { code, errors } = await golden(...args);
    expect(errors).toContain(message);
    expect(
      errors
        .trim()
        .split("\n")
        .filter((line) => line.includes(message)),
    ).toHaveLength(1);
    expect(code).toBe(expectedCode);
  });

  test("explains itself", async () => {
    const { code, lines } = await golden("--help");
    expect(lines.join("\n")).toContain("FILE");
    expect(code).toBe(0);
  });
});
