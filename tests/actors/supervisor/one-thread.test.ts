/**
 * A tiny Bandit run, once on one thread, twice as processes and twice as workers. Updates must not depend on which sampler plays, where
 * the actors live or how messages travel, so everything but the times is compared as it is stored.
 */
import { Database } from "bun:sqlite";
import { beforeAll, describe, expect, test } from "bun:test";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { latestCheckpoint, loadCheckpoint } from "../../../actors/checkpoint/checkpoint.ts";
import { RunConfig } from "../../../actors/config/config.ts";
import { merge } from "../../../actors/config/layers.ts";
import { isTimeIndependent } from "../../../actors/metrics/metrics.ts";
import { type Cluster, startCluster } from "../../../actors/supervisor/cluster.ts";
import { overrideLayer } from "../../../scripts/cli/presets.ts";
import { startFrom } from "../../../scripts/cluster.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { learnt, playRun, startOneThread, stopRunAt, type TinyChoices, tinyConfig } from "./tiny-run.ts";

interface Run {
  readonly folder: string;
  readonly lines: string[];
  readonly cluster: Cluster;
}

type Choices = TinyChoices & { readonly actors?: RunConfig["actors"] };

async function start(how: typeof startCluster, values: Choices, old?: string): Promise<Run> {
  const folder = old ?? join(temporaryFolder(), "run");
  mkdirSync(folder, { recursive: true });
  const lines: string[] = [];
  const config = { ...tinyConfig(folder, values), actors: values.actors ?? "processes" };
  const output = (_: string, line: string) => lines.push(line);
  return { folder, lines, cluster: await how({ run: "run", folder, config, event: () => {}, output }) };
}

/** Everything a run stored that must not depend on time, as text. */
function stored(folder: string): { metrics: string[]; episodes: string[] } {
  const db = new Database(join(folder, "run.sqlite"), { readonly: true });
  const rows = db.query("SELECT name, actor, step, value FROM metrics ORDER BY name, actor, step").values();
  const timeIndependent = rows.filter(([name]) => isTimeIndependent(String(name)));
  const episodes = db
    .query(
      `SELECT episode, attempt, layout_seed, dynamics_seed, version, digest, reward, stop, trained_in, advantage,
       turns, spans, hex(tokens), hex(written), hex(log_probs) FROM episodes JOIN bodies USING (id) ORDER BY episode`,
    )
    .values();
  db.close();
  return {
    metrics: timeIndependent.map((row) => JSON.stringify(row)),
    episodes: episodes.map((row) => JSON.stringify(row)),
  };
}

const successes = (folder: string) => JSON.parse(readFileSync(join(folder, "report.json"), "utf8")).success;

describe("a run on one thread", () => {
  let single: Run;
  beforeAll(async () => {
    single = await start(startOneThread, { samplers: 2 });
    expect(await single.cluster.ended).toEqual({ ok: true, reason: "learner finished" });
  }, 300_000);

  test("trains, validates and reports", () => {
    const names = stored(single.folder).metrics.map((row) => JSON.parse(row).slice(0, 3).join(" "));
    for (const name of ["validate/success learner 0", "train/log_prob_gap learner 3", "total/episodes learner 3"]) {
      expect(names).toContain(name);
    }
    const { random, taught, before, after, best } = successes(single.folder);
    expect(taught).toBeGreaterThan(random);
    // A policy that never solved a board, or solved every one, would make the comparisons below say little.
    for (const share of [before, after]) expect([share > 0, share < best]).toEqual([true, true]);
  });

  test("has in its record that it finished, told as the learner left", () => {
    using db = new Database(join(single.folder, "run.sqlite"), { readonly: true });
    const last = db.query("SELECT kind FROM events ORDER BY id DESC LIMIT 2").values();
    expect(last).toEqual([["closed"], ["finished"]]);
  });

  test.each([
    ["processes", 1],
    ["processes", 2],
    ["workers", 2],
  ] as const)(
    "stores and learns exactly what %s with %d samplers do",
    async (actors, samplers) => {
      const processes = await start(startCluster, { samplers, actors });
      expect(await processes.cluster.ended).toEqual({ ok: true, reason: "learner finished" });
      const [ours, theirs] = [stored(single.folder), stored(processes.folder)];
      expect(theirs.metrics).toEqual(ours.metrics);
      expect(theirs.episodes).toEqual(ours.episodes);
      expect(await learnt(processes.folder)).toBe(await learnt(single.folder));
      expect(successes(processes.folder)).toEqual(successes(single.folder));
      expect(ours.metrics.length).toBeGreaterThan(60);
      expect(ours.episodes.length).toBeGreaterThan(3 * 16);
    },
    300_000,
  );

  const LOOPBACK = /^ws:\/\/127\.0\.0\.1:\d+$/;
  test("names its actors, where they are and what they do", async () => {
    const run = await start(startOneThread, { samplers: 1, updates: 1 });
    await run.cluster.ended;
    expect(run.cluster.children().map(({ name, url }) => [name, url])).toEqual([
      ["metrics-sink", expect.stringMatching(LOOPBACK)],
      ["env-server-0", expect.stringMatching(LOOPBACK)],
      ["learner", expect.stringMatching(LOOPBACK)],
      ["sampler-0", null],
    ]);
  }, 300_000);
});

