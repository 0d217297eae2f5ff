/** `bun run cluster` from start to end: what it prints, serves and leaves behind, and what may not depend on who plays. */
import { Database } from "bun:sqlite";
import { beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import type { ActorView } from "../../actors/protocol.ts";
import { commandHere, type Ended } from "../scripts/command.ts";
import { expectNothingLeft, expectSameLearnt, LONG, RunProcess, Runs, timeIndependentMetrics } from "./run-process.ts";

setDefaultTimeout(LONG);

const runs = new Runs("own");

/** With fewer groups, rewards would be equal within every one of them. */
const fresh = (learner: object = {}) => runs.fresh({ rollout: { groups: 8 }, learner });

interface Seen {
  readonly status: number;
  readonly text: string;
}
const look = async (url: string): Promise<Seen> => {
  const answer = await fetch(url, { signal: AbortSignal.timeout(10_000) });
  return { status: answer.status, text: await answer.text() };
};

/** The log may name an update before the metrics sink has its metrics. */
const lookFor = async (url: string, pattern: RegExp): Promise<Seen> => {
  for (;;) {
    const seen = await look(url);
    if (seen.status !== 200 || pattern.test(seen.text)) return seen;
  }
};
const TRAIN_SUCCESS = /^bunraku_train_success\{?.* \d/m;

let run: RunProcess;
let ended: Ended;
let seen: Readonly<Record<"page" | "metrics" | "run" | "ready", Seen>>;

beforeAll(async () => {
  const { folder, args } = fresh();
  run = new RunProcess(folder, [...args, "--samplers", "2", "--json"]);
  const page = (await run.entry(({ kind }) => kind === "page")).text!;
  await run.updated(1);
  seen = {
    page: await look(page),
    metrics: await lookFor(`${page}metrics`, TRAIN_SUCCESS),
    run: await look(`${page}api/run`),
    ready: await look(`${page}readyz`),
  };
  ended = await run.ended;
});

describe("a run", () => {
  test("ends with exit code 0, a table for people and one JSON object for programs", () => {
    expect(ended.code).toBe(0);
    const lines = ended.out.trimEnd().split("\n");
    for (const name of ["random", "taught", "before", "after", "best possible"]) {
      expect(lines.filter((line) => line.startsWith(name)).length).toBe(1);
    }
    const report = JSON.parse(lines.at(-1)!);
    // 6 updates of 32 episodes; 32 boards before, at 3, at 6, and at temperature 1.
    const known = {
      run: basename(run.folder),
      env: "FrozenLake",
      updates: 6,
      engine: "compiled",
      episodes: 6 * 32 + 4 * 32,
    };
    expect(report).toMatchObject(known);
    const { random, taught, before, after, best } = report.success;
    for (const share of [random, taught, before, after, best]) expect(share >= 0 && share <= 1).toBe(true);
    for (const key of ["minutes", "tokensPerSecond", "updatesPerMinute"]) expect(report[key]).toBeGreaterThan(0);
    expect(report.device).toStartWith("cpu");
    expect(report.logProbGap).toBeLessThan(1e-4);
    expect(JSON.parse(readFileSync(join(run.folder, "report.json"), "utf8"))).toMatchObject(known);
  });

  test("served its page, its metrics and its API while it went", () => {
    expect(seen.page).toMatchObject({ status: 200, text: expect.stringContaining("FrozenLake") });
    expect(seen.metrics).toMatchObject({ status: 200, text: expect.stringMatching(TRAIN_SUCCESS) });
    expect(seen.run.status).toBe(200);
    expect(seen.ready).toEqual({ status: 200, text: "ok\n" });
    expect(JSON.stringify(JSON.parse(seen.run.text))).toContain("FrozenLake");
  });

  test("recorded who took part, how they were, and which policy each held", () => {
    const db = new Database(join(run.folder, "run.sqlite"), { readonly: true });
    const views = db.query("SELECT view FROM actors ORDER BY name").all() as { view: string }[];
    const loads = db.query("SELECT DISTINCT actor, name FROM metrics WHERE name LIKE 'time/%' ORDER BY 1, 2").values();
    db.close();
    const actors = views.map(({ view }) => JSON.parse(view) as ActorView);
    expect(actors.map(({ name }) => name)).toEqual([
      "env-server-0",
      "learner",
      "metrics-sink",
      "sampler-0",
      "sampler-1",
    ]);
    const digests = actors.flatMap(({ weights }) => (weights === null ? [] : [weights.digest]));
    expect(digests.length).toBe(3);
    for (const digest of digests) expect(digest).toMatch(/^[0-9a-f]{64}$/);
    const loadsOf = (actor: string) => loads.filter(([of]) => of === actor).map(([, name]) => name);
    expect(loadsOf("sampler-0")).toEqual(["time/env", "time/policy", "time/tickets", "time/weights"]);
    expect(loadsOf("learner")).toEqual(["time/rollout", "time/save", "time/update", "time/weights"]);
    expect(loadsOf("env-server-0")).toEqual(["time/busy"]);
  });

  test("writes plain lines where there is no terminal", () => {
    expect(ended.err).not.toContain("\u001b");
    expect(ended.err).toMatch(/^update 1\/6 · success /m);
    expect(ended.err).toMatch(/^page: http:\/\/127\.0\.0\.1:\d+\/$/m);
    expect(ended.err).not.toMatch(/^(warning|error):/m);
  });

  test("leaves checkpoints and records, and neither processes nor shared memory", () => {
    // The best one is kept too.
    expect(readdirSync(join(run.folder, "checkpoints")).sort().slice(-3)).toEqual(["u000002", "u000004", "u000006"]);
    expect(run.pids.length).toBe(5);
    expectNothingLeft(run);
  });

  test("learnt something", () => {
    const stored = timeIndependentMetrics(run.folder).map((row) => JSON.parse(row) as [string, string, number, number]);
    const of = (name: string) => stored.filter(([other]) => other === name).map(([, , , value]) => value);
    expect(of("train/grad_norm").some((norm) => norm > 0)).toBe(true);
    expect(of("train/log_prob_gap").every((gap) => gap < 1e-4)).toBe(true);
    expect(of("total/skipped_updates").at(-1)).toBeLessThan(6);
    expect(of("train/failed_episodes")).toEqual(Array(6).fill(0));
  });
});

// One sampler as a process gives them too (tests/actors/supervisor/one-thread.test.ts).
test.each([
  [1, "one-thread"],
  [3, "processes"],
])("%p samplers (%s) give the bytes that 2 give", async (samplers, actors) => {
  const { folder, args } = fresh();
  const flags = ["--samplers", String(samplers), `--actors=${actors}`, "--quiet"];
  const other = new RunProcess(folder, [...args, ...flags]);
  const { code, err } = await other.ended;
  expect({ code, err }).toEqual({ code: 0, err: "" });
  await expectSameLearnt(folder, run.folder);
  expect(existsSync(join(folder, "report.json"))).toBe(true);
});

test("another seed gives another run", async () => {
  const { folder, args } = fresh({ updates: 1 });
  expect((await commandHere(["cluster", ...args, "--seed", "2", "--actors=one-thread"])).code).toBe(0);
  const first = (of: string) =>
    timeIndependentMetrics(of).filter((row) => /"(validate|train)\/.*"learner",[01],/.test(row));
  expect(first(folder).length).toBeGreaterThan(10);
  expect(first(folder)).not.toEqual(first(run.folder));
});

test("async mode trains on nothing older than it may", async () => {
  const { folder, args } = fresh({ updates: 6, mode: "async", stalenessMax: 1 });
  const { code, err } = await new RunProcess(folder, [...args, "--samplers", "2"]).ended;
  expect(code).toBe(0);
  expect(err).not.toMatch(/were played by weights more than/);
  const stale = timeIndependentMetrics(folder)
    .map((row) => JSON.parse(row) as [string, string, number, number])
    .filter(([name]) => name === "train/staleness")
    .map(([, , , value]) => value);
  expect(stale.length).toBe(6);
  expect(Math.max(...stale)).toBeLessThanOrEqual(1);
  // It did play ahead.
  expect(Math.max(...stale)).toBeGreaterThan(0);
});
