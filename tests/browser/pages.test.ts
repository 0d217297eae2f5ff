/** What holds for all pages, in a real browser: actors and alarms of the run, hostile text, contrast, small screens, keys. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { partName } from "../../actors/metrics/metrics.ts";
import { chromiumPath } from "../../bench/chromium.ts";
import { actorView, playedRow } from "../actors/metrics-sink/fake-run.ts";
import { recordedRow } from "../actors/record/recorded-episode.ts";
import { describeWhere } from "../needs.ts";
import { LONG, setPageStage } from "./page-stage.ts";

setDefaultTimeout(LONG);

const PATHS = ["", "actors", "episodes", "alarms"];
const published = { version: 12, digest: "ab".repeat(32) };

describeWhere(chromiumPath === null ? "no Chromium" : null, "the pages", () => {
  const stage = setPageStage();

  function tellActors() {
    stage.sink.takeActors([
      actorView("learner", {
        weights: published,
        load: { "time/update": 0.5, "time/rollout": 0.4, "queue/waiting": 7 },
      }),
      actorView("sampler-0", {
        weights: published,
        load: { "time/tickets": 0.75, "speed/actor_tokens_per_second": 2410.4 },
      }),
      actorView("sampler-1", { pid: null, restarts: 2, weights: { version: 11, digest: "cd".repeat(32) } }),
      actorView("env-server-0", { silentMs: 9000, load: { "time/busy": 0.25 } }),
    ]);
    stage.sink.flush();
  }

  test("actors: each with its weights and time shares, updated live", async () => {
    await stage.open("actors");
    await stage.waitForText("#actors", "No actor has reported yet");
    tellActors();
    await stage.waitForCount(".actor", 4);
    expect(await stage.text(".actor.learner")).toContain("computes updates 50 % · waits for episodes 40 % · idle 10 %");
    expect(await stage.text(".actor.learner")).toContain("policy 12 · abababababab · 7 tickets waiting");
    expect(await stage.text(".actor.sampler")).toContain("policy 12 · abababababab · as published");
    expect(await stage.text(".actor.sampler")).toContain("2,410 tokens/s");
    expect(await stage.text(".actor.env-server .chip")).toBe("silent");
    const gone = stage.page.locator(".actor.sampler").nth(1);
    expect(await gone.textContent()).toMatch(/gone2 restarts.*1 version behind/s);
    expect(await stage.text("#actors-summary")).toStartWith(
      "the learner waits for episodes 40 %, samplers wait for tickets 75 %",
    );
    stage.run.metrics(1, { "train/lag_0": 0.75, "train/lag_1": 0.25, "train/lag_2": 0, "train/lag_more": 0 });
    await stage.waitForText("#lag li:nth-child(2)", "25.0 %");
  });

  test("alarms: before the first update, that nothing was judged", async () => {
    await stage.open("alarms");
    expect(await stage.text("#verdict-word")).toContain("no verdict yet");
    expect(await stage.text("#verdict-text")).toContain("After each update the detector looks for");
  });

  test("run: of a mix, a chart with a line for each env", async () => {
    await stage.open("");
    expect(await stage.page.locator("#envs-plot").count()).toBe(0);
    stage.store.startSession({ name: "run-1", env: "Bandit+Ice", updates: 120, seed: 3 });
    for (const step of [0, 10, 20, 30]) {
      stage.run.metrics(step, {
        [partName("validate/success", "env", "Bandit")]: 0.2 + step / 100,
        [partName("validate/success", "env", "Ice")]: 0.4,
      });
    }
    stage.sink.flush();
    await stage.open("");
    await stage.waitForText("#envs-legend", "50.0 %");
    expect(await stage.text("#envs-legend")).toMatch(/Bandit.*50\.0 %.*Ice.*40\.0 %/s);
    for (const color of ["--accent", "--second"]) {
      await stage.waitForPixels("envs", color, 50);
    }
  });

  test("alarms: the verdict with its reasons, and what was done about it", async () => {
    await stage.trained(10);
    await stage.open("alarms");
    await stage.waitForText("#verdict-word", "healthy");
    expect(await stage.text("#verdict-text")).toBe("There is no sign of a collapse.");
    stage.run.metrics(11, { "health/verdict": 3 });
    stage.run.event(
      "health",
      "update 11: collapsed: rewards of a group differ by 0.02; the entropy is 0.01",
      "warning",
    );
    await stage.waitForText("#verdict-word", "collapsed");
    expect(await stage.text("#verdict-text")).toContain("rewards of a group differ by 0.02; the entropy is 0.01");
    stage.run.event("intervention", "tighten the filter (rung 1 of 4)", "warning");
    await stage.waitForText("#history", "tighten the filter");
    await stage.waitForCount("#alarm-badge[data-level=warning]", 1);
    stage.run.event("peer.lost", "sampler-1 left", "error", "learner");
    await stage.waitForText("#events", "sampler-1 left");
    expect(await stage.text("#events")).not.toContain("tighten");
    await stage.waitForPixels("spread", "--accent", 50);
    await stage.open("");
    await stage.waitForCount("#alarm-badge[data-level=warning]", 1);
  });

  test("show hostile text as text", async () => {
    const hostile =
      '</pre><script>window.hacked=1</script><img src=x onerror="window.hacked=1"><svg/onload=window.hacked=1>' +
      "\u001b[31m\u202Etxt\u0000" +
      "A".repeat(1_000_000);
    const [brief, actor] = [hostile.slice(0, 4000), '"><b>actor'];
    stage.run.event("health", `warning: ${brief.slice(0, 3900)}`, "warning", actor);
    stage.sink.takeActors([actorView(actor, { doing: hostile.slice(0, 200) })]);
    await stage.run.episodes([playedRow({ episode: "evil", env: "<i>env</i>" }, true, hostile)]);
    stage.sink.flush();
    for (const path of PATHS) {
      await stage.open(path);
      await stage.waitForText("main", "window.hacked=1");
      expect(await stage.probe("has", "hacked")).toBe(false);
      expect(await stage.page.locator("main :is(img:not(.brand img), script, svg, i:empty ~ b > b, pre)").count()).toBe(
        0,
      );
      expect(await stage.probe("overflow")).toBe(0);
    }
    await stage.open("episodes");
    await stage.waitForText("#episode", "window.hacked=1");
    const shown = await stage.text("#episode .thought");
    expect(shown).toStartWith("</pre><script>window.hacked=1</script><img src=x");
    expect(shown).toContain("‹1B›[31m‹202E›txt‹00›AAAA");
    expect(shown).toEndWith("more characters");
    expect(await stage.text("#episode h3")).toContain("<i>env</i>");
    expect(await stage.text(".replay, #episode > .note")).toContain("Cannot replay this episode here: unknown env tag");
  });

  test.each([
    ["a desk", {}],
    ["a desk in the dark", { colorScheme: "dark" as const }],
    ["a phone", { viewport: { width: 390, height: 844 }, isMobile: true, deviceScaleFactor: 2 }],
    ["a small phone", { viewport: { width: 320, height: 640 }, isMobile: true }],
  ])("fit %s: charts drawn, every text with a contrast of 4.5, and nothing to scroll sideways", async (_, options) => {
    await stage.newPage(options);
    await stage.trained(20);
    tellActors();
    stage.run.event("health", "warning: the entropy fell", "warning");
    await stage.run.episodes([recordedRow({ babble: 0.5, ticket: { episode: "r" } })]);
    stage.sink.flush();
    for (const path of PATHS) {
      await stage.open(path);
      if (path === "episodes") {
        await stage.waitForText(".replay", "the same as recorded");
        await stage.page.locator("#episode details summary").first().click();
        expect(await stage.probe("width", "#episode")).toBeGreaterThan(280);
      }
      await stage.waitForCount(".plot[data-empty]", 0);
      const faint = (await stage.probe("contrasts")).filter(({ ratio }) => ratio < 4.5);
      expect({ path, faint }).toEqual({ path, faint: [] });
      expect({ path, overflow: await stage.probe("overflow") }).toEqual({ path, overflow: 0 });
    }
    await stage.open("");
    await stage.page.locator("#costs tr").first().waitFor();
    const cells = await stage.page.locator("#costs-card").evaluate((card) => {
      const { left, right } = card.getBoundingClientRect();
      const all = [...card.querySelectorAll("th, td")].map((cell) => cell.getBoundingClientRect());
      return all.map((cell) => cell.left >= left + 12 && cell.right <= right - 1);
    });
    expect(cells.length).toBeGreaterThanOrEqual(8);
    expect(cells).not.toContain(false);
    await stage.waitForText("#time-spent", "s of reinforcement: rollouts");
    await stage.page.locator("#success-plot").scrollIntoViewIfNeeded();
    await stage.waitForPixels("success", "--accent", 50);
  });

  test("are reached by one key each, which another one lists", async () => {
    await stage.open("");
    for (const [key, path] of [
      ["2", "actors"],
      ["3", "episodes"],
      ["4", "alarms"],
      ["1", ""],
    ] as const) {
      await stage.page.keyboard.press(key);
      await stage.page.waitForURL(`${stage.served.url}${path}`);
      await stage.page.waitForSelector("#link[data-state=live]");
    }
    await stage.page.keyboard.press("?");
    await stage.waitForText("dialog[open]", "go to Run, Actors, Episodes, Alarms");
    await stage.page.keyboard.press("Escape");
    await stage.waitForCount("dialog[open]", 0);
  });
});