describe("stopping", () => {
  let whole: Run;
  let short: Run;
  beforeAll(async () => {
    whole = await start(startOneThread, { samplers: 1, updates: 6, warmStart: "shared" });
    expect(await whole.cluster.ended).toEqual({ ok: true, reason: "learner finished" });
    short = await start(startOneThread, { samplers: 1, updates: 3, warmStart: "shared" });
    expect(await short.cluster.ended).toEqual({ ok: true, reason: "learner finished" });
  }, 300_000);

  test("saves what was learnt, and going on leads to where it would have been", async () => {
    const folder = join(temporaryFolder(), "run");
    const config = tinyConfig(folder, { samplers: 1, updates: 6, warmStart: "shared" });
    expect(await stopRunAt(folder, config, "update 2/6")).toEqual({ ok: true, reason: "enough" });
    const { found } = await latestCheckpoint(join(folder, "checkpoints"));
    expect(found).not.toBeNull();
    const resumed = await start(startOneThread, { samplers: 1, updates: 6, warmStart: "shared" }, folder);
    expect(await resumed.cluster.ended).toEqual({ ok: true, reason: "learner finished" });
    expect(await learnt(folder)).toBe(await learnt(whole.folder));
  }, 300_000);

  test("is no end: a finished run with more updates learns what a run of that length learns", async () => {
    const folder = join(temporaryFolder(), "run");
    cpSync(short.folder, folder, { recursive: true });
    const longer = await start(startOneThread, { samplers: 1, updates: 6, warmStart: "shared" }, folder);
    expect(await longer.cluster.ended).toEqual({ ok: true, reason: "learner finished" });
    expect(await learnt(folder)).toBe(await learnt(whole.folder));
  }, 300_000);

  test("leaves a policy that another run starts from", async () => {
    const folder = join(temporaryFolder(), "run");
    writeFileSync(join(short.folder, "config.json"), JSON.stringify(tinyConfig(short.folder, { samplers: 1 })));
    const layers = (await startFrom(short.folder, [])).map(overrideLayer);
    const config = RunConfig.parse(merge([{ source: "test", values: tinyConfig(folder, { samplers: 1 }) }, ...layers]));
    await playRun(folder, { ...config, learner: { ...config.learner, learningRate: 1e-30 } });
    const parameters = async (of: string) => {
      const { found } = await latestCheckpoint(join(of, "checkpoints"));
      return (await loadCheckpoint(found!)).policy.parameters;
    };
    expect(await parameters(folder)).toEqual(await parameters(short.folder));
    const { taught, after } = successes(folder);
    expect([taught, after]).toEqual([null, successes(short.folder).after]);

    const source = "--prompt.compat=ragen-v1";
    await expect(startFrom(short.folder, [{ path: "prompt.compat", text: "ragen-v1", source }])).rejects.toThrow(
      `${source}: the policy of ${short.folder} needs prompt.compat strict; leave it out`,
    );
    const other = { ...config, model: { ...config.model, hidden: 32 } };
    const text = "its hidden is 64, and this run's is 32; give the section model the values of that run";
    await expect(playRun(join(temporaryFolder(), "run"), other)).rejects.toThrow(text);
  }, 300_000);

  test("ends a run that has hardly begun", async () => {
    const { cluster, folder } = await start(startOneThread, { samplers: 1 });
    expect(await cluster.stop("never mind")).toEqual({ ok: true, reason: "never mind" });
    expect((await latestCheckpoint(join(folder, "checkpoints"))).found).toBeNull();
  }, 300_000);

  test("follows the first error, and names its cause", async () => {
    using taken = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
    const { cluster, lines } = await start(startOneThread, { samplers: 1, port: taken.port });
    const end = await cluster.ended;
    expect(end.ok).toBe(false);
    expect(end.reason).toContain(`metrics-sink exit code 1 (Error: cannot serve the page on 127.0.0.1:${taken.port}`);
    expect(lines.some((line) => line.includes('"level":"error"') && line.includes("the port is in use"))).toBe(true);
  }, 300_000);
});
