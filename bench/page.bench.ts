/**
 * Measures the page of a large run: the time to answer lists of episodes, and the time until a browser shows the run.
 * Run: `bun run bench page` (`--page.episodes=N`).
 * Budget, with 100,000 episodes and 50,000 metric points: any list in 200 ms, first paint in 1 s.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { realClock } from "../actors/clock.ts";
import type { ApiContext } from "../actors/dashboard/api.ts";
import { NearbyRuns } from "../actors/dashboard/runs.ts";
import { serveDashboard } from "../actors/dashboard/serve.ts";
import { METRIC_NAMES } from "../actors/metrics/metrics.ts";
import { Store } from "../actors/metrics-sink/store.ts";
import type { EpisodeRow } from "../actors/protocol.ts";
import { Pcg64 } from "../envs/rng/pcg64.ts";
import { median } from "../model/statistics.ts";
import { chromiumPath, launch } from "./chromium.ts";
import { madeUpOutcome, madeUpTicket } from "./made-up-episode.ts";
import { type Comparison, numbersOf, round } from "./shared.ts";

const EPISODES = 100_000;
const BATCH = 1000;
const UPDATES = 2500;
const ROUNDS = 5;

/** 20 metrics, with 50,000 points in all. The page draws most of these metrics. */
const METRICS = METRIC_NAMES.filter((name) => /^(validate\/success|train\/.*)$/.test(name)).slice(0, 20);

/** Queries of the page, including the slowest. */
const QUERIES: Readonly<Record<string, string>> = {
  newest: "",
  "far down": "before=5000",
  "of an env": "env=FrozenLake",
  missed: "success=false&purpose=validate",
  "of a version": "version=3",
  "rare reward": "rewardMin=10.95",
  "no such reward": "rewardMin=99",
  "a common word": "text=left",
  "a rare word": "text=zebra",
  "no such words": "text=zebra%20crossing",
  "one board": "layoutSeed=20123",
};

export const summary = "lists and first paint of a run with 100,000 episodes";

export async function run(options: Readonly<Record<string, string>>) {
  const { episodes } = numbersOf("page", { episodes: EPISODES }, options, []);
  const folder = mkdtempSync(join(tmpdir(), "bunraku-page-bench-"));
  const store = new Store({ path: join(folder, "run.sqlite"), durability: "normal", wallClock: Date.now });
  const shown: ApiContext = {
    store,
    setup: () => ({ starts: [], settings: [] }),
    play: { compat: "strict", envs: [] },
    dialogue: null,
    nearby: new NearbyRuns(folder, null),
    ratings: join(folder, "ratings.jsonl"),
  };
  const server = await serveDashboard({ shown, host: "127.0.0.1", port: 0, token: null, clock: realClock });
  try {
    const started = performance.now();
    fill(store, episodes);
    const seconds = (performance.now() - started) / 1000;
    console.log(`${episodes} episodes written, ${Math.round(episodes / seconds)} /s`);
    const lists = await timeLists(server.url);
    for (const [name, ms] of Object.entries(lists)) console.log(`list, ${name}: ${ms.toFixed(1)} ms`);
    const paints = chromiumPath === null ? null : await timePaints(server.url);
    const slowestListMs = Math.max(...Object.values(lists));
    const againstBudget = (what: string, ms: number, budgetMs: number): Comparison => ({
      what: `${what}, ${episodes.toLocaleString("en")} episodes`,
      ours: `${round(ms)} ms`,
      reference: `budget ${budgetMs} ms`,
      speed: round(budgetMs / ms, 2),
      goal: 1,
    });
    const comparisons = [
      againstBudget("slowest list", slowestListMs, 200),
      ...(paints === null ? [] : [againstBudget("first paint", paints["runPaintMs"]!, 1000)]),
    ];
    return { name: "page", comparisons, episodes, slowestListMs, ...paints };
  } finally {
    await server.stop();
    store.close();
    rmSync(folder, { recursive: true });
  }
}

