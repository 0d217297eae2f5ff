/**
 * `bun run export --run`: a run's record as other tools read it. TensorBoard, pandas and DuckDB themselves are asked where
 * BUNRAKU_PYTHON has them (bench/peers/README.md).
 */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { asyncBufferFromFile, parquetReadObjects } from "hyparquet";
import { RecordedRun } from "../../../actors/record/recorded-run.ts";
import { exportChats, exportParquet } from "../../../scripts/export/records.ts";
import { playedRow } from "../../actors/metrics-sink/fake-run.ts";
import { recordIn } from "../../actors/metrics-sink/recorded.ts";
import { playRun, tinyConfig } from "../../actors/supervisor/tiny-run.ts";
import { configOf } from "../../actors/training/stage.ts";
import { lackOfPython, pythonHere, testWhere } from "../../needs.ts";
import { commandHere } from "../command.ts";
import { temporaryFolder } from "../temporary.ts";

const python = pythonHere();

const home = temporaryFolder();
const folder = join(home, "run");
let run: RecordedRun;

beforeAll(async () => {
  const tiny = tinyConfig(folder, { samplers: 1 });
  const config = { ...tiny, metrics: { ...tiny.metrics, tensorboard: true } };
  await playRun(folder, config);
  run = new RecordedRun(folder);
}, 300_000);
afterAll(() => run.store.close());

async function exported(to: string, ...flags: string[]) {
  const out = join(home, `${to}${flags.join("")}`);
  const ended = await commandHere(["export", "--run", folder, "--to", to, "--out", out, "--json", ...flags]);
  expect(ended).toMatchObject({ code: 0, err: "" });
  return { out, told: JSON.parse(ended.out.trimEnd().split("\n").at(-1)!) };
}

const solvedOf = (name: "validate/success") => run.curve(name)!;

test("parquet: three tables with the rows of the record", async () => {
  const { out, told } = await exported("parquet");
  const read = async (name: string) =>
    parquetReadObjects({ file: await asyncBufferFromFile(join(out, `${name}.parquet`)) });
  const [metrics, events, episodes] = [await read("metrics"), await read("events"), await read("episodes")];
  expect(told).toEqual({
    out,
    format: "parquet",
    metrics: metrics.length,
    events: events.length,
    episodes: episodes.length,
  });
  const curve = metrics.filter(({ name }) => name === "validate/success");
  expect(curve.map(({ step }) => step)).toEqual([...solvedOf("validate/success").steps]);
  expect(curve.map(({ value }) => value)).toEqual([...solvedOf("validate/success").values]);
  const recorded = [...run.episodes({})];
  expect(episodes.map(({ episode }) => episode)).toEqual(recorded.map(({ summary }) => summary.episode));
  for (const [i, { summary, row }] of recorded.entries()) {
    const { reward, success, turnCount, atMs, update } = summary;
    const { turns } = row.outcome as { turns: unknown };
    expect(episodes[i]).toMatchObject({ reward, success, turn_count: turnCount, trained_in: update });
    expect((episodes[i]!["time"] as Date).getTime()).toBe(atMs);
    expect(JSON.parse(episodes[i]!["turns"])).toEqual(turns);
  }
});

test("csv: the same, with every comma and quote of a reply in its place", async () => {
  const { out } = await exported("csv");
  const [head, ...lines] = csv(readFileSync(join(out, "episodes.csv"), "utf8"));
  const recorded = [...run.episodes({})];
  expect(lines.length).toBe(recorded.length);
  const column = (name: string) => lines.map((cells) => cells[head!.indexOf(name)]!);
  expect(column("reward").map(Number)).toEqual(recorded.map(({ summary }) => summary.reward!));
  expect(column("turns").map((text) => JSON.parse(text)[0].reply)).toEqual(
    recorded.map(({ row }) => (row.outcome as { turns: { reply: string }[] }).turns[0]!.reply),
  );
  expect(column("detail")).toEqual(recorded.map(() => ""));
});

