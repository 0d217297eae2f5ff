/** Tables and chats of episodes with known values. tests/scripts/export-records.test.ts exports a real run. */
import { afterAll, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { asyncBufferFromFile, parquetReadObjects } from "hyparquet";
import { Store } from "../../../actors/metrics-sink/store.ts";
import { exportChats, exportParquet } from "../../../scripts/export/records.ts";
import { playedRow } from "../../actors/metrics-sink/fake-run.ts";
import { configOf } from "../../actors/training/stage.ts";
import { removeTemporaryFolders, temporaryFolder } from "../temporary.ts";

afterAll(removeTemporaryFolders);
const folder = temporaryFolder();
writeFileSync(join(folder, "config.json"), JSON.stringify(configOf({ env: { tag: "SimpleSokoban" } })));
const store = new Store({ path: join(folder, "run.sqlite"), durability: "normal", wallClock: () => 1500 });
store.startSession({ name: "run", env: "SimpleSokoban", updates: 9, seed: 1 });
const places = { episode: "a", group: 4, member: 5, layoutSeed: 6, dynamicsSeed: 7, version: 8, attempt: 2 };
const detail = "SimpleSokoban#5 step: boom";
const failed = {
  ...playedRow({ episode: "b", purpose: "validate" }),
  outcome: { status: "envError", detail } as const,
};
store.write({ points: [], events: [], episodes: [playedRow({ ...places, temperature: 0.5 }, false), failed] });
store.close();

async function episodes(name: string, filter: Parameters<typeof exportParquet>[0]["episodes"]) {
  const out = join(folder, name);
  await exportParquet({ folder, out, episodes: filter });
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
  const out = join(folder, "chats.jsonl");
  expect(await exportChats({ folder, out, episodes: {} })).toMatchObject({ episodes: 1 });
  const chats = readFileSync(out, "utf8").trimEnd().split("\n").map((line) => JSON.parse(line)); // biome-ignore format: a row
  for (const { episode, layout_seed, version } of chats) expect([episode, layout_seed, version]).toEqual(["a", 6, 8]);
});
