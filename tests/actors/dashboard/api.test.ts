/** The API's description of itself, its answers on other runs, and thinned series. */

import { Database } from "bun:sqlite";
import { beforeEach, describe, expect, spyOn, test } from "bun:test";
import * as fs from "node:fs";
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { saveJson } from "../../../actors/checkpoint/json.ts";
import { realClock } from "../../../actors/clock.ts";
import type { RunsAnswer } from "../../../actors/dashboard/answers.ts";
import { API } from "../../../actors/dashboard/api.ts";
import { dashboardApp } from "../../../actors/dashboard/app.tsx";
import { NearbyRuns } from "../../../actors/dashboard/runs.ts";
import { Tokenizer } from "../../../model/text/tokenizer.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { actorView, playedRow } from "../metrics-sink/fake-run.ts";
import { openFilesIn } from "../metrics-sink/open-files.ts";
import { recordIn } from "../metrics-sink/recorded.ts";
import { recordedRow } from "../record/recorded-episode.ts";
import { configOf } from "../training/stage.ts";
import { setStage } from "./stage.ts";

const stage = setStage();
// biome-ignore lint/suspicious/noExplicitAny: answers of all kinds, which the tests look into.
const json = async (path: string): Promise<any> => (await stage.app.request(path)).json();

describe("/api/openapi.json", () => {
  /** Of an answer's schema: required and allowed keys, all the way down. */
  function check(schema: Record<string, unknown>, value: unknown, at: string): void {
    const options = (schema["anyOf"] ?? schema["oneOf"]) as Record<string, unknown>[] | undefined;
    if (options !== undefined) {
      const fits = options.some((option) => {
        try {
          check(option, value, at);
          return true;
        } catch {
          return false;
        }
      });
      if (!fits) throw new Error(`${at} fits none of its options: ${JSON.stringify(value)?.slice(0, 200)}`);
      return;
    }
    const type = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
    const wanted = [schema["type"] ?? type].flat().map((one) => (one === "integer" ? "number" : one));
    if (!wanted.includes(type)) throw new Error(`${at} is ${type}, not ${wanted}`);
    if ("const" in schema && schema["const"] !== value) throw new Error(`${at} is not ${schema["const"]}`);
    if (type === "array") {
      for (const [i, item] of (value as unknown[]).entries()) check(schema["items"] as never, item, `${at}[${i}]`);
    }
    if (type !== "object" || schema["properties"] === undefined) return;
    const properties = schema["properties"] as Record<string, Record<string, unknown>>;
    for (const name of schema["required"] as string[]) {
      if (!Object.hasOwn(value as object, name)) throw new Error(`${at} lacks ${name}`);
    }
    for (const [name, inner] of Object.entries(value as object)) {
      if (properties[name] === undefined) throw new Error(`${at} has ${name}, which is not described`);
      check(properties[name], inner, `${at}.${name}`);
    }
  }

  test("describes what each question is answered with", async () => {
    stage.startRun();
    stage.run.warm(1);
    await stage.run.update(1);
    await stage.run.episodes([recordedRow({ babble: 0 })]);
    const outcome = { status: "envError", detail: "boom" } as const;
    await stage.run.episodes([{ ...playedRow({ episode: "bad" }), outcome, update: null, advantage: null }]);
    stage.sink.takeActors([actorView("learner", { weights: { version: 1, digest: "ab".repeat(32) } })]);
    stage.sink.flush();
    const { openapi, paths } = await json("/api/openapi.json");
    expect(openapi).toBe("3.1.0");
    expect(Object.keys(paths).sort()).toEqual([...API.map(({ path }) => path), "/api/stream"].sort());
    const asked = [
      "run",
      "actors",
      "metrics?points=100",
      "costs",
      "names",
      "events",
      "episodes",
      "episodes/5",
      "episodes/6",
      "play",
      "ratings",
      "setup",
      "runs",
    ];
    for (const path of asked) {
      const key = `/api/${path.replace(/\?.*/, "").replace(/\/\d+/, "/{id}")}`;
      const { schema } = paths[key].get.responses[200].content["application/json"];
      const answer = await stage.app.request(`/api/${path}`);
      expect([path, answer.status]).toEqual([path, 200]);
      expect(() => check(schema, [], path)).toThrow();
      const value = await answer.json();
      check(schema, value, path);
    }
  });

  test("names every parameter, with what it means and may be", async () => {
    const { paths } = await json("/api/openapi.json");
    const of = (path: string) => paths[path].get.parameters as { name: string; in: string; schema: object }[];
    expect(of("/api/episodes/{id}").map(({ name, in: where }) => [name, where])).toEqual([["id", "path"]]);
    const limit = of("/api/episodes").find(({ name }) => name === "limit")!;
    expect(limit).toMatchObject({ in: "query", required: false, schema: { minimum: 1, maximum: 200, default: 50 } });
    expect(of("/api/metrics").map(({ name }) => name)).toEqual(["names", "since", "points"]);
  });
});