/** A reader of RFC 4180 that shares nothing with the writer. */
function csv(text: string): string[][] {
  const rows: string[][] = [];
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^,\r\n]*))(,|\r\n)/g)) {
    if (rows.length === 0) rows.push([]);
    rows.at(-1)!.push(quoted?.replaceAll('""', '"') ?? plain!);
    if (end === "\r\n") rows.push([]);
  }
  return rows.slice(0, -1);
}

describe("jsonl", () => {
  const chats = (path: string) =>
    readFileSync(path, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));

  test("an episode is observations and replies in turn", async () => {
    const { out, told } = await exported("jsonl");
    const recorded = [...run.episodes({})];
    expect(told).toMatchObject({ episodes: recorded.length, chats: recorded.length });
    for (const [i, { messages, reward, env }] of chats(out).entries()) {
      const { turns } = recorded[i]!.row.outcome as { turns: { reply: string; observation: string }[] };
      const arms = /There are 2 arms, named (\w+) and (\w+)/.exec(turns[0]!.observation)!;
      expect([reward, env]).toEqual([recorded[i]!.summary.reward, "Bandit"]);
      expect(messages).toEqual([
        { role: "user", content: `1 left ${arms[1]} ${arms[2]}` },
        { role: "assistant", content: turns[0]!.reply },
      ]);
    }
  });

  test("with --solved, only episodes that were solved in training", async () => {
    const { out } = await exported("jsonl", "--solved", "--purpose", "train");
    const wanted = [...run.episodes({})].filter(({ summary }) => summary.success && summary.purpose === "train");
    expect(wanted.length).toBeGreaterThan(0);
    expect(chats(out).map(({ episode }) => episode)).toEqual(wanted.map(({ summary }) => summary.episode));
  });
});

test("tensorboard: the run's metrics in one file, each actor's own in a folder of its name", async () => {
  const measured = temporaryFolder();
  const store = recordIn(measured, { "train/success": [[1, 0.5]] });
  const memory = { name: "process/rss_bytes", actor: "sampler-0", step: 1, value: 1e8 } as const;
  store.write({ points: [memory], events: [], episodes: [] });
  store.close();
  const out = join(measured, "tensorboard");
  const ended = await commandHere(["export", "--run", measured, "--to", "tensorboard", "--out", out, "--json"]);
  expect(JSON.parse(ended.out.trimEnd().split("\n").at(-1)!)).toMatchObject({ files: 2 });
  const files = readdirSync(out, { recursive: true }).filter((name) => String(name).includes("tfevents"));
  expect(files.map((name) => dirname(String(name))).toSorted()).toEqual([".", "sampler-0"]);
});

test("of a run that has measured nothing yet: tables without rows, and a folder without event files", async () => {
  const fresh = temporaryFolder();
  recordIn(fresh).close();
  for (const [to, files] of [
    ["tensorboard", []],
    ["csv", ["episodes.csv", "events.csv", "metrics.csv"]],
  ] as const) {
    const out = join(fresh, to);
    expect(await commandHere(["export", "--run", fresh, "--to", to, "--out", out])).toMatchObject({ code: 0 });
    expect(readdirSync(out).toSorted()).toEqual([...files]);
  }
});

test("to a folder whose name ends with a slash", async () => {
  const out = join(home, "slash");
  expect(await commandHere(["export", "--run", folder, "--to", "csv", "--out", `${out}/`])).toMatchObject({ code: 0 });
  expect(readdirSync(out).toSorted()).toEqual(["episodes.csv", "events.csv", "metrics.csv"]);
});

test("what is exported was written live, and perhaps values that later ones replaced", async () => {
  const { out } = await exported("tensorboard", "--verbose");
  const files = (at: string) =>
    readdirSync(at, { recursive: true })
      .map(String)
      .filter((name) => name.includes("tfevents"))
      .toSorted();
  const live = join(folder, "tensorboard");
  expect(files(live)).toEqual(files(out));
  for (const name of files(out)) {
    const [written, wanted] = [live, out].map((at) => tfRecords(readFileSync(join(at, name))));
    expect(wanted!.slice(1).filter((record) => !written!.includes(record))).toEqual([]);
  }
});

