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

interface DialogueEntry {
  name: string;
  overrides: object;
  messages: { role: string; content: string }[][];
  texts_tail: string[];
}

const caseOf = (cases: GoldenFile["cases"], id: string) =>
  cases.find((one) => one.id === id) as unknown as Record<string, unknown>;

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
      file.cases = [{ id: "H99" }, { id: "H1" }];
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
    expect(lines[0]).toBe("H9 results[0]");
    expect(lines[2]).toContain("Invalid option: expected one of");
    expect(code).toBe(1);
  });

  test("counts a vector that it cannot run as one failure and runs the others of its case", async () => {
    const whole = await golden(vectors, "--json");
    const path = await copy("one-broken.json", ({ cases, extras }) => {
      cases[0]!.vectors![0] = { seed: -1 };
      (caseOf(cases, "H5")["vectors"] as unknown[]).push(null);
      (caseOf(cases, "H10")["v1"] as Record<string, unknown>)["rloo"] = { scores: 3 };
      (extras["X0_rng_vectors"] as Record<string, unknown>)["py_dice6"] = [1];
      (extras["X6_search_reward"] as unknown[]).unshift({ pred: 1 });
    });
    const { lines } = await golden(path, "--json");
    const broken = lines.filter((line) => /^[HX]\d+ /.test(line));
    expect(broken).toEqual([
      "H1 vectors[0]",
      expect.stringMatching(/^H5 vectors\[\d+\]$/),
      "H10 rloo",
      "X0 py_dice6",
      "X6 answers[0]",
    ]);
    const checksOfH1 = 7;
    const { passed } = JSON.parse(whole.lines.at(-1)!) as { passed: number };
    expect(JSON.parse(lines.at(-1)!)).toEqual({ passed: passed - checksOfH1 - 1, failed: 5 });
  });

  test("reads symbols by code or in a list, in boards, dynamics and lakes", async () => {
    const path = await copy("symbols.json", ({ cases }) => {
      const h1 = caseOf(cases, "H1")["vectors"] as { kwargs: Record<string, unknown>; observation: string }[];
      h1[0]!.kwargs["grid_lookup"] = { 0: "%" };
      h1[0]!.observation = h1[0]!.observation.replaceAll("#", "%");
      const h2 = caseOf(cases, "H2")["vectors"] as Record<string, unknown>[];
      const text = JSON.stringify(h2[0]).replaceAll("#", "%");
      h2[0] = { ...(JSON.parse(text) as object), grid_lookup: ["%", "_", "O", "√", "X", "P", "S"] };
      const h3 = caseOf(cases, "H3")["vectors_v1"] as { observation: string; trace: { observation: string }[] }[];
      h3[0] = { ...h3[0]!, observation: h3[0]!.observation.replaceAll("_", "."), ...{ grid_lookup: { 1: "." } } };
      for (const step of h3[0].trace) step.observation = step.observation.replaceAll("_", ".");
    });
    expect((await golden(path)).lines.at(-1)).toEndWith(" passed, 0 failed");
  });

  test("reads a limited context of v1, which numbers the turns that it shows, and replies as their dialogue asks", async () => {
    const path = await copy("window.json", (file) => {
      const h6 = caseOf(file.cases, "H6");
      const entries = h6["v1"] as DialogueEntry[];
      const whole = entries.find(({ name }) => name === "generation")!;
      // An answer behind other text is none where a thought is asked for, so RAGEN's reward is the int 0.
      const [, , reply, next] = whole.messages[0]!;
      reply!.content = "<think>up</think> so <answer>Up</answer>";
      next!.content = next!.content.replace(/^Reward:\n.*\n/, "Reward:\n0\n");
      whole.texts_tail = [];
      const messages = whole.messages.map((dialogue) => {
        const [system, first, ...later] = dialogue;
        const last = later.at(-1)!.content;
        const task = first!.content.slice(0, first!.content.indexOf("\nTurn 1:"));
        const turn = last.slice(last.indexOf("\nTurn ")).replace(/Turn \d+/, "Turn 1");
        return [system!, { role: "user", content: task + turn }];
      });
      h6["v1"] = [
        whole,
        { ...whole, name: "window 1", overrides: { "agent_proxy.max_context_window": 1 }, messages, texts_tail: [] },
      ];
      file.cases = [h6 as unknown as GoldenFile["cases"][number]];
      file.extras = {};
    });
    const { lines } = await golden(path);
    expect(lines.filter((line) => line.includes("v1"))).toEqual([]);
    expect(lines.at(-1)).toEndWith(" passed, 0 failed");
  });

  test("reads notes, estimators and answers in every form", async () => {
    const path = await copy("forms.json", (file) => {
      const { cases, extras } = file;
      const [h9, h10] = [caseOf(cases, "H9"), caseOf(cases, "H10")];
      const params = { value: 0.5, filter_type: "largest", strategy: "top_k" };
      const constant = { kept_groups: [0, 1, 2, 3], kept_ratio: 0.5, zero_count: 8, chosen_in_group_std: 0 };
      (h9["v2_filter"] as { cases: unknown[] }).cases.push(
        { params: { ...params, note: "all groups constant 0.5: every score is 0" }, ...constant },
        { params: { ...params, note: "constant groups [0,1,2,3,4,5,6,7]" }, ...constant },
        {
          params: { value: 0.25, filter_type: "largest", strategy: "top_k", note: "the two widest groups" },
          kept_groups: [3, 7],
        },
      );
      const scores = [3, 1];
      const v1 = h10["v1"] as Record<string, unknown>;
      v1["note"] = "two members";
      v1["grpo_drgrpo"] = { scores, advantages: [[1], [-1]], note: "no deviation" };
      v1["grpo_unique_uid_drgrpo"] = { scores: [10], advantages: [[10]] };
      v1["grpo_switched"] = { scores, norm_adv_by_std_in_grpo: false, advantages: [[1], [-1]] };
      (extras["X6_search_reward"] as unknown[]).push({ pred: "Paris", gt: ["Rome", "paris"], reward: 1 });
      const cube = (extras["X4_rubikscube"] as { seed123_depth1: { solving_action: unknown } }).seed123_depth1;
      cube.solving_action = [cube.solving_action];
    });
    const { lines } = await golden(path);
    expect(lines.filter((line) => line.includes("expected"))).toEqual([]);
    expect(lines.at(-1)).toEndWith(" passed, 0 failed");
  });

  test.each([
    ["no file", [], 2, "golden needs a FILE of golden vectors"],
    ["a file that is not there", ["nowhere.json"], 2, "nowhere.json does not exist"],
    ["a file that is not JSON", [import.meta.path], 1, "is not JSON"],
    ["an unknown flag", ["--jsn", vectors], 2, "--json"],
  ])("says what is wrong with %s in one line", async (_, args, expectedCode, message) => {
    const { code, errors } = await golden(...args);
    expect(errors).toContain(message);
    const lines = errors.trim().split("\n");
    expect(lines.filter((line) => line.includes(message))).toHaveLength(1);
    expect(code).toBe(expectedCode);
  });

  test("explains itself", async () => {
    const { code, lines } = await golden("--help");
    expect(lines.join("\n")).toContain("FILE");
    expect(code).toBe(0);
  });
});
