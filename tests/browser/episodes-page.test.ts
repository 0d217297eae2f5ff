/** The page about episodes, in a real browser: filters, replays by the env's own code, comparisons, play by hand. */
import { expect, setDefaultTimeout, test } from "bun:test";
import type { EpisodeRow, PlayedOutcome } from "../../actors/protocol.ts";
import { chromiumPath } from "../../bench/chromium.ts";
import { playedRow } from "../actors/metrics-sink/fake-run.ts";
import { recordedRow } from "../actors/record/recorded-episode.ts";
import { describeWhere } from "../needs.ts";
import { LONG, setPageStage } from "./page-stage.ts";

setDefaultTimeout(LONG);

const board = { layoutSeed: 10_003, dynamicsSeed: 10_003, purpose: "validate" } as const;

/** The cells of the board in a pane of the replay. */
const cells = (observation: string) => observation.replaceAll(/\s/g, "");
const endOf = ({ outcome }: EpisodeRow) => cells((outcome as PlayedOutcome).finalObservation);
const actionsOf = ({ outcome }: EpisodeRow) => (outcome as PlayedOutcome).turns.flatMap(({ actions }) => actions);

describeWhere(chromiumPath === null ? "no Chromium" : null, "the page about episodes", () => {
  const stage = setPageStage();
  const shown = async (pane = 0) => cells((await stage.page.locator(".pane .board").nth(pane).textContent())!);

  test("lists episodes, filters them, and shows one turn by turn; by keyboard alone", async () => {
    await stage.run.episodes([
      playedRow({ episode: "a", layoutSeed: 111 }, true),
      playedRow({ episode: "b", layoutSeed: 222 }, false),
      playedRow({ episode: "c", layoutSeed: 333 }, true),
    ]);
    await stage.open("episodes");
    await stage.waitForText("#episode", "board seed 333");
    expect(await stage.page.locator("#episode .turn").count()).toBe(3);
    expect(await stage.page.locator("#episode .turn:first-child .cell.player").count()).toBe(1);
    expect(await stage.page.locator("#episode .turn .cell.done").count()).toBe(1);
    await stage.page.locator("#episode .turn summary").first().click();
    await stage.waitForText("#episode .turn details[open]", /^Prompt/);
    await stage.page.locator("#episode-list button").first().focus();
    await stage.page.keyboard.press("ArrowDown");
    await stage.waitForText("#episode", "board seed 222");
    expect(await stage.text("#episode .turn:nth-child(2)")).toContain("cut at the token limit");
    await stage.page.getByText("solved", { exact: true }).first().click();
    await stage.waitForCount("#episode-list button", 2);
    // What a person reads stays.
    expect(await stage.text("#episode")).toContain("board seed 222");
    await stage.page.locator("body").press("/");
    await stage.page.keyboard.type("nothing says this");
    await stage.waitForText("#episode-list", "No episode matches. Clear the filter");
    await stage.page.getByText("Clear", { exact: true }).click();
    await stage.waitForCount("#episode-list button", 3);
    await stage.page.locator("#filter [name=layoutSeed]").fill("111");
    await stage.waitForCount("#episode-list button", 1);
    expect(stage.page.url()).toContain("layoutSeed=111");
  });

  test("shows the batch of a training episode: a row for each group, a column for each member", async () => {
    const rows = [0, 1].flatMap((group) =>
      [0, 1, 2].map((member) => {
        const ticket = { episode: `u4.g${group}.m${member}`, group, member, layoutSeed: 700 + group };
        const row = playedRow({ ...ticket, purpose: "train", version: 3 }, group === 0 && member > 0);
        return group === 0 ? row : { ...row, update: null, advantage: null };
      }),
    );
    const other = playedRow({ episode: "u5.g0.m0", purpose: "train", version: 3 }, true);
    await stage.run.episodes([other, ...rows]);
    await stage.open("episodes");
    await stage.waitForCount("#groups tbody tr", 2);
    expect(await stage.text("#groups-title")).toBe("Groups of u4, reward of each member");
    const texts = (row: number) => stage.page.locator(`#groups tbody tr:nth-child(${row}) > *`).allTextContents();
    // 10.8 twice and -0.2: mean 7.13, sample std 6.35.
    expect(await texts(1)).toEqual(["0", "SimpleSokoban 700", "+7.13 ± 6.35", "−0.20", "+10.80", "+10.80"]);
    expect((await texts(2)).slice(0, 3)).toEqual(["1 (not trained on)", "SimpleSokoban 701", "−0.20 ± 0.00"]);
    await stage.page.locator("#groups tbody tr:nth-child(1) button").nth(1).click();
    await stage.waitForText("#episode", "board seed 700");
    await stage.waitForCount('#groups button[aria-pressed="true"]', 1);
  });

  test("reads the batch again, if the server could not give it", async () => {
    const of = (update: number, member: number) =>
      playedRow({ episode: `u${update}.g0.m${member}`, purpose: "train", version: update, member, layoutSeed: update });
    await stage.run.episodes([of(4, 0), of(4, 1), of(5, 0)]);
    await stage.open("episodes");
    await stage.waitForText("#groups-title", "Groups of u5");
    const busy = { status: 503, json: { error: "16 requests wait already" } };
    await stage.page.route("**/api/episodes?purpose=train*", (route) => route.fulfill(busy), { times: 1 });
    await stage.page.locator("#episode-list button").nth(1).click();
    await stage.waitForText("#episode", "16 requests wait already");
    await stage.page.locator("#episode-list button").nth(2).click();
    await stage.waitForText("#groups-title", "Groups of u4");
    await stage.waitForCount("#groups tbody button", 2);
    stage.complaints = stage.complaints.filter((text) => !text.includes("503"));
  });

  test("takes a rating of an episode and a note on a turn, and shows them again", async () => {
    await stage.run.episodes([playedRow({ episode: "a", layoutSeed: 111 }, true)]);
    await stage.open("episodes");
    await stage.waitForText("#episode", "board seed 111");
    await stage.page.locator(".rate summary").click();
    await stage.page.locator(".rating select").nth(1).selectOption("4");
    await stage.page.getByText("Save", { exact: true }).click();
    await stage.waitForText(".rate .ratings", "the whole episode: 4 of 5");
    await stage.page.locator(".rating select").first().selectOption("turn 2");
    await stage.page.locator(".rating select").nth(1).selectOption("no score");
    await stage.page.locator(".rating textarea").fill("walks <b>back</b>");
    await stage.page.getByText("Save", { exact: true }).click();
    await stage.waitForText(".rate .ratings", "turn 2: walks <b>back</b>");
    await stage.page.reload();
    await stage.waitForText(".rate .ratings", "the whole episode: 4 of 5");
  });

  test("shows an episode although the ratings cannot be read", async () => {
    await stage.run.episodes([playedRow({ episode: "a", layoutSeed: 111 }, true)]);
    const answer = { status: 500, json: { error: "cannot read ratings.jsonl, line 1" } };
    await stage.page.route("**/api/ratings?*", (route) => route.fulfill(answer));
    await stage.open("episodes");
    await stage.waitForText(".rate [role=status]", "cannot read ratings.jsonl, line 1");
    await stage.waitForText("#episode", "board seed 111");
    stage.complaints = stage.complaints.filter((text) => !text.includes("500"));
  });

  test("pages through many, and shows new ones as they come", async () => {
    await stage.run.episodes(Array.from({ length: 70 }, (_, i) => playedRow({ episode: `e${i}`, layoutSeed: i })));
    await stage.open("episodes");
    await stage.waitForCount("#episode-list button", 50);
    await stage.page.locator("#older").click();
    await stage.waitForCount("#episode-list button", 20);
    expect(await stage.text("#list-note")).toBe("page 2, newest first");
    await stage.page.locator("#newer").click();
    await stage.waitForCount("#episode-list button", 50);
    await stage.run.episodes([playedRow({ episode: "new", env: "FrozenLake" })]);
    await stage.waitForText("#episode-list li:first-child", "FrozenLake");
    const list = stage.page.locator("#episode-list");
    // No timer reads the list from here on.
    await stage.page.clock.install();
    await stage.page.clock.pauseAt(Date.now() + 60_000);
    await list.evaluate((element) => element.scrollTo(0, 300));
    await stage.run.episodes([playedRow({ episode: "newer", env: "Bandit" })]);
    await stage.waitForText("#list-note", "1 newer episode; scroll up to see them");
    await list.evaluate((element) => element.scrollTo(0, 0));
    await stage.waitForText("#episode-list li:first-child", "Bandit");
    await stage.page.locator("#older").click();
    await stage.waitForText("#list-note", "page 2, newest first");
    await stage.run.episodes([playedRow({ episode: "newest" })]);
    await stage.waitForText("#list-note", "1 newer episode; on the first page");
  });

  test("goes one page for two clicks before the page is there, and never before the first", async () => {
    await stage.run.episodes(Array.from({ length: 120 }, (_, i) => playedRow({ episode: `e${i}`, layoutSeed: i })));
    await stage.open("episodes");
    await stage.waitForCount("#episode-list button", 50);
    const clickTwice = (button: string) =>
      stage.page.locator(button).evaluate((element: { click(): void }) => {
        element.click();
        element.click();
      });
    await clickTwice("#older");
    await stage.waitForText("#list-note", "page 2, newest first");
    await clickTwice("#newer");
    await stage.waitForText("#list-note", /^newest first/);
    await stage.page.locator("#older").click();
    await stage.waitForText("#list-note", "page 2, newest first");
    await stage.page.locator("#older").click();
    await stage.waitForText("#list-note", "page 3, newest first");
    await stage.waitForCount("#episode-list button", 20);
  });

  test("replays an episode with the env's own code, action by action, to the recorded end", async () => {
    const row = recordedRow({ babble: 0, ticket: { ...board, episode: "good", version: 9 } });
    await stage.run.episodes([row]);
    await stage.open("episodes");
    await stage.waitForText(".replay", "replayed here: the same as recorded");
    const first = cells((row.outcome as PlayedOutcome).turns[0]!.observation);
    expect(await shown()).toBe(first);
    const actions = actionsOf(row);
    for (const [i, action] of actions.entries()) {
      await stage.page.keyboard.press("ArrowRight");
      expect(await stage.text(".replay .caption")).toContain(action);
      expect(await stage.text(".replay output")).toBe(`${i + 1} of ${actions.length}`);
    }
    expect(await shown()).toBe(endOf(row));
    expect(await stage.text(".replay .caption")).toContain("solved");
    await stage.page.keyboard.press("Home");
    expect(await shown()).toBe(first);
    // Keys of the filter stay keys of the filter.
    await stage.page.locator("#filter [name=outcome]").first().focus();
    await stage.page.keyboard.press("ArrowRight");
    await stage.page.waitForURL("**/episodes?outcome=solved&id=1");
    expect(await shown()).toBe(first);
  });

  test("says so if the env gives another episode than the record", async () => {
    const row = recordedRow({ babble: 0, ticket: { ...board, episode: "good" } });
    await stage.run.episodes([{ ...row, ticket: { ...row.ticket, layoutSeed: 10_004 } }]);
    await stage.open("episodes");
    await stage.waitForText(
      ".replay .bad",
      "the replay differs from the record: turn 1 starts with another observation",
    );
  });

  test("puts two policies on the same board side by side", async () => {
    const bad = recordedRow({ babble: 1, ticket: { ...board, episode: "bad", version: 1 } });
    const good = recordedRow({ babble: 0, ticket: { ...board, episode: "good", version: 9 } });
    await stage.run.episodes([bad, good]);
    await stage.open("episodes");
    await stage.page.locator(".choices select").first().selectOption({ index: 1 });
    await stage.waitForCount(".pane", 2);
    expect(await stage.text(".pane h4")).toBe("version 9 · solved");
    await stage.page.keyboard.press("End");
    expect([await shown(0), await shown(1)]).toEqual([endOf(good), endOf(bad)]);
    expect(endOf(good)).not.toBe(endOf(bad));
  });

  test("shows the comparison that was chosen last, and says why one cannot be shown", async () => {
    const other = (version: number) =>
      recordedRow({ babble: 1, ticket: { ...board, episode: `e${version}`, version } });
    const good = recordedRow({ babble: 0, ticket: { ...board, episode: "good", version: 9 } });
    await stage.run.episodes([other(1), other(2), good]);
    await stage.open("episodes");
    const select = stage.page.locator(".choices select").first();
    const slow = Promise.withResolvers<void>();
    await stage.page.route("**/api/episodes/2?*", async (route) => {
      await slow.promise;
      await route.continue();
    });
    await select.selectOption({ index: 1 });
    await select.selectOption({ index: 2 });
    await stage.waitForText(".pane:nth-child(2) h4", "version 1");
    const late = stage.page.waitForResponse("**/api/episodes/2?*");
    slow.resolve();
    await (await late).finished();
    await stage.page.evaluate("new Promise(requestAnimationFrame)");
    expect(await stage.text(".pane:nth-child(2) h4")).toContain("version 1");
    await stage.page.route("**/api/episodes/2?*", (route) =>
      route.fulfill({ status: 404, json: { error: "no episode 2; /api/episodes lists them" } }),
    );
    await select.selectOption({ index: 1 });
    await stage.waitForText(".choices", "no episode 2; /api/episodes lists them");
    await stage.waitForCount(".pane", 1);
    stage.complaints = stage.complaints.filter((text) => !text.includes("404"));
  });

  test("asks again for the envs' code, if the server could not give it", async () => {
    const row = (episode: string) => recordedRow({ babble: 0, ticket: { ...board, episode } });
    await stage.run.episodes([row("a"), row("b")]);
    await stage.page.route("**/assets/replay-code.js", (route) => route.fulfill({ status: 500, body: "" }), {
      times: 1,
    });
    await stage.open("episodes");
    await stage.waitForText("#episode", "Cannot replay this episode here");
    await stage.page.locator("#episode-list button").nth(1).click();
    await stage.waitForText(".replay", "replayed here: the same as recorded");
    stage.complaints = stage.complaints.filter((text) => !text.includes("500"));
  });

  test("has no player of an earlier episode, and leaves it no keys, where an episode cannot be shown", async () => {
    const good = recordedRow({ babble: 0, ticket: { ...board, episode: "good", version: 9 } });
    await stage.run.episodes([playedRow({ episode: "gone" }), good]);
    await stage.page.route("**/api/episodes/1?*", (route) =>
      route.fulfill({ status: 404, json: { error: "no episode 1; /api/episodes lists them" } }),
    );
    await stage.open("episodes");
    await stage.waitForText(".replay", "replayed here: the same as recorded");
    const takesKey = () =>
      stage.page.evaluate<boolean>(
        `!document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true, cancelable: true }))`,
      );
    expect(await takesKey()).toBe(true);
    await stage.page.locator("#episode-list button").nth(1).click();
    await stage.waitForText("#episode", "no episode 1; /api/episodes lists them");
    expect(await takesKey()).toBe(false);
    stage.complaints = stage.complaints.filter((text) => !text.includes("404"));
  });

  test("lets a person take over and play on by hand, with the arrow keys", async () => {
    const row = recordedRow({ babble: 0, ticket: { ...board, episode: "good" } });
    await stage.run.episodes([row]);
    await stage.open("episodes");
    await stage.page.getByText("Take over").click();
    await stage.waitForText(".hand .caption", "10 actions left");
    await stage.page.getByText("Play", { exact: true }).click();
    expect(await stage.page.locator(".controls").textContent()).not.toContain("Pause");
    for (const action of actionsOf(row)) await stage.page.keyboard.press(`Arrow${action}`);
    await stage.waitForText(".hand .caption", "solved");
    expect(await shown(1)).toBe(endOf(row));
    await stage.page.getByText("Back to the replay").click();
    await stage.waitForCount(".hand", 0);
  });

  test("colors tokens by log-probability, and by advantage", async () => {
    const row = recordedRow({ babble: 0, ticket: { ...board, episode: "good" } });
    const { logProbs, written } = (row.outcome as PlayedOutcome).trajectory;
    logProbs.fill(-0.01).set([-3.5], written.indexOf(1));
    await stage.run.episodes([row]);
    await stage.open("episodes");
    await stage.page.locator("#episode details summary").first().click();
    const token = stage.page.locator("#episode .token");
    expect(await token.first().getAttribute("title")).toBe("3.0 %, log-probability -3.500; advantage +0.90");
    const background = (at: number) => stage.probe("background", "#episode .token", at);
    expect(await background(0)).not.toBe(await background(1));
    await stage.page.locator(".colors select").selectOption({ index: 1 });
    expect(await background(0)).toBe(await background(1));
  });
});
