/** The folder of a run: what it holds, and what is refused before any process starts. */
import { describe, expect, test } from "bun:test";
import { appendFileSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import type { Tree } from "../../actors/config/layers.ts";
import { composeWithEnvFile } from "../../actors/config/preset-files.ts";
import { ConfigError } from "../../actors/errors.ts";
import { addStart, readStarts } from "../../actors/record/starts.ts";
import { lockRun } from "../../actors/supervisor/run-lock.ts";
import { lengthenRun, oldRun } from "../../library/old-run.ts";
import { newRun } from "../../library/run-folder.ts";

import { overrideLayer } from "../../scripts/cli/presets.ts";
import { thisStart } from "../../scripts/cli/run-result.ts";
import { configOf } from "../actors/training/stage.ts";
import { temporaryFolder } from "../scripts/temporary.ts";

const SECRETS = ["a-token-of-the-page", "a-token-of-guests", "a-token-of-samplers", "a-token-of-env-servers"] as const;
const config = configOf({
  metrics: { token: SECRETS[0] },
  join: { token: SECRETS[1], samplerToken: SECRETS[2], envServerToken: SECRETS[3] },
});
const begun = () => newRun(config, join(temporaryFolder(), "run")).folder;

test("a new folder holds the run's config without its secrets, and the run has them", () => {
  const folder = begun();
  expect(readdirSync(folder)).toEqual(["config.json"]);
  const text = readFileSync(join(folder, "config.json"), "utf8");
  expect(SECRETS.filter((secret) => text.includes(secret))).toEqual([]);
  expect(config.metrics.token).toBe(SECRETS[0]);
});

test("a folder that exists is refused for a new run, and stays as it was", () => {
  const folder = begun();
  const before = statSync(join(folder, "config.json")).mtimeMs;
  expect(() => newRun(config, folder)).toThrow(`${folder} exists; choose another --run-dir, or resume it`);
  expect(statSync(join(folder, "config.json")).mtimeMs).toBe(before);
});

test("a run has a name of at most 64 characters; without one it gets the day, its env and the first free number", () => {
  const parent = temporaryFolder();
  expect(basename(newRun(config, join(parent, "x".repeat(64))).folder).length).toBe(64);
  expect(() => newRun(config, join(parent, "x".repeat(65)))).toThrow("at most 64 characters");
  const names = [1, 2].map(() => basename(newRun(config, undefined, parent).folder));
  const [, day, env] = /^(\d{4}-\d\d-\d\d)-([a-z]+)-1$/.exec(names[0]!)!;
  expect(names[1]).toBe(`${day}-${env}-2`);
});

test("a folder that cannot be made is refused in one line, as where a file has its name", () => {
  const file = join(begun(), "config.json");
  expect(() => newRun(config, join(file, "mine"))).toThrow(
    `cannot make ${join(file, "mine")}, the folder of the run: `,
  );
  expect(() => newRun(config, undefined, file)).toThrow(`cannot make ${file}/`);
});

test("a resumed run keeps its config; its addresses and secrets may change", () => {
  const folder = begun();
  const change = (path: string, text: string) =>
    oldRun(folder, [overrideLayer({ path, text, source: `--${path}` })]).config;
  expect(() => change("learner.learningRate", "1e-4")).toThrow(
    "--learner.learningRate: a resumed run keeps its config",
  );
  const moved = "http://127.0.0.1:8802";
  expect(change("engine.url", moved).engine).toEqual({ ...config.engine, url: moved });
  expect(change("metrics.port", "0")).toEqual({
    ...config,
    metrics: { ...config.metrics, token: null, port: 0 },
    join: { ...config.join, token: null, samplerToken: null, envServerToken: null },
  });
});

test("a resumed run takes the file that began it, with its secrets; of another file it names what differs", () => {
  const folder = begun();
  const { metrics, join: tokens, ...others } = JSON.parse(JSON.stringify(config));
  const file = (values: Record<string, unknown>) => () => oldRun(folder, [{ source: "run.yaml", values }]).config;
  expect(file({ ...others, metrics, join: tokens })()).toEqual(config);
  expect(file({ rollout: { ...others.rollout, groups: others.rollout.groups + 1 } })).toThrow(
    "run.yaml: a resumed run keeps its config, except for --updates, --minutes, metrics.*, transport.*, join.* and engine.url; leave rollout.groups out",
  );
  expect(file({ metrics: { host: "0.0.0.0" } })).toThrow(
    "set metrics.token, or use 127.0.0.1. config.json holds no secrets: give the file of --config again",
  );
});

test("a resumed run takes the file that began it, also where the schema has completed the file's lists", () => {
  const stage = { name: "learn", steps: 5, batch: 4, learningRate: 1e-3 };
  const values = {
    env: { mix: [{ tag: "FrozenLake", options: { successRate: 0.8 } }, { tag: "Bandit" }] },
    warmStart: { stages: [stage] },
  };
  const { folder } = newRun(composeWithEnvFile([{ source: "mix.yaml", values }]), join(temporaryFolder(), "run"));
  const resumed = (values: Tree) => () => oldRun(folder, [{ source: "mix.yaml", values }]).config.warmStart.stages;
  const { batch: _, ...withoutBatch } = stage;
  for (const kept of [values, { warmStart: { stages: { 0: { steps: 5 } } } }])
    expect(resumed(kept)()).toMatchObject([stage]);
  for (const stages of [[{ ...stage, steps: 6 }], [withoutBatch], [], { 0: { steps: 6 } }])
    expect(resumed({ warmStart: { stages } })).toThrow(/keeps its config, .*; leave warmStart\.stages/);
});

describe("a finished run", () => {
  const finishedAfter = (updates: number, minutes = 2.5) => {
    const folder = begun();
    writeFileSync(join(folder, "report.json"), JSON.stringify({ updates, minutes }));
    return folder;
  };
  const flag = (path: string, text: string) => overrideLayer({ path, text, source: `--${path}=${text}` });

  test("continues if it gets more updates: its config keeps them, and its report the name of its last update", () => {
    const folder = finishedAfter(6);
    const run = oldRun(folder, [flag("learner.updates", "9"), flag("metrics.port", "0")]);
    expect(readdirSync(folder).sort()).toEqual(["config.json", "report.json"]);
    lengthenRun(run);
    expect(readdirSync(folder).sort()).toEqual(["config.json", "lock.sqlite", "report-u000006.json"]);
    const { learner, metrics } = oldRun(folder, []).config;
    expect([learner.updates, metrics.port]).toEqual([9, config.metrics.port]);
    expect(learner).toEqual({ ...config.learner, updates: 9 });
  });

  test("is refused without more updates, or without more minutes where they are limited", () => {
    const folder = finishedAfter(6);
    const text = `the run in ${folder} is finished; to continue it, give --updates N above 6, or start a new run`;
    for (const overrides of [[], [flag("learner.updates", "6")], [flag("metrics.port", "0")]]) {
      expect(() => oldRun(folder, overrides)).toThrow(new ConfigError(text));
    }
    const limited = [flag("learner.updates", "9"), flag("learner.minutes", "2")];
    expect(() => oldRun(folder, limited)).toThrow("give --updates N above 6 and --minutes M above 2.5, or start");
    const equal = [flag("learner.updates", "9"), flag("learner.minutes", "2.5")];
    expect(() => oldRun(folder, equal)).toThrow("--minutes M above 2.5");
    expect(oldRun(folder, [equal[0]!, flag("learner.minutes", "2.6")]).config.learner.minutes).toBe(2.6);
  });

  test("that ended early is not continued unless its length is given again", () => {
    const folder = finishedAfter(config.learner.updates - 1);
    expect(() => oldRun(folder, [])).toThrow("is finished");
    const length = flag("learner.updates", `${config.learner.updates}`);
    const run = oldRun(folder, [length]);
    lengthenRun(run);
    lockRun(folder).release();
  });

  test.each(["", '{\n  "run": ', "{}"])("with the damaged report %j is refused with the name of its file", (text) => {
    const folder = finishedAfter(6);
    const file = join(folder, "report.json");
    writeFileSync(file, text);
    expect(() => oldRun(folder, [flag("learner.updates", "9")])).toThrow(
      new ConfigError(`${file} is damaged: it is not a report of a run; move the file away, and resume the run again`),
    );
  });

  test("is refused more updates than there are boards to train on", () => {
    const folder = finishedAfter(6);
    expect(() => oldRun(folder, [flag("learner.updates", "4000000000")])).toThrow("the last board's seed is above");
    expect(existsSync(join(folder, "report.json"))).toBe(true);
  });
});

test("its folder keeps the command of each start, without secrets, with commit, versions and machine", () => {
  const folder = begun();
  const args = ["--env", "Bandit", `--join.token=${SECRETS[1]}`, "--run-dir", "my run"];
  addStart(folder, thisStart("cluster", args, new Date(0)));
  addStart(folder, thisStart("cluster", ["--resume", folder], new Date(1)));
  const [first, second] = readStarts(folder);
  expect(first!.command).toBe("bun run cluster --env Bandit --join.token=HIDDEN --run-dir 'my run'");
  expect([first!.at, second!.command]).toEqual(["1970-01-01T00:00:00.000Z", `bun run cluster --resume ${folder}`]);
  expect(first!.commit ?? "0".repeat(40)).toMatch(/^[0-9a-f]{40}\+?$/);
  expect(Object.keys(first!.versions)).toEqual(["bunraku", "bun", "onnxruntime"]);
  appendFileSync(join(folder, "starts.jsonl"), '{"at": "now"}\n');
  expect(() => readStarts(folder)).toThrow(`cannot read ${join(folder, "starts.jsonl")}, line 3: `);
});

test("half a line that a kill left in its starts is left out, and the next start cuts it off", () => {
  const folder = begun();
  const file = join(folder, "starts.jsonl");
  const start = (second: number) => thisStart("cluster", [], new Date(1000 * second));
  addStart(folder, start(0));
  appendFileSync(file, '{"at": "1970-01-01T00:00:01.000Z", "comm');
  expect(readStarts(folder)).toEqual([start(0)]);
  addStart(folder, start(2));
  // A whole line without its line break is a start.
  appendFileSync(file, JSON.stringify(start(3)));
  expect(readStarts(folder)).toEqual([start(0), start(2), start(3)]);
  addStart(folder, start(4));
  expect(readStarts(folder)).toEqual([start(0), start(2), start(3), start(4)]);
});