/** Data of each TFRecord, in hex. */
function tfRecords(bytes: Buffer): string[] {
  const records: string[] = [];
  for (let at = 0; at < bytes.length; ) {
    const length = Number(bytes.readBigUInt64LE(at));
    records.push(bytes.subarray(at + 12, at + 12 + length).toString("hex"));
    at += 16 + length;
  }
  return records;
}

testWhere(
  lackOfPython("tensorboard, duckdb, pandas"),
  "TensorBoard, DuckDB and pandas read the same numbers",
  async () => {
    const [events, tables, texts] = [
      (await exported("tensorboard", "--json")).out,
      (await exported("parquet", "--env", "Bandit")).out,
      (await exported("csv", "--env", "Bandit")).out,
    ];
    const script = `
import json, sys
import duckdb, pandas
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events, tables, texts = sys.argv[1:]
board = EventAccumulator(events)
board.Reload()
parquet = f"{tables}/episodes.parquet"
print(json.dumps({
  "curve": [[point.step, point.value] for point in board.Scalars("validate/success")],
  "duckdb": duckdb.sql(f"select count(*), sum(reward), count(trained_in), min(time) is not null from '{parquet}'").fetchall()[0],
  "pandas": float(pandas.read_parquet(parquet).reward.sum()),
  "csv": float(pandas.read_csv(f"{texts}/episodes.csv").reward.sum()),
}))`;
    const child = Bun.spawn([python!, "-c", script, events, tables, texts], { stdio: ["ignore", "pipe", "ignore"] });
    const read = JSON.parse((await child.stdout.text()).trimEnd().split("\n").at(-1)!);
    const { steps, values } = solvedOf("validate/success");
    expect(read.curve).toEqual(steps.map((step, i) => [step, Math.fround(values[i]!)]));
    const recorded = [...run.episodes({})].map(({ summary }) => summary);
    const rewards = recorded.reduce((sum, { reward }) => sum + reward!, 0);
    const trained = recorded.filter(({ update }) => update !== null).length;
    expect(read.duckdb.slice(0, 1)).toEqual([recorded.length]);
    expect(read.duckdb[1]).toBeCloseTo(rewards, 9);
    expect(read.duckdb.slice(2)).toEqual([trained, true]);
    expect(read.pandas).toBeCloseTo(rewards, 9);
    expect(read.csv).toBeCloseTo(rewards, 9);
  },
  120_000,
);

test("of an env that the run did not play is refused, and nothing is written", async () => {
  const out = join(home, "other.jsonl");
  const asked = ["export", "--run", folder, "--to", "jsonl", "--out", out, "--env", "bandit"];
  const { code, err } = await commandHere(asked);
  expect([code, existsSync(out)]).toEqual([2, false]);
  expect(err).toBe(`error: --env bandit: ${folder} played no env of this name; name one of Bandit\n`);
});

describe("refuses in one line", () => {
  test.each([
    [["--run", "runs/none", "--to", "csv", "--out", "x"], "no run in runs/none: there is no run.sqlite"],
    [["--to", "csv", "--out", "x"], "name one source: --run RUN, --policy RUN or --model DIR"],
    [
      ["--run", "r", "--to", "gguf", "--out", "x"],
      "--to gguf writes a policy; name its run with --policy, or a pretrained model with --model",
    ],
    [
      ["--run", "r", "--to", "parket", "--out", "x"],
      '--to takes tensorboard, parquet, csv, jsonl, got "parket"; did you mean parquet?',
    ],
    [
      ["--run", "r", "--to", "tensorboard", "--out", "x", "--solved"],
      "--env, --purpose and --solved choose episodes, and tensorboard holds none; leave them out",
    ],
    [
      ["--run", "r", "--to", "wandb-offline", "--out", "x"],
      "--to wandb-offline was removed; use --to tensorboard, and `wandb sync` the folder it writes",
    ],
    [
      ["--run", "r", "--to", "tensorboard", "--out", "x", "--purpose", "train"],
      "--env, --purpose and --solved choose episodes, and tensorboard holds none; leave them out",
    ],
    [["--run", "r", "--to", "csv", "--out", "x", "--purpose", "test"], '--purpose takes train or validate, got "test"'],
    [
      ["--run", "r", "--to", "csv", "--out", "x", "--checkpoint", "u000001"],
      "--checkpoint chooses a policy; name its run with --policy",
    ],
    [
      ["--policy", "r", "--to", "hf", "--out", "x", "--solved"],
      "--solved chooses episodes of a record; name the run with --run",
    ],
    [
      ["--run", "r", "--policy", "r", "--to", "csv", "--out", "x"],
      "name one source: --run RUN, --policy RUN or --model DIR",
    ],
    [["--run", "r", "--tu", "csv"], "export has no flag --tu; did you mean --to?"],
  ])("%p", async (args, message) => {
    const { code, err } = await commandHere(["export", ...args]);
    expect(err).toBe(`error: ${message}\n`);
    expect(code).toBe(message.startsWith("no run") ? 1 : 2);
  });
});

