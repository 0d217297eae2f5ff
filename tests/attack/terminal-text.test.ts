/**
 * What a model, an env or a server wrote reaches a real terminal (a pty) as text, never as a command to it: no escape, no
 * bidirectional mark, no line of a megabyte.
 */
import { Database } from "bun:sqlite";
import { expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { startOneThread, tinyConfig } from "../actors/supervisor/tiny-run.ts";
import { LONG } from "../e2e/run-process.ts";
import { jsonService } from "../envs/outside/json-service.ts";
import { onTerminal } from "../scripts/command.ts";
import { temporaryFolder } from "../scripts/temporary.ts";

setDefaultTimeout(LONG);

/** Colours it, names its window, clears it (in C1 too), rings, turns the direction of writing, and never ends. */
const HOSTILE = `\u001b[31m\u001b]0;owned\u0007\u001b[2J\u009b2J\u202eabc\u200b${"y".repeat(1 << 20)}`;
/** What a person sees of its beginning. */
const SHOWN = "‹1B›[31m‹1B›]0;owned‹07›‹1B›[2J‹9B›2J‹202E›abc‹200B›";
const LETTERS_MAX = 50_000;

/** That nothing but text got through, and what moves our own lines: back, up, and clear. */
function expectHarmless(text: string): void {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a terminal's controls are what is looked for.
  const rest = text.replaceAll(/\u001b\[(\d+A|J|2K)|[\r\n]/g, "");
  expect(rest.match(/\p{Cc}|\p{Cf}/gu)).toBeNull();
  expect(text.length).toBeLessThan(LETTERS_MAX);
}

const refused = (error: string) => Response.json({ error }, { status: 422 });

/** Flags of a run of a second or two on the env of a server, without a warm start. */
function remoteRun(url: string): string[] {
  const folder = temporaryFolder();
  const config = {
    env: { tag: "Remote", options: { url }, turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1 },
    warmStart: { enabled: false },
    rollout: { groups: 4, groupSize: 2, replyTokensMax: 8 },
    sampler: { slots: 8 },
    model: { width: 32, layers: 1, heads: 2, kvHeads: 1, hidden: 64 },
    learner: { updates: 2, filter: { strategy: "all" } },
    validate: { episodes: 2 },
    metrics: { port: 0 },
  };
  writeFileSync(join(folder, "config.yaml"), JSON.stringify(config));
  return ["--config", join(folder, "config.yaml"), "--run-dir", join(folder, "run")];
}

test("a run on an env that fails with hostile text, while the terminal is redrawn", async () => {
  // Of training; were chance or validation not known, there would be no run.
  const episodes = new Set<string>();
  await using server = jsonService(({ path, body }) => {
    const request = body as { episode: string; layoutSeed: number } | null;
    if (path === "/health") return { protocol: 1, envs: ["hostile"] };
    if (path === "/open" && request!.layoutSeed >= 10_000 && request!.layoutSeed % 2 === 0) return refused(HOSTILE);
    if (path === "/close" && episodes.has(request!.episode)) return refused(HOSTILE.slice(0, 1000));
    if (path === "/open" && request!.layoutSeed >= 10_000) episodes.add(request!.episode);
    const answer = { observation: `which?${HOSTILE.slice(0, 40)}`, admissible: ["left", "right"] };
    if (path === "/step") return { ...answer, reward: 0, done: true, success: false };
    return path === "/open" ? answer : {};
  });
  const args = remoteRun(server.url);
  const { code, out: text } = await onTerminal(["cluster", ...args, "--exit"]);
  expect([code, text.includes(SHOWN), text.includes("update 2/2")]).toEqual([0, true, true]);
  expectHarmless(text);
});

test("a run that cannot begin, as its env's first words are hostile", async () => {
  await using server = jsonService(({ path }) =>
    path === "/health" ? { protocol: 1, envs: ["hostile"] } : refused(HOSTILE.slice(0, 1000)),
  );
  const args = remoteRun(server.url);
  const { code, out: text } = await onTerminal(["cluster", ...args, "--verbose"]);
  expect([code, text.includes("error: the run ended: "), text.includes(SHOWN)]).toEqual([1, true, true]);
  expectHarmless(text);
});

test.each([
  ["whose replies are hostile", 200, { code: 0, shows: "failed: invalid format 2" }],
  ["whose server refuses with hostile words", 400, { code: 1, shows: "status 400: [31m ]0;owned [2J 2J abc yyy" }],
])("a hosted model %s", async (_, status, expected) => {
  const message = { content: `<think>${HOSTILE}</think><answer>${HOSTILE}</answer>` };
  await using server = jsonService(() =>
    status === 200
      ? { choices: [{ message, finish_reason: "stop" }], usage: { prompt_tokens: 1, completion_tokens: 1 } }
      : new Response(HOSTILE, { status }),
  );
  const hosted = ["--policy", "openai:tiny", "--base-url", `${server.url}/v1`];
  const { code, out: text } = await onTerminal([
    "eval",
    "--env",
    "FrozenLake",
    ...hosted,
    "--episodes",
    "2",
    "--verbose",
  ]);
  expect([code, text.includes(expected.shows)]).toEqual([expected.code, true]);
  expectHarmless(text);
});

test("a recorded episode, shown and compared", async () => {
  const folder = join(temporaryFolder(), "run");
  mkdirSync(folder);
  const config = tinyConfig(folder, { samplers: 1, updates: 1, warmStart: "shared" });
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  const run = await startOneThread({ run: "run", folder, config, event: () => {}, output: () => {} });
  expect((await run.ended).ok).toBe(true);
  const db = new Database(join(folder, "run.sqlite"));
  const [{ id, turns }] = db.query("SELECT id, turns FROM bodies ORDER BY id DESC LIMIT 1").all() as [
    { id: number; turns: string },
  ];
  const [turn] = JSON.parse(turns);
  const spoilt = JSON.stringify([{ ...turn, reply: `<think>${HOSTILE}`, observation: HOSTILE }]);
  db.run("UPDATE bodies SET turns = ?, final_observation = ? WHERE id = ?", [spoilt, HOSTILE, id]);
  db.close();
  const { code, out: text } = await onTerminal(["replay", String(id), "--run", folder, "--show"]);
  expect([code, text.includes(`> <think>${SHOWN}`), text.includes("differs at ")]).toEqual([1, true, true]);
  expectHarmless(text);
});
