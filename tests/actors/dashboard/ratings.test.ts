/** Ratings: who may give them, what is refused, and where they lie. */
import { describe, expect, test } from "bun:test";
import { appendFileSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { addRating, readRatings } from "../../../actors/dashboard/ratings.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { playedRow } from "../metrics-sink/fake-run.ts";
import { setStage } from "./stage.ts";

const stage = setStage();

/** A page with one episode of three turns, whose ratings go to the returned file. */
async function ratedPage(token: string | null = null) {
  const path = join(temporaryFolder(), "ratings.jsonl");
  stage.ratings = path;
  stage.startRun();
  await stage.run.episodes([playedRow({ episode: "u1.g0.m0" }, true)]);
  stage.sink.flush();
  const app = stage.appWith(token);
  const send = (body: unknown, headers: Record<string, string> = {}) =>
    app.request("/api/ratings", {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers },
      body: typeof body === "string" ? body : JSON.stringify(body),
    });
  const list = async () => ((await (await app.request("/api/ratings")).json()) as { ratings: unknown[] }).ratings;
  return { path, send, list };
}

describe("a rating", () => {
  test("lies beside the run and is exported; a later one of the same turn replaces it", async () => {
    const { path, send, list } = await ratedPage();
    expect((await send({ id: 1, score: 2, note: "walks in circles" })).status).toBe(201);
    expect((await send({ id: 1, turn: 2, note: "here" })).status).toBe(201);
    expect((await send({ id: 1, score: 4 })).status).toBe(201);
    expect(await list()).toMatchObject([
      { id: 1, episode: "u1.g0.m0", turn: 2, score: null, note: "here" },
      { id: 1, episode: "u1.g0.m0", turn: null, score: 4, note: "" },
    ]);
    expect(readFileSync(path, "utf8").trimEnd().split("\n").length).toBe(3);
  });

  test.each([
    ["no score and no note", { id: 1 }, 400],
    ["a blank note", { id: 1, note: " \n" }, 400],
    ["a score of 6", { id: 1, score: 6 }, 400],
    ["a key that is none", { id: 1, score: 3, path: "/etc/passwd" }, 400],
    ["an episode that is none", { id: 9, score: 3 }, 404],
    ["a turn that is none", { id: 1, turn: 4, score: 3 }, 400],
    ["a note that is too long", { id: 1, note: "x".repeat(2001) }, 400],
    ["a body that is too long", { id: 1, note: "x".repeat(20_000) }, 413],
    ["no JSON", "score=3", 400],
  ])("with %s is refused, and nothing is stored", async (_, body, status) => {
    const { send, list } = await ratedPage();
    expect((await send(body)).status).toBe(status);
    expect(await list()).toEqual([]);
  });

  test("needs the token of the page, its own site, and a body that no form can send", async () => {
    const rating = { id: 1, score: 3 };
    const guarded = await ratedPage("a-long-enough-secret");
    expect((await guarded.send(rating)).status).toBe(401);
    expect((await guarded.send(rating, { Authorization: "Bearer a-long-enough-secret" })).status).toBe(201);
    const open = await ratedPage();
    expect((await open.send(rating, { "Sec-Fetch-Site": "cross-site" })).status).toBe(403);
    expect((await open.send(rating, { Origin: "https://elsewhere.example" })).status).toBe(403);
    expect((await open.send(rating, { "Content-Type": "text/plain" })).status).toBe(415);
    expect(await open.list()).toEqual([]);
  });
});

describe("the file", () => {
  const rating = { id: 1, episode: "e", turn: null, score: 3, note: "", atMs: 5 };

  test("takes 10,000 ratings, and no more", () => {
    const path = join(temporaryFolder(), "ratings.jsonl");
    writeFileSync(path, `${JSON.stringify(rating)}\n`.repeat(9_999));
    expect(addRating(path, rating)).toBe(true);
    expect(addRating(path, rating)).toBe(false);
    expect(readFileSync(path, "utf8").trimEnd().split("\n").length).toBe(10_000);
  });

  test("keeps its ratings where a kill or a full disk left half a line", async () => {
    const { path, send, list } = await ratedPage();
    await send({ id: 1, score: 2 });
    appendFileSync(path, '{"id": 1, "sco');
    expect(await list()).toMatchObject([{ score: 2 }]);
    await send({ id: 1, turn: 2, score: 5 });
    expect(await list()).toMatchObject([{ score: 2 }, { score: 5 }]);
  });

  test("names a line that is no rating, and follows no link", () => {
    const folder = temporaryFolder();
    const path = join(folder, "ratings.jsonl");
    writeFileSync(path, `${JSON.stringify(rating)}\n{"id": 1}\n`);
    expect(() => readRatings(path)).toThrow(`cannot read ${path}, line 2: episode: `);
    writeFileSync(join(folder, "other"), "");
    symlinkSync(join(folder, "other"), join(folder, "link"));
    expect(() => addRating(join(folder, "link"), rating)).toThrow();
    expect(readFileSync(join(folder, "other"), "utf8")).toBe("");
  });
});

test("a rating may name its charset, only its owner can read the file, and a full file takes no more", async () => {
  const { path, send } = await ratedPage();
  const headers = { "Content-Type": "application/json; charset=utf-8" };
  expect((await send({ id: 1, score: 2 }, headers)).status).toBe(201);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  const line = readFileSync(path, "utf8");
  appendFileSync(path, line.repeat(9998));
  expect((await send({ id: 1, score: 3 })).status).toBe(201);
  const answer = await send({ id: 1, score: 4 });
  expect([answer.status, await answer.json()]).toEqual([
    507,
    { error: `${path} has 10000 ratings, the most allowed; move it elsewhere` },
  ]);
});