describe("/api/metrics", () => {
  test("leaves out the updates that a roll-back gave up, and keeps the warm start", async () => {
    stage.startRun();
    stage.run.metrics(40, { "warm/loss": 0.5 });
    for (const step of [1, 2, 3, 4, 2]) stage.run.metrics(step, { "health/verdict": 0, "total/updates": step });
    stage.sink.flush();
    const { series } = await json("/api/metrics?names=health/verdict,warm/loss");
    expect(series.map(({ steps }: { steps: number[] }) => steps)).toEqual([[1, 2], [40]]);
  });

  test("keep common steps where their lengths differ, so that a mean of them has no gaps", async () => {
    stage.startRun();
    const names = ["train/entropy", "train/grad_norm", "train/success"] as const;
    const points = names.flatMap((name, i) =>
      Array.from({ length: 7000 + 1500 * i }, (_, at) => {
        return { name, actor: "learner", step: at + 1, value: Math.sin((at + 1) * (i + 1)) };
      }),
    );
    stage.store.write({ points, events: [], episodes: [] });
    const { series } = await json(`/api/metrics?points=2000&names=${names}`);
    const [first, ...others] = (series as { steps: number[] }[]).map(({ steps }) => new Set(steps));
    const common = [...first!].filter((step) => others.every((steps) => steps.has(step)));
    expect(Math.max(...common.slice(1).map((step, i) => step - common[i]!))).toBeLessThan(40);
  });

  test("thins a long series to so many points, without losing its highest", async () => {
    stage.startRun();
    for (let step = 1; step <= 5000; step++) stage.run.metrics(step, { "train/entropy": step === 777 ? 9 : step % 7 });
    stage.sink.flush();
    const { series } = await json("/api/metrics?names=train/entropy&points=200");
    const [{ steps, values }] = series;
    expect(steps.length).toBeLessThanOrEqual(200);
    expect(steps.length).toBeGreaterThan(100);
    expect([steps[0], steps.at(-1), steps[values.indexOf(9)]]).toEqual([1, 5000, 777]);
  });
});

describe("/api/episodes/ID", () => {
  test("has what the policy wrote, token by token, which is what the env read", async () => {
    stage.startRun();
    const row = recordedRow({ babble: 0 });
    await stage.run.episodes([row]);
    const { written } = await json("/api/episodes/1");
    const replies = written.map((turn: { text: string }[]) => turn.map(({ text }) => text).join(""));
    const said = "turns" in row.outcome ? row.outcome.turns.map(({ reply }) => reply.replace("<think>", "")) : [];
    expect(replies).toEqual(said.map((reply) => `${reply}⏎`));
  });

  test("has the prompt before each reply: the new part of the context, or all of it where the context is new", async () => {
    stage.startRun();
    const parts: [text: string, written: 0 | 1][] = [
      ["<|im_start|>one<|im_end|><think>", 0],
      ["a</think><|im_end|>", 1],
      ["<|im_start|>two<|im_end|><think>", 0],
      ["b</think><|im_end|>", 1],
      // A context of two turns, the first of which is shown again.
      ["<|im_start|>two<|im_end|><think>b</think><|im_end|><|im_start|>three<|im_end|><think>", 0],
      ["c</think><|im_end|>", 1],
    ];
    const tokenizer = new Tokenizer();
    const coded = parts.map(([text, written]) => ({ tokens: tokenizer.encode(text), written }));
    const ends = coded.map((_, i) => coded.slice(0, i + 1).reduce((sum, { tokens }) => sum + tokens.length, 0));
    const row = playedRow();
    if (!("trajectory" in row.outcome)) throw new Error("it was played");
    const trajectory = {
      ...row.outcome.trajectory,
      tokens: Int32Array.from(coded.flatMap(({ tokens }) => tokens)),
      written: Uint8Array.from(coded.flatMap(({ tokens, written }) => tokens.map(() => written))),
      logProbs: new Float32Array(ends.at(-1)!),
      contexts: [0, ends[3]!],
      turns: [1, 3, 5].map((part) => ({ end: ends[part]! - 1, reward: 0, penalty: 0 })),
    };
    const [turn] = row.outcome.turns;
    await stage.run.episodes([{ ...row, outcome: { ...row.outcome, trajectory, turns: [turn!, turn!, turn!] } }]);
    const { prompts } = await json("/api/episodes/1");
    expect(prompts).toEqual([parts[0]![0], parts[2]![0], parts[4]![0]]);
  });
});

