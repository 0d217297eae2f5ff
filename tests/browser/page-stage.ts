/** A run's page in a real browser, fed by a pretend run through the real metrics sink; new for each test. */
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { realClock } from "../../actors/clock.ts";
import { NearbyRuns } from "../../actors/dashboard/runs.ts";
import { type Served, serveDashboard } from "../../actors/dashboard/serve.ts";
import { MetricsSink } from "../../actors/metrics-sink/metrics-sink.ts";
import { Store } from "../../actors/metrics-sink/store.ts";
import { launch } from "../../bench/chromium.ts";
import { builtinDialogue } from "../../model/text/chat.ts";
import { FakeRun, play } from "../actors/metrics-sink/fake-run.ts";
import { temporaryFolder } from "../scripts/temporary.ts";

export const LONG = 300_000;

/** The error of a dropped request. Chromium drops what it is loading if another test file adds a network interface. */
const DROPPED = "net::ERR_NETWORK_CHANGED";

/** What probe.js can tell. */
interface Probe {
  pixels(chart: string, property: string): number;
  heights(chart: string, property: string): { top: number; middle: number };
  frames(): unknown[];
  count(selector: string): number;
  text(selector: string): string | null;
  has(name: string): boolean;
  width(selector: string): number;
  overflow(): number;
  background(selector: string, at: number): string;
  contrasts(): { text: string; ratio: number }[];
}
type Inside = typeof globalThis & { probe: Record<keyof Probe, (...args: unknown[]) => unknown> };

export class PageStage {
  page!: Page;
  store!: Store;
  sink!: MetricsSink;
  run!: FakeRun;
  served!: Served;
  /** Console errors and warnings, uncaught errors, and requests that failed or left this machine. */
  complaints: string[] = [];
  #browser!: Browser;
  #context: BrowserContext | null = null;
  #folder!: string;

  async launch(): Promise<void> {
    this.#browser = await launch();
  }
  async quit(): Promise<void> {
    await this.#browser.close();
  }

  async set(): Promise<void> {
    this.#folder = temporaryFolder();
    ({ store: this.store, sink: this.sink, run: this.run } = this.#begin("run-1", 3));
    this.served = await serveDashboard({
      shown: {
        store: this.store,
        setup: () => ({ starts: [], settings: [] }),
        play,
        dialogue: builtinDialogue(),
        nearby: new NearbyRuns(this.#folder, "run-1"),
        ratings: join(this.#folder, "ratings.jsonl"),
      },
      host: "127.0.0.1",
      port: 0,
      token: null,
      clock: realClock,
    });
    await this.newPage();
  }

  async strike(): Promise<void> {
    await this.#context?.close();
    await this.served.stop();
    this.sink.flush();
    this.store.close();
    expect(this.complaints).toEqual([]);
  }

  /** A run in a folder of its own, beside the folder of the shown run. */
  #begin(name: string, seed: number) {
    mkdirSync(join(this.#folder, name));
    const path = join(this.#folder, name, "run.sqlite");
    const store = new Store({ path, durability: "normal", wallClock: Date.now });
    store.startSession({ name, env: "SimpleSokoban", updates: 120, seed });
    const sink = new MetricsSink({ store, actor: "metrics-sink", clock: realClock, flushMs: 20, waitingMax: 100_000 });
    return { store, sink, run: new FakeRun({ sink, seed }) };
  }

  /** Writes the config into a run's folder. Without a config, the run's settings are unknown. */
  writeConfig(name: string, config: object): void {
    writeFileSync(join(this.#folder, name, "config.json"), JSON.stringify(config));
  }

  async otherRun(name: string, seed: number, updates: number): Promise<void> {
    const { store, sink, run } = this.#begin(name, seed);
    for (let step = 1; step <= updates; step++) await run.update(step);
    sink.flush();
    store.close();
  }

  async newPage(options: Parameters<Browser["newContext"]>[0] = {}): Promise<void> {
    await this.#context?.close();
    this.complaints = [];
    this.#context = await this.#browser.newContext({ viewport: { width: 1360, height: 900 }, ...options });
    this.page = await this.#context.newPage();
    await this.page.addInitScript({ path: join(import.meta.dir, "probe.js") });
    this.page.on("console", (message) => {
      if (!["error", "warning"].includes(message.type()) || message.text().includes(DROPPED)) return;
      this.complaints.push(message.text());
    });
    this.page.on("pageerror", (error) => this.complaints.push(error.message));
    this.page.on("requestfailed", (request) => {
      if (request.failure()?.errorText === DROPPED) {
        void this.page.reload().catch(() => {});
        return;
      }
      if (!request.url().endsWith("/api/stream") && !request.failure()?.errorText.includes("ERR_ABORTED")) {
        this.complaints.push(`${request.url()} ${request.failure()?.errorText}`);
      }
    });
    this.page.on("request", (request) => {
      if (!request.url().startsWith(this.served.url)) this.complaints.push(`asked ${request.url()}`);
    });
  }

  async open(path = ""): Promise<void> {
    await this.page.goto(`${this.served.url}${path}`);
    await this.page.waitForSelector("#link[data-state=live]");
  }

  async trained(updates: number): Promise<void> {
    this.run.warm(1);
    for (let step = 1; step <= updates; step++) await this.run.update(step);
    this.sink.flush();
  }

  probe<K extends keyof Probe>(name: K, ...args: Parameters<Probe[K]>): Promise<ReturnType<Probe[K]>> {
    return this.page.evaluate(([name, args]) => (globalThis as Inside).probe[name](...args), [
      name,
      args,
    ] as const) as Promise<ReturnType<Probe[K]>>;
  }

  async text(selector: string): Promise<string> {
    return (await this.page.locator(selector).first().textContent())!;
  }
  waitForText(selector: string, wanted: string | RegExp): Promise<void> {
    return this.page.locator(selector).filter({ hasText: wanted }).first().waitFor();
  }
  async waitForCount(selector: string, count: number): Promise<void> {
    await this.page.waitForFunction(([selector, count]) => (globalThis as Inside).probe.count(selector) === count, [
      selector,
      count,
    ] as const);
  }
  /** Waits until more than so many pixels of a chart have nearly the color of this custom property. */
  async waitForPixels(chart: string, property: string, count: number): Promise<void> {
    await this.page.waitForFunction(
      ([chart, property, count]) => Number((globalThis as Inside).probe.pixels(chart, property)) > count,
      [chart, property, count] as const,
    );
  }
  async waitForOther(selector: string, than: string): Promise<void> {
    await this.page.waitForFunction(([selector, than]) => (globalThis as Inside).probe.text(selector) !== than, [
      selector,
      than,
    ] as const);
  }
}

/** Call this once in a describe block. */
export function setPageStage(): PageStage {
  const stage = new PageStage();
  beforeAll(() => stage.launch(), LONG);
  afterAll(() => stage.quit());
  beforeEach(() => stage.set(), LONG);
  afterEach(() => stage.strike(), LONG);
  return stage;
}
