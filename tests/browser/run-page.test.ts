/** The page about the run, in a real browser: charts, live updates, comparisons. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { overviewOf } from "../../actors/dashboard/overview.ts";
import { chromiumPath } from "../../bench/chromium.ts";
import { playedRow } from "../actors/metrics-sink/fake-run.ts";
import { describeWhere } from "../needs.ts";
import { LONG, setPageStage } from "./page-stage.ts";

setDefaultTimeout(LONG);

describeWhere(chromiumPath === null ? "no Chromium" : null, "the run's page", () => {
  const stage = setPageStage();

  test("before the first update says what is being waited for, and moves on by itself", async () => {
    await stage.open();
    expect(await stage.text("#status")).toBe("Waiting for the first update: the actors are starting");
    // Of the best possible player and the expert, one is known and shown.
    const isShown = (name: string) => stage.page.locator(`#number-${name}`).isVisible();
    stage.run.metrics(0, { "baseline/random": 0.252, "baseline/expert": 0.453 });
    await stage.waitForText("#number-expert", "45.3 %");
    expect([await isShown("expert"), await isShown("best")]).toEqual([true, false]);
    stage.run.warm(0.4);
    await stage.waitForText("#status", "Waiting for the first update: warm start, stage 1, 44 %");
    // The chart that moves is the first, and one without values is not there.
    const top = async (chart: string) => (await stage.page.locator(`.card.${chart}`).boundingBox())?.y ?? null;
    expect((await top("warm"))!).toBeLessThan((await top("success"))!);
    expect(await top("kl")).toBeNull();
    await stage.waitForCount("#warm-plot[data-empty]", 0);
    await stage.waitForPixels("warm", "--accent", 50);
    await stage.run.episodes([playedRow({ episode: "sample", purpose: "validate", version: 0 })]);
    await stage.waitForText("#latest", "the box is right of me");
    await stage.trained(1);
    await stage.waitForText("#status", "Training: 119 updates to go");
    expect(await stage.text("#number-taught")).toBe("74.2 %");
    expect(await stage.text("#number-before")).toBe("21.1 %");
  });

  test("draws every chart in its color", async () => {
    await stage.trained(40);
    await stage.open();
    await stage.waitForCount(".plot[data-empty]", 0);
    const charts = await stage.page.locator(".plot").evaluateAll((plots) => plots.map(({ id }) => id));
    expect(charts.length).toBe(11);
    for (const id of charts) {
      const chart = id.replace("-plot", "");
      await stage.waitForPixels(chart, "--accent", 50);
    }
    for (const chart of ["success", "reward", "length", "validity", "filter"]) {
      await stage.waitForPixels(chart, "--second", 50);
    }
    // The dashed lines of the random and the best possible player.
    await stage.waitForPixels("success", "--muted", 400);
    const label = await stage.page.locator("#success-plot").getAttribute("aria-label");
    expect(label).toMatch(/^Success: validation \d+\.\d %/);
  });

  test("shows new values, events and episodes as they come, and moves nothing", async () => {
    await stage.trained(10);
    await stage.open();
    const before = await stage.probe("frames");
    expect(await stage.text("#update")).toBe("10 of 120");
    for (let step = 11; step <= 37; step++) await stage.run.update(step);
    await stage.waitForText("#update", "37 of 120");
    await stage.waitForText("#events", "sampler/1 was killed by signal 9");
    await stage.waitForText("#reward-legend", /mean\s*\d/);
    expect(await stage.probe("frames")).toEqual(before);
  });

  test("reads all charts of updates where the mouse is on one of them", async () => {
    await stage.trained(40);
    await stage.open();
    const entropy = () => stage.text("#entropy-legend");
    await stage.waitForOther("#entropy-legend b", "–");
    const latest = await entropy();
    const box = (await stage.page.locator("#success-plot .u-over").boundingBox())!;
    await stage.page.mouse.move(box.x + box.width * 0.25, box.y + box.height / 2);
    await stage.waitForOther("#entropy-legend b", latest);
    const { values, steps } = stage.store.series(["train/entropy"], 0)[0]!;
    expect(await entropy()).toBe(values[steps.indexOf(10)]!.toFixed(3));
    await stage.page.mouse.move(0, 0);
    await stage.waitForText("#entropy-legend", latest);
  });

  test("draws a run of 10,000 updates in full width, with its one spike, and goes on live", async () => {
    stage.run.metrics(0, { "baseline/random": 0.2, "baseline/best": 1 });
    for (let step = 1; step <= 10_000; step++) {
      const spike = step === 5003 ? 40 : 1;
      stage.run.metrics(step, { "train/grad_norm": spike, "train/entropy": 0.5, "total/updates": step });
    }
    stage.sink.flush();
    await stage.open();
    await stage.waitForText("#gradient-legend", "1.00");
    // One update of 10,000, and 26 of them in each pixel: the line is at the bottom, and the spike reaches up to the top.
    const { top, middle } = await stage.probe("heights", "gradient", "--accent");
    expect(top).toBeLessThan(0.25);
    expect(middle).toBeGreaterThan(0.7);
    stage.run.metrics(10_001, { "train/grad_norm": 7.25 });
    await stage.waitForText("#gradient-legend", "7.25");
  });

  test("draws the first value of a curve before there is a line", async () => {
    stage.run.metrics(1, { "train/entropy": 0.5 });
    stage.sink.flush();
    await stage.open();
    await stage.waitForText("#entropy-legend", "0.500");
    await stage.waitForPixels("entropy", "--accent", 10);
  });

  test("smooths its lines, and draws them over a logarithm", async () => {
    for (const [i, value] of [1, 3, 1, 3].entries()) stage.run.metrics(i + 1, { "train/grad_norm": value });
    stage.sink.flush();
    await stage.open();
    await stage.waitForText("#gradient-legend", "3.00");
    await stage.page.locator("#tools [name=smoothing]").fill("0.5");
    // Weights 8, 4, 2, 1 from the newest: (8*3 + 4*1 + 2*3 + 1*1) / 15 = 2.333
    await stage.waitForText("#gradient-legend", "2.33");
    await stage.page.locator("#tools [name=smoothing]").fill("0");
    const flat = await stage.probe("pixels", "gradient", "--accent");
    await stage.page.locator("#tools [name=log]").check();
    await stage.waitForText("#gradient-legend", "3.00");
    await stage.waitForPixels("gradient", "--accent", 50);
    expect(flat).toBeGreaterThan(50);
  });

  test("draws other runs beside this one, and keeps them in its address", async () => {
    await stage.otherRun("run-0", 11, 30);
    await stage.trained(20);
    await stage.open();
    expect(await stage.probe("pixels", "success", "--run-1")).toBe(0);
    await stage.page.locator("#compare summary").click();
    await stage.waitForText("#compare-list", "run-0");
    await stage.page.locator("#compare-list input").check();
    await stage.waitForText("#compared", "run-0");
    await stage.waitForCount("#success-legend span", 3);
    await stage.waitForPixels("success", "--run-1", 50);
    expect(stage.page.url()).toEndWith("/?with=run-0");
    await stage.open("?with=run-0");
    await stage.waitForCount("#success-legend span", 3);
    await stage.page.locator("#compare summary").click();
    await stage.page.locator("#compare-list input").uncheck();
    await stage.waitForCount("#success-legend span", 2);
    expect(await stage.probe("pixels", "success", "--run-1")).toBe(0);
  });

  test("draws the last choice of runs, though an earlier choice is read for longer", async () => {
    await stage.otherRun("run-0", 11, 30);
    await stage.trained(20);
    await stage.open();
    await stage.page.locator("#compare summary").click();
    const asked = Promise.withResolvers<void>();
    const held = Promise.withResolvers<void>();
    await stage.page.route("**/api/runs/run-0/metrics*", async (route) => {
      asked.resolve();
      await held.promise;
      await route.continue();
    });
    const box = stage.page.locator("#compare-list input");
    await box.check();
    await asked.promise;
    await box.uncheck();
    const read = stage.page.waitForResponse("**/api/runs/run-0/metrics*");
    held.resolve();
    await (await read).finished();
    await stage.waitForCount("#success-legend span", 2);
    await stage.waitForCount("#compared li", 0);
    expect(await stage.probe("pixels", "success", "--run-1")).toBe(0);
  });

  test("draws the runs of a link although one of them is gone, and lets that one be taken out", async () => {
    await stage.otherRun("run-0", 11, 30);
    await stage.trained(20);
    await stage.open("?with=gone&with=run-0");
    await stage.waitForText("#compared .bad", "no run gone in the same parent folder");
    await stage.waitForPixels("success", "--run-2", 50);
    await stage.page.locator("#compare summary").click();
    await stage.page.locator("#compare-list input[value=gone]").uncheck();
    await stage.waitForCount("#compared .bad", 0);
    await stage.waitForPixels("success", "--run-1", 50);
    expect(stage.page.url()).toEndWith("/?with=run-0");
    stage.complaints = stage.complaints.filter((text) => !text.includes("404"));
  });

  test("lists the runs again when the menu is opened again", async () => {
    await stage.otherRun("run-0", 11, 3);
    await stage.open();
    await stage.page.route("**/api/runs?*", (route) => route.fulfill({ status: 503, json: { error: "try again" } }));
    await stage.page.locator("#compare summary").click();
    await stage.waitForText("#compare-list .bad", "try again");
    await stage.page.unroute("**/api/runs?*");
    await stage.page.keyboard.press("Escape");
    await stage.page.locator("#compare summary").click();
    await stage.waitForText("#compare-list", "run-0");
    stage.complaints = stage.complaints.filter((text) => !text.includes("503"));
  });

  test("draws the signs and the verdict of another run beside this one's, on the page about alarms", async () => {
    await stage.otherRun("run-0", 11, 30);
    await stage.trained(20);
    await stage.open("alarms");
    await stage.waitForPixels("verdicts", "--accent", 20);
    expect(await stage.probe("pixels", "spread", "--run-1")).toBe(0);
    await stage.page.locator("#compare summary").click();
    await stage.page.locator("#compare-list input").check();
    await stage.waitForText("#compared", "run-0");
    // The other run goes on after this one has ended.
    for (const chart of ["success", "verdicts", "spread"]) await stage.waitForPixels(chart, "--run-1", 20);
    expect(stage.page.url()).toEndWith("/alarms?with=run-0");
  });

  test("draws the seeds of its setting as a mean with a band", async () => {
    for (const [name, seed] of [
      ["run-0", 11],
      ["run-2", 12],
      ["other", 13],
    ] as const) {
      await stage.otherRun(name, seed, 20);
      stage.writeConfig(name, { seed, env: { tag: name === "other" ? "Bandit" : "SimpleSokoban" } });
    }
    stage.writeConfig("run-1", { seed: 3 });
    await stage.trained(20);
    await stage.open();
    await stage.page.locator("#tools [name=seeds]").check();
    await stage.waitForText("#compared", "this run: mean of 3 runs");
    await stage.waitForCount("#success-legend span", 3);
    await stage.waitForPixels("success", "--ink", 50);
    await stage.open("?seeds=mean&with=other");
    await stage.waitForText("#compared", "other: no run with another seed");
    await stage.waitForCount("#success-legend span", 4);
  });

  test("adds the chart of a link when its metric has a value", async () => {
    await stage.open("?chart=total%2Fepisodes");
    await stage.waitForCount("#added-1-title", 0);
    for (const step of [1, 2]) stage.run.metrics(step, { "total/episodes": 128 * step });
    await stage.waitForText("#added-1-title", "total/episodes");
    await stage.waitForText("#added-1-legend", "256");
  });

  test("adds a chart of any metric, and draws all over minutes or tokens", async () => {
    await stage.trained(20);
    await stage.open();
    await stage.page.locator("#tools [name=add]").focus();
    await stage.waitForCount("#tools [name=add] option[value='total/episodes']", 1);
    await stage.page.locator("#tools [name=add]").selectOption("total/episodes");
    await stage.waitForText("#added-1-title", "total/episodes");
    await stage.waitForPixels("added-1", "--accent", 50);
    expect(stage.page.url()).toEndWith("/?chart=total%2Fepisodes");
    await stage.open("?chart=total%2Fepisodes");
    await stage.waitForOther("#added-1-legend b", "–");
    const flat = await stage.probe("pixels", "success", "--accent");
    for (const axis of ["tokens", "minutes"]) {
      await stage.page.locator("#tools [name=axis]").selectOption(axis);
      await stage.waitForPixels("success", "--accent", 50);
    }
    expect(flat).toBeGreaterThan(50);
  });

  test("says that a run which is over cannot be reached, and how to see it again", async () => {
    await stage.open();
    stage.run.event("finished", "120 updates, success 80.0 %");
    await stage.waitForText("#status", "120 updates, success 80.0 %");
    await stage.waitForText("#link", "recorded");
    await stage.served.stop();
    await stage.page.waitForSelector("#link[data-state=ended]");
    expect(await stage.text("#status")).toMatch(
      /^120 updates, success 80\.0 % · This page is no longer served; .*bun run page FOLDER$/,
    );
    stage.complaints = stage.complaints.filter((text) => !text.includes("ERR_"));
  });

  test("goes on without an episode that cannot be read", async () => {
    await stage.run.episodes([playedRow({ episode: "a" })]);
    await stage.page.route("**/api/episodes/1?*", (route) =>
      route.fulfill({ status: 500, json: { error: "no such token" } }),
    );
    await stage.open();
    await stage.waitForText("#latest", "no such token");
    stage.complaints = stage.complaints.filter((text) => !text.includes("500"));
  });

  test("asks again for a stream that was refused", async () => {
    await stage.page.route("**/api/stream*", (route) => route.fulfill({ status: 502 }), { times: 1 });
    await stage.page.goto(stage.served.url);
    await stage.page.waitForSelector("#link[data-state=reconnecting]");
    await stage.page.waitForSelector("#link[data-state=live]");
    stage.run.metrics(7, { "total/updates": 7 });
    await stage.waitForText("#update", "7 of 120");
    stage.complaints = stage.complaints.filter((text) => !text.includes("502"));
  });

  test("loads again when another record takes the place of the shown record", async () => {
    stage.run.metrics(3, { "train/entropy": 0.5, "total/updates": 3 });
    stage.sink.flush();
    const old = {
      run: overviewOf(stage.store)!,
      points: [["train/entropy", "learner", 90, 0.75]],
      events: [],
      episodes: [],
    };
    const body = `event: news\nid: 1.0.0\ndata: ${JSON.stringify(old)}\n\n`;
    const answer = { contentType: "text/event-stream", body };
    await stage.page.route("**/api/stream*", (route) => route.fulfill(answer), { times: 1 });
    const again = Promise.withResolvers<void>();
    let count = 0;
    stage.page.on("framenavigated", () => ++count === 2 && again.resolve());
    await stage.page.goto(stage.served.url);
    await again.promise;
    await stage.page.waitForSelector("#link[data-state=live]");
    await stage.waitForText("#entropy-legend", "0.500");
  });

  test("says when the run cannot be reached", async () => {
    await stage.open();
    await stage.served.stop();
    await stage.page.waitForSelector("#link[data-state=reconnecting]");
    expect(await stage.text("#status")).toContain("bun run cluster --resume FOLDER");
    // The browser's own complaint about the cut stream is what this test causes.
    stage.complaints = stage.complaints.filter((text) => !text.includes("ERR_"));
  });
});