const recorded = temporaryFolder();
writeFileSync(join(recorded, "config.json"), JSON.stringify(configOf({ env: { tag: "SimpleSokoban" } })));
const store = recordIn(recorded, {}, { env: "SimpleSokoban" });
const places = { episode: "a", group: 4, member: 5, layoutSeed: 6, dynamicsSeed: 7, version: 8, attempt: 2 };
const detail = "SimpleSokoban#5 step: boom";
const failed = {
  ...playedRow({ episode: "b", purpose: "validate" }),
  outcome: { status: "envError", detail } as const,
};
store.write({ points: [], events: [], episodes: [playedRow({ ...places, temperature: 0.5 }, false), failed] });
store.close();

async function episodes(name: string, filter: Parameters<typeof exportParquet>[0]["episodes"]) {
  const out = join(recorded, name);
  await exportParquet({ folder: recorded, out, episodes: filter });
  return parquetReadObjects({ file: await asyncBufferFromFile(join(out, "episodes.parquet")) });
}

test("an episode's row has its place in the run, how it ended and every turn", async () => {
  const [played, other] = await episodes("all", {});
  expect(played).toMatchObject({
    episode: "a",
    purpose: "train",
    env: "SimpleSokoban",
    sampler: "sampler/0",
    status: "scored",
    stop: "turns",
    attempt: 2,
    group_index: 4,
    member: 5,
    version: 8,
    trained_in: 3,
    turn_count: 2,
    // Two and one of the six tokens.
    written_tokens: 3,
    layout_seed: 6,
    dynamics_seed: 7,
    temperature: 0.5,
    advantage: 0.5,
    success: false,
    detail: null,
  });
  expect([played!["reward"], played!["penalty"]]).toEqual([expect.closeTo(-0.2, 9), expect.closeTo(-0.1, 9)]);
  expect(played!["final_observation"]).toStartWith("######\n");
  expect(JSON.parse(played!["turns"]).map(({ actions }: { actions: string[] }) => actions)).toEqual([["Down", "Left"], []]); // biome-ignore format: a row
  expect(other).toMatchObject({ episode: "b", status: "envError", turns: "[]", final_observation: null, detail });
});

test("the table has only the episodes that are asked for", async () => {
  const names = async (name: string, filter: object) => (await episodes(name, filter)).map(({ episode }) => episode);
  expect(await names("validated", { purpose: "validate" })).toEqual(["b"]);
  expect(await names("solved", { success: true })).toEqual([]);
});

test("a failed episode is no chat", async () => {
  const out = join(recorded, "chats.jsonl");
  expect(await exportChats({ folder: recorded, out, episodes: {} })).toMatchObject({ episodes: 1 });
  const chats = readFileSync(out, "utf8").trimEnd().split("\n").map((line) => JSON.parse(line)); // biome-ignore format: a row
  for (const { episode, layout_seed, version } of chats) expect([episode, layout_seed, version]).toEqual(["a", 6, 8]);
});