describe("the advantage of a token", () => {
  test("is its own where tokens differ, and the episode's where they do not", async () => {
    stage.startRun();
    const row = playedRow({ episode: "a" });
    const own = { ...row, advantage: 0.25, tokenAdvantages: Float32Array.of(-0.5, 0.25, 1) };
    await stage.run.episodes([own, { ...playedRow({ episode: "b" }), advantage: 0.5 }]);
    const advantages = async (id: number) =>
      ((await json(`/api/episodes/${id}`)).written as { advantage: number }[][])
        .flat()
        .map(({ advantage }) => advantage);
    expect(await advantages(1)).toEqual([-0.5, 0.25, 1]);
    expect(await advantages(2)).toEqual([0.5, 0.5, 0.5]);
    expect(stage.store.episode(1)!.row).toEqual(own);
  });
});

describe("events", () => {
  test("of one kind, or of a level and worse", async () => {
    stage.startRun();
    stage.run.event("health", "warning: entropy", "warning");
    stage.run.event("phase", "reinforcement");
    stage.run.event("crash", "boom", "error");
    stage.sink.flush();
    const texts = async (query: string) =>
      ((await json(`/api/events?${query}`)).events as { text: string }[]).map(({ text }) => text);
    expect(await texts("kind=health")).toEqual(["warning: entropy"]);
    expect(await texts("level=warning")).toEqual(["boom", "warning: entropy"]);
    expect(await texts("level=error")).toEqual(["boom"]);
    expect((await json("/api/run")).alarm).toEqual({ level: "warning", text: "warning: entropy" });
    stage.run.event("health", "healthy");
    stage.sink.flush();
    expect((await json("/api/run")).alarm).toBeNull();
  });
});

