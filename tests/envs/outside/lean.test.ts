/** Lean against RAGEN's own numbers, through a local server that speaks the Kimina server's protocol. */
import { describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { evaluatePlayer } from "../../../envs/analysis/evaluate.ts";
import type { OutsideGame } from "../../../envs/env.ts";
import { checkLean } from "../../../envs/lean/kimina.ts";
import { readTheorem } from "../../../envs/lean/theorem.ts";
import { wrapped } from "../../../envs/lean/view.ts";
import type { JsonServer } from "../../../envs/outside/json-server.ts";
import { envTag } from "../../../envs/registry.ts";
import { PythonRandom } from "../../../envs/rng/mt19937.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { expectNoWaitOnceClosed, jsonService } from "./json-service.ts";
import ragen from "./ragen-lean.json";

const folder = temporaryFolder();

/** A data set of these theorems. */
function dataOf(...rows: object[]): string {
  const path = join(folder, `${crypto.randomUUID()}.jsonl`);
  writeFileSync(path, rows.map((row) => JSON.stringify(row)).join("\n"));
  return path;
}
const all = dataOf(...ragen.theorems.map(({ row }) => row));

const open = (options: object, layout = 0) =>
  envTag("Lean", { split: "all", dataPath: all, retryMs: 1, ...options }).open({ layout, dynamics: 0 }) as OutsideGame;

/** The server's answer to one snippet, as it is sent. */
interface Checked {
  readonly error?: string;
  readonly response?: object;
}
const kimina = (answer: (call: number) => Checked) => {
  let calls = 0;
  return jsonService(({ body }) => {
    const { snippets } = body as { snippets: { id: string; code: string }[] };
    return { results: snippets.map(({ id }) => ({ id, time: 0.1, ...answer(calls++) })) };
  });
};
const proven = { response: { env: 1 } };
const broken = { response: { messages: [{ severity: "error", pos: { line: 1, column: 0 }, data: "unknown tactic" }] } };

const keys: Record<string, string> = { max_steps: "stepsMax", message_truncate_limit: "messageCharactersMax" };

describe("Lean, as RAGEN", () => {
  test.each(ragen.episodes)("plays episode %#", async ({ row, config, answers, codes, opening, turns }) => {
    await using server = kimina((call) => answers[Math.min(call, answers.length - 1)] as Checked);
    const options = Object.fromEntries(Object.entries(config).map(([name, value]) => [keys[name]!, value]));
    const game = open({ url: server.url, dataPath: dataOf(ragen.theorems[row]!.row), ...options });
    await game.start();
    expect(game.render()).toBe(opening);
    for (const { action, observation, ...effect } of turns) {
      expect(await game.act(action)).toEqual(effect);
      if (observation !== null) expect(game.render()).toBe(observation);
    }
    const sent = server.asked.map(({ body }) => (body as { snippets: [{ code: string }] }).snippets[0].code);
    expect(sent.slice(-codes.length)).toEqual(codes);
  });

  test("is in the same state after a rejected tactic, and in another after an accepted one", async () => {
    const goals = { response: { messages: [{ severity: "error", data: "unsolved goals" }] } };
    await using server = kimina((call) => (call < 2 ? broken : goals));
    const { stateOf } = envTag("Lean");
    const game = open({ url: server.url });
    await game.start();
    const states = [stateOf!(game.render())];
    for (const tactic of ["simp", "ring", "intro h"]) {
      await game.act(tactic);
      states.push(stateOf!(game.render()));
    }
    const [first, ...others] = states;
    expect(others.slice(0, 2)).toEqual([first!, first!]);
    expect(others[2]).toMatch(/\d+ \| {3}intro h$/);
  });

  test.each(ragen.theorems)("reads theorem %#", ({ row, parsed }) => {
    expect(readTheorem(row.formal_statement, row.natural_language_statement)).toEqual({
      imports: parsed.imports,
      preamble: parsed.preamble,
      statement: parsed.formal_statement,
      informal: parsed.natural_language_statement.trim(),
    });
  });

  test("draws the theorems of the same seeds", () => {
    for (const [seed, index] of ragen.choice) expect(new PythonRandom(seed!).choice([0, 1, 2, 3])).toBe(index!);
  });

  test.each(ragen.wrap as [string, number, string[]][])("wraps %j at %p", (text, width, lines) => {
    expect(wrapped(text, width)).toEqual(lines);
  });
});

describe("a Kimina server", () => {
  test("gets the requests of its own client", async () => {
    process.env["BUNRAKU_TEST_LEAN_KEY"] = "key";
    await using server = kimina(() => proven);
    const game = open({ url: server.url, tokenVariable: "BUNRAKU_TEST_LEAN_KEY", leanSecondsMax: 7 });
    await game.start();
    await game.act("norm_num");
    delete process.env["BUNRAKU_TEST_LEAN_KEY"];
    const [{ path, headers, body }] = server.asked as [(typeof server.asked)[0]];
    expect([path, headers.get("authorization")]).toEqual(["/api/check", "Bearer key"]);
    expect(body).toMatchObject({
      timeout: 7,
      reuse: true,
      infotree: "tactics",
      snippets: [{ id: expect.any(String) }],
    });
  });

  test.each([
    [
      () => ({ error: "Lean REPL header command failed" }),
      "could not check the proof: Lean REPL header command failed",
    ],
    [() => ({}), "sent a result without a response"],
    [() => Response.json({ detail: "No available REPLs" }, { status: 429 }), "answers 429: No available REPLs"],
    [() => Response.json({ detail: "Invalid API key" }, { status: 401 }), "answers 401: Invalid API key"],
  ])("that does not work is an error, and no rejected tactic (%#)", async (answer, message) => {
    await using server = jsonService(() => {
      const given = answer();
      return given instanceof Response ? given : { results: [{ id: "x", ...given }] };
    });
    const game = open({ url: server.url });
    await game.start();
    const opening = game.render();
    expect(await game.act("simp").catch(String)).toContain(message);
    expect(game.render()).toBe(opening);
  });

  test.each(["'sorry'", "`sorry`"])("that warns of a declaration with %s has seen no proof", async (sorry) => {
    // Its answer to `admit`: no sorries.
    const messages = [{ severity: "warning", pos: { line: 1, column: 8 }, data: `declaration uses ${sorry}` }];
    await using server = kimina(() => ({ response: { env: 1, messages } }));
    const game = open({ url: server.url });
    await game.start();
    expect(await game.act("admit")).toEqual({
      reward: -1.1,
      done: false,
      effective: false,
      valid: false,
      success: false,
    });
  });

  test("is no longer waited for once the episode is closed", () =>
    expectNoWaitOnceClosed((url) => open({ url }), "simp"));
});

describe("the tag", () => {
  test("plays 64 random episodes", async () => {
    await using server = jsonService(({ body }) => {
      const { code } = (body as { snippets: [{ code: string }] }).snippets[0];
      return { results: [{ id: "x", ...(/ {2}(norm_num|simp)$/m.test(code) ? proven : broken) }] };
    });
    const tag = envTag("Lean", { split: "all", dataPath: all, url: server.url });
    expect(tag.optimal).toBeNull();
    const { success, meanReward } = await evaluatePlayer(tag, tag.random, { episodes: 64, seed: 123 });
    // Each of 30 tries proves it with probability 2/15.
    expect(success).toBeGreaterThan(0.85);
    expect(Number.isFinite(meanReward)).toBe(true);
  });

  test("gives a group one theorem, and says what it lacks", () => {
    const openings = [0, 1, 2].map((dynamics) =>
      envTag("Lean", { split: "all", dataPath: all }).open({ layout: 9, dynamics }).render(),
    );
    expect(new Set(openings).size).toBe(1);
    expect(envTag("Lean").missing?.()).toMatch(/^Lean needs a file: .*minif2f and set env\.options\.dataPath to it$/);
  });
});

test.each([
  ["one sorry that Lean lists and does not warn of", { sorries: [{}], messages: [] }, [false, false]],
  ["an error, however its severity is written", { messages: [{ severity: "Error", data: "no" }] }, [false, false]],
  ["unsolved goals", { messages: [{ severity: "error", data: "unsolved goals" }], sorries: [] }, [true, false]],
  ["a warning", { messages: [{ severity: "warning", data: "unused variable" }], sorries: null }, [true, true]],
])("%s decides what is accepted and proven", async (_, response, [accepted, proven]) => {
  const server = { ask: async () => ({ results: [{ response }] }) } as unknown as JsonServer;
  expect(await checkLean(server, "", 1, new AbortController().signal)).toMatchObject({ accepted, proven });
});