function fill(store: Store, episodes: number): void {
  const random = new Pcg64(7);
  store.startSession({ name: "large", env: "SimpleSokoban", updates: UPDATES, seed: 7 });
  const points = METRICS.flatMap((name) =>
    Array.from({ length: UPDATES }, (_, step) => ({ name, actor: "learner", step, value: random.random() })),
  );
  store.write({ points, events: [], episodes: [] });
  for (let from = 0; from < episodes; from += BATCH) {
    const rows = Array.from({ length: Math.min(BATCH, episodes - from) }, (_, i) => rowOf(from + i, random));
    store.write({ points: [], events: [], episodes: rows });
  }
}

const BOARD = "######\n#_P__#\n#_X__#\n#__O_#\n#____#\n######";
const WORDS = ["up", "down", "left", "right", "push", "box", "target", "wall", "below", "above"];

function rowOf(index: number, random: Pcg64): EpisodeRow {
  const success = random.random() < 0.8;
  const word = () => WORDS[random.integers(WORDS.length)]!;
  const rare = index % 20_011 === 17 ? " zebra" : "";
  const turns = Array.from({ length: 3 }, (_, turn) => ({
    observation: `${BOARD}\nYou have ${10 - turn} actions left.`,
    reply: `<think>${word()} ${word()} ${word()}${rare}</think><answer>${word()}</answer>`,
    actions: ["Up"],
    reward: -0.1,
  }));
  const version = Math.floor(index / 40);
  const outcome = madeUpOutcome(180, version, turns);
  const earned = { end: 179, reward: success ? 10 + random.random() : -0.3, penalty: 0 };
  return {
    ticket: madeUpTicket({
      episode: `e${index}`,
      purpose: index % 4 === 0 ? "validate" : "train",
      env: index % 10 === 0 ? "FrozenLake" : "SimpleSokoban",
      layoutSeed: 20_000 + (index % 1000),
      dynamicsSeed: index,
      version,
    }),
    sampler: "sampler-0",
    outcome: {
      ...outcome,
      stop: success ? "success" : "over",
      success,
      trajectory: { ...outcome.trajectory, turns: [earned] },
      finalObservation: BOARD,
    },
    update: null,
    advantage: null,
  };
}

async function timeLists(url: string): Promise<Record<string, number>> {
  const times: Record<string, number> = {};
  for (const [name, query] of Object.entries(QUERIES)) {
    const rounds: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const started = performance.now();
      const answer = await fetch(`${url}api/episodes?limit=50&${query}`);
      await answer.json();
      if (!answer.ok) throw new Error(`the page answers ${answer.status} to ${query}`);
      rounds.push(performance.now() - started);
    }
    times[name] = median(rounds);
  }
  return times;
}

async function timePaints(url: string) {
  const browser = await launch();
  try {
    const paints: Record<string, number>[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const page = await (await browser.newContext()).newPage();
      const [runPaintMs, runDrawnMs] = await timePage(page, url, "#success-plot:not([data-empty])");
      const [episodesPaintMs, episodesListedMs] = await timePage(page, `${url}episodes`, "#episode-list button");
      paints.push({ runPaintMs, runDrawnMs, episodesPaintMs, episodesListedMs });
      await page.context().close();
    }
    const names = Object.keys(paints[0]!);
    return Object.fromEntries(names.map((name) => [name, Math.round(median(paints.map((one) => one[name]!)))]));
  } finally {
    await browser.close();
  }
}

/** The first paint, and the moment at which the page contains `selector`, in milliseconds after the start of navigation. */
async function timePage(page: Page, url: string, selector: string): Promise<[number, number]> {
  const started = performance.now();
  await page.goto(url);
  await page.waitForSelector(selector, { state: "attached" });
  const shown = performance.now() - started;
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null);
  if (paint === null) throw new Error(`the browser reports no first paint of ${url}`);
  return [paint, shown];
}