describe("other runs", () => {
  let root: string;
  beforeEach(() => {
    root = temporaryFolder();
    stage.startRun();
    stage.app = dashboardApp({
      shown: { ...stage.context, nearby: new NearbyRuns(root, "this") },
      clock: realClock,
      signal: stage.closing.signal,
      token: null,
      assets: { get: () => Promise.resolve(null) },
    });
  });

  const record = (name: string, success: number, startedMs: number) =>
    recordIn(join(root, name), { "validate/success": [[4, success]] }, { env: "FrozenLake" }, startedMs).close();

  test("are listed newest first, without this one, and with what cannot be read", async () => {
    record("this", 0.5, 50);
    record("old", 0.25, 100);
    record("new", 0.75, 200);
    mkdirSync(join(root, "broken"));
    writeFileSync(join(root, "broken", "run.sqlite"), "no database at all ".repeat(100));
    mkdirSync(join(root, "not-a-run"));
    const { runs, unreadable } = await json("/api/runs");
    const shared = { env: "FrozenLake", seed: 1, settings: null, phase: "silent", update: null };
    expect(runs).toEqual([
      { ...shared, name: "new", run: "new", startedMs: 200, success: 0.75 },
      { ...shared, name: "old", run: "old", startedMs: 100, success: 0.25 },
    ]);
    expect(unreadable.map(({ name }: { name: string }) => name)).toEqual(["broken"]);
    const answer = await stage.app.request("/api/runs/broken/metrics?names=validate/success");
    expect([answer.status, await answer.json()]).toEqual([
      500,
      {
        error: expect.stringContaining(
          `cannot open ${join(root, "broken", "run.sqlite")}: file is not a database; it is`,
        ),
      },
    ]);
  });

  test("are listed without a run that is removed meanwhile", async () => {
    record("removed", 0.25, 100);
    record("kept", 0.75, 200);
    const { statSync } = fs;
    using _ = spyOn(fs, "statSync").mockImplementation(((path: string, options?: fs.StatSyncOptions) => {
      if (path === join(root, "removed", "run.sqlite")) rmSync(join(root, "removed"), { recursive: true });
      return statSync(path, options);
    }) as typeof statSync);
    const { runs, unreadable } = await json("/api/runs");
    expect([runs.map(({ name }: { name: string }) => name), unreadable]).toEqual([["kept"], []]);
  });

  test("have their own pages and API under /run/NAME/, read only; /runs lists them", async () => {
    record("old", 0.25, 100);
    writeFileSync(join(root, "old", "config.json"), JSON.stringify({ env: { tag: "Bandit" }, seed: 5 }));
    const list = await (await stage.app.request("/runs")).text();
    expect(list).toMatch(/href="\/run\/old\/">old<\/a>.*FrozenLake.*stopped.*25\.0 %/s);
    const [page, run, missing] = await Promise.all(
      ["/run/old/", "/run/old/api/run", "/run/nobody/api/run"].map((path) => stage.app.request(path)),
    );
    expect(await page!.text()).toContain('<a href="episodes" aria-keyshortcuts="3">');
    expect(await run!.json()).toMatchObject({ run: "old", success: { now: 0.25 } });
    expect([missing!.status, (await stage.app.request("/run/old")).headers.get("Location")]).toEqual([
      404,
      "/run/old/",
    ]);
    const { settings, starts } = await json("/run/old/api/setup");
    expect(settings).toContainEqual({ path: "seed", value: 5, default: 10_000 });
    expect(starts).toEqual([]);
    expect((await stage.app.request("/run/old/api/run", { headers: { "Sec-Fetch-Site": "cross-site" } })).status).toBe(
      403,
    );
  });

  test("have equal digests of settings if only seed, addresses and supervision differ", async () => {
    const configs: Record<string, Record<string, object>> = {
      this: {},
      seed: {},
      address: { metrics: { port: 0 }, join: { listen: null }, transport: { listen: "ws://127.0.0.1:1" } },
      supervision: { supervisor: { restartsMax: 1 } },
      learner: { learner: { learningRate: 0.5 } },
    };
    for (const [name, values] of Object.entries(configs)) {
      record(name, 0.5, 100);
      writeFileSync(join(root, name, "config.json"), JSON.stringify({ ...configOf(values), seed: name.length }));
    }
    const { settings, runs } = (await json("/api/runs")) as unknown as RunsAnswer;
    expect(settings).toMatch(/^[0-9a-f]{16}$/);
    const equal = runs.filter((run) => run.settings === settings).map(({ name }) => name);
    expect(equal.sort()).toEqual(["address", "seed", "supervision"]);
    expect(runs.length).toBe(4);
  });

  test("that an older version recorded without what the page needs have no page", async () => {
    record("old", 0.5, 100);
    const db = new Database(join(root, "old", "run.sqlite"));
    db.run("PRAGMA user_version = 3");
    db.close();
    const answer = await stage.app.request("/run/old/api/run");
    expect([answer.status, await answer.text()]).toEqual([500, expect.stringContaining("use that version")]);
  });

  test("with blanks in their names have addresses", async () => {
    const answer = await stage.app.request("/run/a%20b");
    expect(answer.headers.get("Location")).toBe("/run/a%20b/");
    expect((await stage.app.request("/run/a/b/api/ratings", { method: "POST" })).status).toBe(405);
  });

  test("are read anew where a run was removed and another one has its name", async () => {
    const made = (success: number) => {
      rmSync(join(root, "same"), { recursive: true, force: true });
      record("same", success, 100);
      writeFileSync(join(root, "same", "config.json"), JSON.stringify({ env: { tag: "Bandit" }, seed: 5 }));
    };
    for (const success of [0.25, 0.75]) {
      made(success);
      expect(await json("/run/same/api/run")).toMatchObject({ success: { now: success } });
    }
    rmSync(join(root, "same"), { recursive: true });
    expect((await stage.app.request("/run/same/api/run")).status).toBe(404);
  });

  test("show the settings of a run that was resumed with others", async () => {
    record("resumed", 0.25, 100);
    const file = join(root, "resumed", "config.json");
    for (const updates of [100, 200]) {
      saveJson(file, { env: { tag: "Bandit" }, learner: { updates } });
      const { settings } = await json("/run/resumed/api/setup");
      expect(settings).toContainEqual(expect.objectContaining({ path: "learner.updates", value: updates }));
    }
  });

  test("are shown in turn, more of them than are open at once", async () => {
    for (let n = 0; n < 9; n++) {
      record(`r${n}`, n / 9, n);
      writeFileSync(join(root, `r${n}`, "config.json"), "{}");
    }
    const openRuns = () => openFilesIn(root).filter((path) => path.endsWith("/run.sqlite")).length;
    for (let n = 0; n < 10; n++) {
      expect(await json(`/run/r${n % 9}/api/run`)).toMatchObject({ run: `r${n % 9}` });
      expect(openRuns()).toBe(Math.min(n + 1, 8));
    }
  }, 300_000);

  test("are read and not written, and nothing outside their folder is", async () => {
    record("old", 0.25, 100);
    record("../elsewhere", 0.1, 100);
    symlinkSync(join(root, "../elsewhere"), join(root, "link"));
    const bytes = readFileSync(join(root, "old", "run.sqlite"));
    const { series } = await json("/api/runs/old/metrics?names=validate/success");
    expect(series).toEqual([{ name: "validate/success", actor: "learner", steps: [4], values: [0.25] }]);
    expect(readFileSync(join(root, "old", "run.sqlite"))).toEqual(bytes);
    for (const name of ["link", "..%2felsewhere", "..%2f..", "this", "nobody"]) {
      const answer = await stage.app.request(`/api/runs/${name}/metrics?names=validate/success`);
      expect([name, answer.status]).toEqual([name, 404]);
    }
    rmSync(join(root, "../elsewhere"), { recursive: true });
  });
});
