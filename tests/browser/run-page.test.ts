/** The run's page in a real browser, fed by a pretend run through the real metrics sink. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { realClock } from "../../actors/clock.ts";
import { type Served, serveDashboard } from "../../actors/dashboard/serve.ts";
import { Store } from "../../actors/dashboard/store.ts";
import { MetricsSink } from "../../actors/metrics-sink.ts";
import { FakeRun, playedRow } from "../actors/fake-run.ts";
import { chromiumPath, launch } from "./chromium.ts";

const LONG = 60_000;

/** What probe.js can tell. */
interface Probe {
  pixels(chart: string, property: string): number;
  frames(): unknown[];
  count(selector: string): number;
  text(selector: string): string | null;
  has(name: string): boolean;
  width(selector: string): number;
  overflow(): number;
}
type Inside = typeof globalThis & { probe: Record<keyof Probe, (...args: unknown[]) => unknown> };

describe.skipIf(chromiumPath === null)("the run's page", () => {
  let browser: Browser;
  let context: BrowserContext;
  let page: Page;
  let store: Store;
  let sink: MetricsSink;
  let run: FakeRun;
  let served: Served;
  /** Console errors and warnings, uncaught errors, and requests that failed or left this machine. */
  let complaints: string[];

  beforeAll(async () => {
    browser = await launch();
  }, LONG);
  afterAll(() => browser.close());

  beforeEach(async () => {
    store = new Store({ path: ":memory:", durability: "normal", wallClock: Date.now });
    store.startSession({ name: "run-1", env: "SimpleSokoban", updates: 120, seed: 7 });
    sink = new MetricsSink({ store, actor: "metrics-sink", clock: realClock, flushMs: 20, queuedMax: 100_000 });
    run = new FakeRun({ sink, seed: 3 });
    served = await serveDashboard({ store, host: "127.0.0.1", port: 0, token: null, clock: realClock });
    await newPage();
  }, LONG);
  afterEach(async () => {
    await context.close();
    await served.stop();
    sink.flush();
    store.close();
    expect(complaints).toEqual([]);
  }, LONG);

  async function newPage(options: Parameters<Browser["newContext"]>[0] = {}) {
    await context?.close();
    complaints = [];
    context = await browser.newContext({ viewport: { width: 1360, height: 900 }, ...options });
    page = await context.newPage();
    await page.addInitScript({ path: join(import.meta.dir, "probe.js") });
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type())) complaints.push(message.text());
    });
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("requestfailed", (request) => {
      if (!request.url().endsWith("/api/stream") && !request.failure()?.errorText.includes("ERR_ABORTED")) {
        complaints.push(`${request.url()} ${request.failure()?.errorText}`);
      }
    });
    page.on("request", (request) => {
      if (!request.url().startsWith(served.url)) complaints.push(`asked ${request.url()}`);
    });
  }

  const open = async () => {
    await page.goto(served.url);
    await page.waitForSelector("#link[data-state=live]");
  };
  const probe = <K extends keyof Probe>(name: K, ...args: Parameters<Probe[K]>) =>
    page.evaluate(([name, args]) => (globalThis as Inside).probe[name](...args), [name, args] as const) as Promise<
      ReturnType<Probe[K]>
    >;
  const text = async (selector: string) => (await page.locator(selector).first().textContent())!;
  const waitForText = (selector: string, wanted: string) =>
    page.locator(selector).filter({ hasText: wanted }).first().waitFor();
  const waitForCount = (selector: string, count: number) =>
    page.waitForFunction(([selector, count]) => (globalThis as Inside).probe.count(selector) === count, [
      selector,
      count,
    ] as const);
  const waitForOther = (selector: string, than: string) =>
    page.waitForFunction(([selector, than]) => (globalThis as Inside).probe.text(selector) !== than, [
      selector,
      than,
    ] as const);

  async function trained(updates: number) {
    run.warm(1);
    for (let step = 1; step <= updates; step++) await run.update(step);
    sink.flush();
  }

  test(
    "before the first update says what is being waited for, and moves on by itself",
    async () => {
      await open();
      expect(await text("#status")).toBe("Waiting for the first update: the actors are starting");
      run.warm(0.4);
      await waitForText("#status", "Waiting for the first update: warm start, stage 1, 44 %");
      await waitForCount("#warm-plot[data-empty]", 0);
      expect(await probe("pixels", "warm", "--accent")).toBeGreaterThan(50);
      await run.episodes([playedRow({ episode: "sample", purpose: "validate", version: 0 })]);
      await waitForText("#episode", "the box is right of me");
      await trained(1);
      await waitForText("#status", "Training: 119 updates to go");
      expect(await text("#number-taught")).toBe("74.2 %");
      expect(await text("#number-before")).toBe("21.1 %");
    },
    LONG,
  );

  test(
    "draws every chart in its colour",
    async () => {
      await trained(40);
      await open();
      await waitForCount(".plot[data-empty]", 0);
      for (const chart of ["success", "reward", "entropy", "gradient", "length", "speed", "warm"]) {
        expect([chart, (await probe("pixels", chart, "--accent")) > 50]).toEqual([chart, true]);
      }
      for (const chart of ["success", "reward", "length"]) {
        expect([chart, (await probe("pixels", chart, "--second")) > 50]).toEqual([chart, true]);
      }
      // The dashed lines of the random and the best possible player.
      expect(await probe("pixels", "success", "--muted")).toBeGreaterThan(400);
      expect(await page.locator("#success-plot").getAttribute("aria-label")).toMatch(/^Success: validation \d+\.\d %/);
    },
    LONG,
  );

  test(
    "shows new values, events and episodes as they come, and moves nothing",
    async () => {
      await trained(10);
      await open();
      const before = await probe("frames");
      expect(await text("#update")).toBe("10 of 120");
      for (let step = 11; step <= 37; step++) await run.update(step);
      await waitForText("#update", "37 of 120");
      await waitForText("#events", "sampler/1 was killed by signal 9");
      await waitForText("#episode-list", "version 37");
      expect(await probe("frames")).toEqual(before);
    },
    LONG,
  );

  test(
    "reads all charts of updates where the mouse is on one of them",
    async () => {
      await trained(40);
      await open();
      const entropy = () => text("#entropy-legend");
      await waitForOther("#entropy-legend b", "–");
      const latest = await entropy();
      const box = (await page.locator("#success-plot .u-over").boundingBox())!;
      await page.mouse.move(box.x + box.width * 0.25, box.y + box.height / 2);
      await waitForOther("#entropy-legend b", latest);
      const { values, steps } = store.series(["train/entropy"], 0)[0]!;
      expect(await entropy()).toBe(values[steps.indexOf(10)]!.toFixed(3));
      await page.mouse.move(0, 0);
      await waitForText("#entropy-legend", latest);
    },
    LONG,
  );

  test(
    "lists episodes, filters them, and shows one turn by turn; by keyboard alone",
    async () => {
      await run.episodes([
        playedRow({ episode: "a", layoutSeed: 111 }, true),
        playedRow({ episode: "b", layoutSeed: 222 }, false),
        playedRow({ episode: "c", layoutSeed: 333 }, true),
      ]);
      await open();
      await waitForText("#episode", "boards seed 333");
      expect(await page.locator("#episode .turn").count()).toBe(3);
      expect(await page.locator("#episode .turn:first-child .cell.player").count()).toBe(1);
      expect(await page.locator("#episode .cell.done").count()).toBe(1);
      await page.locator("#episode-list button").first().focus();
      await page.keyboard.press("ArrowDown");
      await waitForText("#episode", "boards seed 222");
      expect(await text("#episode .turn:nth-child(2)")).toContain("cut at the limit");
      await page.getByText("solved", { exact: true }).first().click();
      await waitForCount("#episode-list button", 2);
      // What a person reads stays.
      expect(await text("#episode")).toContain("boards seed 222");
    },
    LONG,
  );

  test(
    "shows hostile text as text",
    async () => {
      const hostile =
        '</pre><script>window.hacked=1</script><img src=x onerror="window.hacked=1"><svg/onload=window.hacked=1>' +
        "\u001b[31m\u202Etxt\u0000" +
        "A".repeat(1_000_000);
      run.event("phase", hostile.slice(0, 4000), "warning", '"><b>actor');
      await run.episodes([playedRow({ episode: "evil", env: "<i>env</i>" }, true, hostile)]);
      await open();
      await waitForText("#episode", "window.hacked=1");
      const shown = await text("#episode .thought");
      expect(shown).toStartWith("</pre><script>window.hacked=1</script><img src=x");
      expect(shown).toContain("‹1B›[31m‹202E›txt‹00›AAAA");
      expect(shown).toEndWith("more characters");
      expect(await text("#episode h3")).toContain("<i>env</i>");
      await waitForText("#events", '"><b>actor');
      expect(await probe("has", "hacked")).toBe(false);
      expect(await page.locator("#episode img, #episode script, #episode svg, #events b, #events script").count()).toBe(
        0,
      );
      expect(await probe("overflow")).toBe(0);
    },
    LONG,
  );

  test(
    "says when the run cannot be reached",
    async () => {
      await open();
      await served.stop();
      await page.waitForSelector("#link[data-state=reconnecting]");
      // The browser's own complaint about the cut stream is what this test causes.
      complaints = complaints.filter((text) => !text.includes("ERR_"));
    },
    LONG,
  );

  test.each([
    ["a desk in the dark", { colorScheme: "dark" as const }],
    ["a phone", { viewport: { width: 390, height: 844 }, isMobile: true, deviceScaleFactor: 2 }],
    ["a small phone", { viewport: { width: 320, height: 640 }, isMobile: true }],
  ])(
    "fits %s, with charts drawn and nothing to scroll sideways",
    async (_, options) => {
      await newPage(options);
      await trained(20);
      await open();
      await waitForCount(".plot[data-empty]", 0);
      expect(await probe("width", "#episode")).toBeGreaterThan(280);
      await page.locator("#success-plot").scrollIntoViewIfNeeded();
      expect(await probe("pixels", "success", "--accent")).toBeGreaterThan(50);
      expect(await probe("overflow")).toBe(0);
    },
    LONG,
  );
});
