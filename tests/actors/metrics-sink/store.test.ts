import { Database } from "bun:sqlite";
import { beforeEach, describe, expect, test } from "bun:test";
import { readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { overviewOf } from "../../../actors/dashboard/overview.ts";
import { Store } from "../../../actors/metrics-sink/store.ts";
import type { EpisodeRow } from "../../../actors/protocol.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { actorView, playedRow } from "./fake-run.ts";
import { openFilesIn } from "./open-files.ts";

let directory: string;
let now: number;
const open = (name = "run.sqlite") =>
  new Store({ path: join(directory, name), durability: "full", wallClock: () => now });

const openRecorded = () =>
  new Store({ path: join(directory, "run.sqlite"), durability: "full", wallClock: () => now, readOnly: true });

beforeEach(() => {
  directory = temporaryFolder();
  now = 1_000_000;
});

const facts = { name: "run-1", env: "SimpleSokoban", updates: 200, seed: 7 };
const nothing = { points: [], events: [], episodes: [] };

describe("Store", () => {
  test("knows how long the earlier sessions of a run took, without the pause between them", () => {
    const first = open();
    expect(first.run()).toBeNull();
    first.startSession(facts);
    now += 5000;
    first.write(nothing);
    first.close();
    now += 3_600_000;
    const second = open();
    second.startSession({ ...facts, updates: 300 });
    now += 700;
    second.write(nothing);
    const known = { ...facts, updates: 300, startedMs: 4_605_000, seenMs: 4_605_700, earlierMs: 5000 };
    expect(second.run()).toEqual({ ...known, silentMs: 0 });
    second.close();
    now += 1234;
    const recorded = openRecorded();
    expect(recorded.run()).toEqual({ ...known, silentMs: 1234 });
    recorded.close();
  });

  test("of a run that was killed is one that ended, a minute after its last sign", () => {
    const written = open();
    written.startSession(facts);
    written.write({ ...nothing, points: [{ name: "total/updates", actor: "learner", step: 57, value: 57 }] });
    expect(overviewOf(written)).toMatchObject({ phase: "training", update: 57 });
    written.close();
    const recorded = openRecorded();
    now += 60_000;
    expect(overviewOf(recorded)!.phase).toBe("training");
    now += 1;
    expect(overviewOf(recorded)).toMatchObject({
      phase: "silent",
      progress: 57 / 200,
      aliveMs: 0,
      status: "The run stopped at update 57; continue it: bun run cluster --resume FOLDER",
    });
    recorded.close();
  });

  test("pages through episodes newest first, each exactly once, and filters them", () => {
    const store = open();
    const rows = Array.from({ length: 25 }, (_, i) =>
      playedRow({ episode: `e${i}`, version: i, purpose: i % 5 === 0 ? "validate" : "train" }, i % 2 === 0),
    );
    store.write({ ...nothing, episodes: rows });
    const seen: number[] = [];
    let before: number | undefined;
    do {
      const { rows, next } = store.episodes({}, { before, limit: 5 });
      expect(rows.length).toBe(5);
      seen.push(...rows.map(({ id }) => id));
      before = next ?? undefined;
    } while (before !== undefined);
    expect(seen).toEqual(Array.from({ length: 25 }, (_, i) => 25 - i));

    const versions = (filter: Parameters<Store["episodes"]>[0]) =>
      store.episodes(filter, { limit: 50 }).rows.map(({ version }) => version);
    expect(versions({ purpose: "validate" })).toEqual([20, 15, 10, 5, 0]);
    expect(versions({ purpose: "validate", success: false })).toEqual([15, 5]);
    expect(versions({ rewardMin: 5, version: 4 })).toEqual([4]);
    const reward = -0.1 + 10.9;
    expect(versions({ rewardMin: reward, rewardMax: reward, version: 4 })).toEqual([4]);
    expect(versions({ rewardMax: 5, version: 4 })).toEqual([]);
    expect(versions({ env: "Bandit" })).toEqual([]);
    expect(versions({ stop: "turns", update: 3, status: "scored" }).length).toBe(10);
    store.close();
  });

  test("finds episodes by the words of their replies, and by the board", () => {
    const store = open();
    const failed = { status: "envError", detail: "SimpleSokoban#5 step: boom" } as const;
    const rows = [
      playedRow({ episode: "a", layoutSeed: 1 }, true, "the box is left of me"),
      playedRow({ episode: "b", layoutSeed: 2 }, true, 'say "box is" AND NOT up*'),
      { ...playedRow({ episode: "c", layoutSeed: 1 }), outcome: failed },
    ];
    store.write({ ...nothing, episodes: rows });
    const found = (filter: Parameters<Store["episodes"]>[0]) =>
      store.episodes(filter, { limit: 50 }).rows.map(({ episode }) => episode);
    expect(found({ text: "box is lef" })).toEqual(["a"]);
    expect(found({ text: "BOX" })).toEqual(["b", "a"]);
    expect(found({ text: "is box" })).toEqual([]);
    expect(found({ text: "boom" })).toEqual(["c"]);
    // What FTS5 takes for an operator or a quote is a word like any other word.
    for (const text of ['"box is" AND NOT up*', "box OR", "NEAR(", '"', "a:b", "*"])
      expect(() => found({ text })).not.toThrow();
    expect(found({ text: '"box is" AND NOT' })).toEqual(["b"]);
    expect(found({ layoutSeed: 1 })).toEqual(["c", "a"]);
    store.close();
  });

  test("keeps who there was when they were last told", () => {
    const store = open();
    expect(store.actors()).toBeNull();
    store.write({ ...nothing, actors: [actorView("learner"), actorView("sampler-0")] });
    now += 1000;
    store.write({ ...nothing, actors: [actorView("learner", { restarts: 1 })] });
    store.write(nothing);
    expect(store.actors()).toEqual({ atMs: now, actors: [actorView("learner", { restarts: 1 })] });
    store.close();
  });

  test("reads events newest first, before and since an id", () => {
    const store = open();
    const event = (text: string) => ({ actor: "learner", level: "info", kind: "phase", text }) as const;
    store.write({ ...nothing, events: ["a", "b", "c", "d"].map(event) });
    const texts = (page: Parameters<Store["events"]>[0]) => store.events(page).map(({ text }) => text);
    expect(texts({ limit: 2 })).toEqual(["d", "c"]);
    expect(texts({ limit: 9, before: 3 })).toEqual(["b", "a"]);
    expect(texts({ limit: 9, since: 3 })).toEqual(["d"]);
    expect(store.lastEvent("phase")?.text).toBe("d");
    expect(store.lastEvent("engine")).toBeNull();
    store.close();
  });

  test("gives episodes that could not be played as they came", () => {
    const store = open();
    const rows = (["envError", "aborted"] as const).map((status) => ({
      ...playedRow({ episode: status }),
      outcome: { status, detail: `why ${status}` },
      advantage: null,
    }));
    store.write({ ...nothing, episodes: rows });
    expect([1, 2].map((id) => store.episode(id)!.row.outcome)).toEqual(rows.map(({ outcome }) => outcome));
    store.close();
  });

  test("takes all of a batch or none of it", () => {
    const store = open();
    const point = { name: "train/success", actor: "learner", step: 1, value: 0.5 };
    const broken = { ...point, value: null as unknown as number };
    expect(() => store.write({ ...nothing, points: [point, broken] })).toThrow("NOT NULL");
    expect(store.latest()).toEqual([]);
    store.close();
  });

  const damaged = "it is damaged: put a copy in its place, or move it away; a resumed run then begins a new record";

  test("refuses a file that is not a database, by name", () => {
    const path = join(directory, "letter.sqlite");
    writeFileSync(path, "Dear Sir or Madam, ".repeat(100));
    expect(() => open("letter.sqlite")).toThrow(`cannot open ${path}: file is not a database; ${damaged}`);
  });

  test("refuses a file with a damaged page, before anything is added to it", () => {
    const first = open();
    const episodes = Array.from({ length: 200 }, (_, i) => playedRow({ episode: `e${i}` }));
    first.write({ ...nothing, episodes });
    first.close();
    const path = join(directory, "run.sqlite");
    const bytes = readFileSync(path);
    // The headers of the pages of the second half.
    for (let at = (bytes.length >> 13) << 12; at < bytes.length; at += 4096) bytes.fill(0xff, at, at + 8);
    writeFileSync(path, bytes);
    expect(() => open()).toThrow(`cannot open ${path}: `);
    // The check of a file of days would take longer than an actor has for its start.
    truncateSync(path, 2 ** 31 + 4096);
    open().close();
    const reader = openRecorded();
    expect(() => reader.episodes({}, { limit: 1000 })).toThrow(
      `cannot read ${path}: database disk image is malformed; ${damaged}`,
    );
    reader.close();
    writeFileSync(path, "");
    const empty = openRecorded();
    expect(() => empty.cursor()).toThrow(new RegExp(`^cannot read ${path}: no such table: \\w+; ${damaged}$`));
    empty.close();
  });

  test("refuses a file of a newer schema and leaves it alone", () => {
    open().close();
    const path = join(directory, "run.sqlite");
    const db = new Database(path);
    db.run("PRAGMA user_version = 7");
    db.close();
    expect(() => open()).toThrow(
      `cannot open ${path}: it has schema 7, and this version of Bunraku reads up to 6. Use the version that wrote it, or a newer one.`,
    );
  });

  test("closes a file that it refuses", () => {
    open().close();
    const db = new Database(join(directory, "run.sqlite"));
    db.run("PRAGMA user_version = 99");
    db.close();
    for (const refused of [open, openRecorded]) expect(() => refused()).toThrow("it has schema 99");
    expect(openFilesIn(directory)).toEqual([]);
  });

  test("names the file that it cannot bring up to date, and closes it", () => {
    const path = join(directory, "run.sqlite");
    const db = new Database(path);
    db.run("CREATE TABLE runs (another TEXT)");
    db.close();
    expect(() => open()).toThrow(`cannot open ${path}: table runs already exists`);
    expect(openFilesIn(directory)).toEqual([]);
  });

  test("brings a file of an older schema up to date, in which an episode was one context and its words were not listed", () => {
    const first = open();
    first.write({ ...nothing, episodes: [playedRow({ episode: "old" }, true, "long ago")] });
    first.close();
    const db = new Database(join(directory, "run.sqlite"));
    for (const column of ["contexts", "token_advantages", "env_digest"])
      db.run(`ALTER TABLE bodies DROP COLUMN ${column}`);
    db.run("ALTER TABLE episodes DROP COLUMN actions_per_turn");
    for (const table of ["words", "actors"]) db.run(`DROP TABLE ${table}`);
    db.run("DROP INDEX episodes_by_board");
    db.run("PRAGMA user_version = 1");
    db.close();
    const second = open();
    expect(second.episode(1)?.row.outcome).toMatchObject({ trajectory: { contexts: [0] } });
    expect(second.episodes({ text: "long ago" }, { limit: 5 }).rows.map(({ episode }) => episode)).toEqual(["old"]);
    second.close();
  });

  test("only reads a file of an older schema that has what the page needs, and leaves it alone", () => {
    const first = open();
    first.write({ ...nothing, episodes: [playedRow({ episode: "old" }, true, "long ago")] });
    first.close();
    const db = new Database(join(directory, "run.sqlite"));
    db.run("ALTER TABLE bodies DROP COLUMN env_digest");
    db.run("ALTER TABLE episodes DROP COLUMN actions_per_turn");
    db.run("PRAGMA user_version = 4");
    const recorded = openRecorded();
    expect(recorded.isCurrent).toBe(true);
    expect(recorded.episodes({ text: "long ago" }, { limit: 5 }).rows.map(({ episode }) => episode)).toEqual(["old"]);
    expect(recorded.episode(1)!.row.ticket.episode).toBe("old");
    recorded.close();
    expect(db.query("PRAGMA user_version").values()).toEqual([[4]]);
    db.run("PRAGMA user_version = 3");
    db.close();
    const tooOld = openRecorded();
    expect(tooOld.isCurrent).toBe(false);
    tooOld.close();
  });

  test("waits while another process holds the file, as one that recovers the log of a killed run", async () => {
    open().close();
    const holds = `
      const db = new (require("bun:sqlite").Database)(process.argv[1]);
      db.run("PRAGMA locking_mode = EXCLUSIVE");
      db.run("BEGIN EXCLUSIVE");
      console.log("held");
      db.run("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) SELECT count(*) FROM n");
      db.close();`;
    const child = Bun.spawn([process.execPath, "-e", holds, join(directory, "run.sqlite")], { stdout: "pipe" });
    expect(new TextDecoder().decode((await child.stdout.getReader().read()).value)).toBe("held\n");
    const reader = openRecorded();
    expect(reader.run()).toBeNull();
    reader.close();
    expect(await child.exited).toBe(0);
  });

  test("opened twice lets one read what the other writes", () => {
    const writer = open();
    const reader = open();
    writer.write({ ...nothing, points: [{ name: "train/success", actor: "learner", step: 4, value: 0.5 }] });
    expect(reader.latest()).toEqual([{ name: "train/success", actor: "learner", step: 4, value: 0.5 }]);
    writer.close();
    reader.close();
  });

  test("knows that the session that it writes is alive, however long nothing was written", () => {
    const store = open();
    store.startSession(facts);
    now += 100_000;
    expect(store.run()).toMatchObject({ seenMs: 1_100_000, silentMs: 0 });
    store.close();
  });

  test("gives back all that an episode may have, and only what it has", () => {
    const store = open();
    const row = playedRow({ actionsPerTurnMax: 2, dynamicsSeed: 8, topK: 3 });
    const outcome = row.outcome as Extract<EpisodeRow["outcome"], { trajectory: unknown }>;
    // Arrays that begin within their buffers.
    const trajectory = {
      ...outcome.trajectory,
      tokens: Int32Array.of(99, 1, 5, 9, 12, 4, 2).subarray(1),
      envDigest: "cd".repeat(32),
    };
    const whole = { ...row, outcome: { ...outcome, trajectory }, tokenAdvantages: Float32Array.of(0.5, -1, 2) };
    store.write({ ...nothing, episodes: [whole, playedRow({ episode: "e2" }, false)] });
    expect(store.episode(1)!.row).toEqual({
      ...whole,
      outcome: { ...outcome, trajectory: { ...trajectory, tokens: Int32Array.of(1, 5, 9, 12, 4, 2) } },
    });
    expect(store.episode(1)!.summary).toMatchObject({ advantage: 0.5, update: 3, success: true });
    expect(store.episode(2)!.row).toEqual(playedRow({ episode: "e2" }, false));
    expect(store.episode(2)!.summary).toMatchObject({ success: false, layoutSeed: 10_000, atMs: now });
    store.close();
  });
});

describe("an episode that is stored again", () => {
  /** Batches of copies of one episode. @returns what is kept: id, attempt and update of each, oldest first */
  function kept(...batches: readonly (readonly EpisodeRow[])[]) {
    const store = open();
    for (const episodes of batches) store.write({ ...nothing, episodes });
    const { rows } = store.episodes({}, { limit: 9 });
    const db = new Database(join(directory, "run.sqlite"), { readonly: true });
    const counts = ["bodies", "words"].map((table) => db.query(`SELECT count(*) AS n FROM ${table}`).get());
    expect(counts).toEqual([{ n: rows.length }, { n: rows.length }]);
    db.close();
    store.close();
    return rows.reverse().map(({ id, attempt, update }) => [id, attempt, update]);
  }
  const row = playedRow();
  const other = playedRow({}, true, "another thought");
  const attempt = (number: number, update: number | null = 3) => ({
    ...playedRow({ attempt: number }, true, `try ${number}`),
    update,
  });

  test("with the same content, by another sampler or under another number of equal weights, is ignored", () => {
    const outcome = row.outcome as Extract<EpisodeRow["outcome"], { trajectory: unknown }>;
    const turns = outcome.trajectory.turns.map((turn) => ({ ...turn, version: 9 }));
    const again = { ...row, sampler: "sampler/9", ticket: { ...row.ticket, version: 9 } };
    const trajectory = { ...outcome.trajectory, version: 9, turns };
    expect(kept([row], [row], [{ ...again, outcome: { ...outcome, trajectory } }])).toEqual([[1, 0, 3]]);
  });

  test("with the same sum of rewards, but other rewards of its turns, replaces the earlier one", () => {
    const outcome = row.outcome as Extract<EpisodeRow["outcome"], { trajectory: unknown }>;
    const withRewards = (...rewards: number[]) => {
      const turns = rewards.map((reward, i) => ({ ...outcome.trajectory.turns[0]!, end: i, reward }));
      return { ...row, outcome: { ...outcome, trajectory: { ...outcome.trajectory, turns } } };
    };
    expect(kept([withRewards(1, 0)], [withRewards(0, 1)])).toEqual([[2, 0, 3]]);
  });

  test("with another content, or at another attempt, replaces the earlier one", () => {
    expect(kept([row], [other])).toEqual([[2, 0, 3]]);
  });

  test("in one batch replaces a copy of its own attempt only", () => {
    expect(kept([row, other])).toEqual([[2, 0, 3]]);
  });

  test.each([
    [
      "in one batch both stay",
      [[attempt(0), attempt(1)]],
      [
        [1, 0, 3],
        [2, 1, 3],
      ],
    ],
    [
      "in one batch that comes twice both stay",
      [
        [attempt(0), attempt(1)],
        [attempt(0), attempt(1)],
      ],
      [
        [1, 0, 3],
        [2, 1, 3],
      ],
    ],
    [
      "in one batch that comes again in another order both stay",
      [
        [attempt(0), attempt(1)],
        [attempt(1), attempt(0)],
      ],
      [
        [1, 0, 3],
        [2, 1, 3],
      ],
    ],
    ["in two batches the later one stays", [[attempt(0)], [attempt(1)]], [[2, 1, 3]]],
    ["the later one stays if it is in no update yet", [[attempt(0)], [attempt(1, null)]], [[2, 1, null]]],
    ["the later one stays if the first was in no update", [[attempt(0, null)], [attempt(1)]], [[2, 1, 3]]],
    [
      "trained on by two updates both stay",
      [[attempt(0, 3)], [attempt(1, 4)]],
      [
        [1, 0, 3],
        [2, 1, 4],
      ],
    ],
  ])("of two attempts %s", (_, batches, ids) => {
    expect(kept(...batches)).toEqual(ids);
  });

  test("is found by its name at the newest attempt that was played", () => {
    const store = open();
    const failed = { ...attempt(2), outcome: { status: "aborted", detail: "no time" } as const };
    store.write({ ...nothing, episodes: [attempt(0), attempt(1), failed] });
    expect([store.episodeNamed("e1"), store.episodeNamed("e9")]).toEqual([2, null]);
    store.close();
  });
});

test("versions that share a number or a digest with an episode are those of the other episodes", () => {
  const store = open();
  store.write({ ...nothing, episodes: [4, 5, 5].map((version, i) => playedRow({ episode: `e${i}`, version })) });
  const digest = "ab".repeat(32);
  expect(store.versionsSharing(1, { version: 4, digest: "ee" })).toEqual([]);
  expect(store.versionsSharing(2, { version: 5, digest: "ee" })).toEqual([{ version: 5, digest }]);
  expect(store.versionsSharing(2, { version: 9, digest })).toEqual([4, 5].map((version) => ({ version, digest })));
  store.close();
});
