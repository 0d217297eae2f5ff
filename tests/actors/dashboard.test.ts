import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Hono } from "hono";
import { realClock } from "../../actors/clock.ts";
import { dashboardApp } from "../../actors/dashboard/app.tsx";
import { loadAssets } from "../../actors/dashboard/assets.ts";
import type { EpisodeSummary } from "../../actors/dashboard/episode-record.ts";
import type { Overview } from "../../actors/dashboard/overview.ts";
import { prometheusName } from "../../actors/dashboard/prometheus.ts";
import type { Series } from "../../actors/dashboard/records.ts";
import { serveDashboard } from "../../actors/dashboard/serve.ts";
import { Store } from "../../actors/dashboard/store.ts";
import { METRIC_NAMES } from "../../actors/metrics.ts";
import { MetricsSink } from "../../actors/metrics-sink.ts";
import type { Played } from "../../actors/protocol.ts";
import { FakeRun, playedRow, ticketOf } from "./fake-run.ts";

const TOKEN = "a-long-enough-secret";
const assets = await loadAssets();

let now: number;
let store: Store;
let sink: MetricsSink;
let run: FakeRun;
let app: Hono;
let closing: AbortController;

beforeEach(() => {
  now = 1_700_000_000_000;
  store = new Store({ path: ":memory:", durability: "normal", wallClock: () => now });
  sink = new MetricsSink({ store, actor: "metrics-sink", clock: realClock, flushMs: 5, queuedMax: 9999 });
  run = new FakeRun({ sink, seed: 3 });
  closing = new AbortController();
  app = appWith(null);
});
afterEach(() => {
  closing.abort();
  sink.flush();
  store.close();
});

const appWith = (token: string | null) =>
  dashboardApp({ store, clock: realClock, token, assets, signal: closing.signal });
const startRun = (updates: number | null = 120) =>
  store.startSession({ name: "run-1", env: "SimpleSokoban", updates, seed: 7 });

/** The fields of all answers that these tests read. */
interface Answer extends Overview {
  readonly error: string;
  readonly cursor: number;
  readonly series: Series[];
  readonly rows: EpisodeSummary[];
  readonly next: number;
  readonly summary: EpisodeSummary;
  readonly row: { outcome: Played };
}
const read = async (answer: Response) => (await answer.json()) as Answer;
const json = async (path: string) => read(await app.request(path));
const statusOf = async () => (await json("/api/run")).status;

describe("the sentence on top of the page", () => {
  test("follows a run from its start to its end", async () => {
    startRun();
    expect(await statusOf()).toBe("Waiting for the first update: the actors are starting");
    run.event("phase", "measuring the baselines");
    sink.flush();
    expect(await statusOf()).toBe("Waiting for the first update: measuring the baselines");
    run.metrics(172, { "warm/stage": 1, "warm/progress": 0.439, "warm/loss": 0.7 });
    sink.flush();
    expect(await statusOf()).toBe("Waiting for the first update: warm start, stage 1, 43 %");
    run.metrics(400, { "warm/stage": 2, "warm/progress": 1 });
    run.event("phase", "validating the policy before reinforcement");
    sink.flush();
    expect(await statusOf()).toBe("Waiting for the first update: validating the policy before reinforcement");
    run.metrics(90, { "total/updates": 90, "speed/updates_per_minute": 10 });
    sink.flush();
    expect(await statusOf()).toBe("Training: 30 updates to go, about 3 min at this pace");
    run.event("finished", "120 updates made");
    sink.flush();
    expect(await json("/api/run")).toMatchObject({ status: "120 updates made", phase: "finished", progress: 1 });
  });

  test("says nothing of an earlier session's end after a resume", async () => {
    startRun(null);
    run.event("finished", "stopped by hand");
    sink.flush();
    now += 60_000;
    startRun(null);
    run.metrics(5, { "total/updates": 5 });
    sink.flush();
    expect(await json("/api/run")).toMatchObject({ status: "Training: update 5", progress: null, engine: null });
  });
});

describe("/api/run", () => {
  test("has null, never 0, for what was not measured", async () => {
    startRun();
    const { success, update, tokensPerSecond, engine } = await json("/api/run");
    expect({ success, update, tokensPerSecond, engine }).toEqual({
      success: { random: null, taught: null, before: null, now: null, nowUpdate: null, best: null },
      update: null,
      tokensPerSecond: null,
      engine: null,
    });
  });

  test("shows the five numbers side by side", async () => {
    startRun();
    run.warm(1);
    run.metrics(20, { "validate/success": 0.71 });
    sink.flush();
    expect((await json("/api/run")).success).toEqual({
      random: 0.188,
      taught: 0.742,
      before: 0.211,
      now: 0.71,
      nowUpdate: 20,
      best: 1,
    });
  });
});

describe("/api/metrics", () => {
  test("gives the named series, and only what is new since a cursor", async () => {
    startRun();
    for (let step = 1; step <= 3; step++) run.metrics(step, { "train/success": step / 4, "train/entropy": 1 / step });
    sink.flush();
    const first = await json("/api/metrics?names=train/success");
    expect(first.series).toEqual([
      { name: "train/success", actor: "learner", steps: [1, 2, 3], values: [0.25, 0.5, 0.75] },
    ]);
    run.metrics(4, { "train/success": 1 });
    sink.flush();
    const { series } = await json(`/api/metrics?names=train/success&since=${first.cursor}`);
    expect(series).toEqual([{ name: "train/success", actor: "learner", steps: [4], values: [1] }]);
  });

  test.each([
    ["/api/metrics?names=train/sucess", 'no metric named "train/sucess"; there are '],
    ["/api/metrics?since=-1", "since"],
    ["/api/metrics?step=3", '"step"'],
    ["/api/episodes?limit=100000", "limit"],
    ["/api/episodes?purpose=play", "purpose"],
    ["/api/episodes?success=maybe", "success"],
    ["/api/events?before=soon", "before"],
    ["/api/stream?since=yesterday", "a cursor is three counts"],
  ])("refuses %s, naming the fault", async (path, fault) => {
    startRun();
    const answer = await app.request(path);
    expect(answer.status).toBe(400);
    expect((await read(answer)).error).toContain(fault);
  });
});

describe("/api/episodes", () => {
  test("lists, filters and pages", async () => {
    startRun();
    await run.episodes([0, 1, 2, 3].map((i) => playedRow({ episode: `e${i}` }, i % 2 === 0)));
    const ids = ({ rows }: Answer) => rows.map(({ episode }) => episode);
    const page = await json("/api/episodes?limit=3");
    expect(ids(page)).toEqual(["e3", "e2", "e1"]);
    expect(ids(await json(`/api/episodes?limit=3&before=${page.next}`))).toEqual(["e0"]);
    expect(ids(await json("/api/episodes?success=true"))).toEqual(["e2", "e0"]);
    expect(ids(await json("/api/episodes?rewardMax=0&env=SimpleSokoban"))).toEqual(["e3", "e1"]);
  });

  test("gives one whole: turns, tokens and log-probabilities as lists", async () => {
    startRun();
    await run.episodes([playedRow({ episode: "e0" })]);
    const { summary, row } = await json("/api/episodes/1");
    expect(summary).toMatchObject({ episode: "e0", stop: "success", writtenTokens: 3 });
    expect(row.outcome.trajectory as unknown).toMatchObject({
      tokens: [1, 5, 9, 12, 4, 2],
      written: [0, 0, 1, 1, 0, 1],
      logProbs: [0, 0, -0.5, -1.25, 0, -0.0625],
    });
    expect(row.outcome.turns[1]!.actions).toEqual(["Right"]);
  });

  test.each(["7", "0", "nonsense", "1.5"])("has no episode %s, and says where the list is", async (id) => {
    startRun();
    const answer = await app.request(`/api/episodes/${id}`);
    expect([answer.status, await answer.json()]).toEqual([
      404,
      { error: `no episode ${id}; /api/episodes lists them` },
    ]);
  });
});

describe("/metrics", () => {
  test("exposes the latest values with help and unit, and no sample for what was not measured", async () => {
    startRun();
    run.metrics(1, { "validate/success": 0.5, "weights/publish_ms": 25, "total/episodes": 100 });
    run.metrics(2, { "validate/success": 0.625, "total/episodes": 228 });
    run.metrics(2, { "process/rss_bytes": 1024 }, "sampler/0");
    run.metrics(2, { "process/rss_bytes": 2048 }, "sampler/1");
    sink.flush();
    const answer = await app.request("/metrics");
    expect(answer.headers.get("Content-Type")).toStartWith("text/plain; version=0.0.4");
    const text = await answer.text();
    expect(text).toContain("# HELP bunraku_validate_success Share of validation episodes solved. Unit: share.\n");
    expect(text.split("\n").filter((line) => line !== "" && !line.startsWith("#"))).toEqual([
      'bunraku_validate_success{run="run-1"} 0.625',
      'bunraku_weights_publish_seconds{run="run-1"} 0.025',
      'bunraku_episodes_total{run="run-1"} 228',
      'bunraku_process_rss_bytes{run="run-1",actor="sampler/0"} 1024',
      'bunraku_process_rss_bytes{run="run-1",actor="sampler/1"} 2048',
    ]);
    expect(await (await app.request("/metrics")).text()).toBe(text);
  });

  test("gives every metric its own valid name", () => {
    const names = METRIC_NAMES.map(prometheusName);
    expect(new Set(names).size).toBe(METRIC_NAMES.length);
    for (const name of names) expect(name).toMatch(/^bunraku_[a-z][a-z0-9_]*$/);
    expect(prometheusName("speed/update_s")).toBe("bunraku_speed_update_seconds");
    expect(prometheusName("total/updates")).toBe("bunraku_updates_total");
  });
});

describe("/api/stream", () => {
  /** Read messages until `count` came. */
  async function follow(answer: Response, count: number): Promise<{ id: string; data: Record<string, unknown> }[]> {
    const messages: { id: string; data: Record<string, unknown> }[] = [];
    let rest = "";
    const decoder = new TextDecoder();
    for await (const chunk of answer.body!) {
      const pieces = (rest + decoder.decode(chunk, { stream: true })).split("\n\n");
      rest = pieces.pop()!;
      for (const piece of pieces.filter((piece) => piece.startsWith("event: news"))) {
        messages.push({ data: JSON.parse(/^data: (.*)$/m.exec(piece)![1]!), id: /^id: (.*)$/m.exec(piece)![1]! });
      }
      if (messages.length >= count) return messages;
    }
    throw new Error(`the stream ended after ${messages.length} of ${count} messages`);
  }

  test("sends what was missed, then what comes", async () => {
    startRun();
    run.metrics(1, { "train/success": 0.25 });
    sink.flush();
    const answer = await app.request("/api/stream?since=0.0.0");
    const reading = follow(answer, 2);
    expect(answer.headers.get("Content-Type")).toBe("text/event-stream");
    run.metrics(2, { "train/success": 0.5 });
    run.event("phase", "hello");
    const [first, second] = await reading;
    expect(first!.data).toMatchObject({ points: [["train/success", "learner", 1, 0.25]], events: [] });
    expect(second!.data).toMatchObject({
      points: [["train/success", "learner", 2, 0.5]],
      events: [{ text: "hello" }],
      run: { update: 2 },
    });
    expect(second!.id).toBe("2.1.0");
  });

  test("goes on from the last message after a lost connection, without a gap or a repeat", async () => {
    startRun();
    for (let step = 1; step <= 4; step++) run.metrics(step, { "train/success": step / 4 });
    sink.flush();
    const answer = await app.request("/api/stream?since=0.0.0", { headers: { "Last-Event-ID": "2.0.0" } });
    const [message] = await follow(answer, 1);
    expect(message!.data["points"]).toEqual([
      ["train/success", "learner", 3, 0.75],
      ["train/success", "learner", 4, 1],
    ]);
  });

  test("ends when the page is closed down", async () => {
    startRun();
    const answer = await app.request("/api/stream");
    const reading = answer.text();
    closing.abort();
    expect(await reading).toBe(": connected\n\n");
  });
});

describe("safety", () => {
  test("every answer forbids foreign and inline code, sniffing and framing", async () => {
    startRun();
    for (const path of ["/", "/metrics", "/api/run", "/assets/live.js", "/nothing"]) {
      const { headers } = await app.request(path);
      expect(headers.get("Content-Security-Policy")).toContain("default-src 'none'; script-src 'self'");
      expect(headers.get("Content-Security-Policy")).not.toContain("unsafe");
      expect(headers.get("X-Content-Type-Options")).toBe("nosniff");
    }
  });

  test("the page has no inline script, style or handler, and nothing from elsewhere", async () => {
    startRun();
    const page = await (await app.request("/")).text();
    expect(page).toStartWith("<!doctype html>");
    expect(page).not.toMatch(/<script(?![^>]*\ssrc="\/assets\/)|<style|\sstyle=|\son[a-z]+=|https?:/);
  });

  test("names and texts from outside are escaped", async () => {
    store.startSession({ name: "<script>alert(1)</script>", env: '"><img src=x>', updates: 1, seed: 1 });
    run.event("engine", "<b onmouseover=alert(2)>");
    sink.flush();
    const page = await (await app.request("/")).text();
    expect(page).not.toContain("<script>alert");
    expect(page).not.toContain("<img src=x");
    expect(page).not.toContain("<b onmouseover");
    expect(page).toContain("&lt;script&gt;alert(1)&lt;/script&gt;");
  });

  test.each(["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])("%s changes nothing: it is refused", async (method) => {
    startRun();
    const answer = await app.request("/api/run", { method });
    expect([answer.status, answer.headers.get("Allow")]).toEqual([405, "GET, HEAD"]);
  });

  test("without a token, only loopback names are answered, so that no foreign page can borrow the browser", async () => {
    startRun();
    for (const host of ["localhost:7001", "127.0.0.1:7001", "[::1]:7001"]) {
      expect((await app.request(`http://${host}/api/run`)).status).toBe(200);
    }
    expect((await app.request("http://evil.example:7001/api/run")).status).toBe(403);
  });
});

describe("with a token", () => {
  beforeEach(() => {
    startRun();
    app = appWith(TOKEN);
  });

  test("nothing but the probes is answered without it", async () => {
    for (const path of ["/", "/metrics", "/api/run", "/api/episodes", "/api/stream", "/assets/live.js"]) {
      expect([path, (await app.request(path)).status]).toEqual([path, 401]);
    }
    expect((await app.request("/healthz")).status).toBe(200);
    expect((await app.request("/readyz")).status).toBe(200);
  });

  test("programs send it in a header", async () => {
    const get = (token: string) => app.request("/metrics", { headers: { Authorization: `Bearer ${token}` } });
    expect((await get(TOKEN)).status).toBe(200);
    expect((await get("wrong")).status).toBe(401);
    expect((await get("")).status).toBe(401);
  });

  test("people open the page with it once; then a cookie, which is not the token, carries it", async () => {
    const answer = await app.request(`http://host.example:7001/?token=${TOKEN}&x=1`);
    expect([answer.status, answer.headers.get("Location")]).toEqual([303, "/?x=1"]);
    const cookie = answer.headers.get("Set-Cookie")!;
    expect(cookie).toContain("HttpOnly");
    expect(cookie).toContain("SameSite=Strict");
    expect(cookie).not.toContain(TOKEN);
    const page = await app.request("http://host.example:7001/", { headers: { Cookie: cookie.split(";")[0]! } });
    expect(page.status).toBe(200);
    expect((await app.request("/?token=wrong")).status).toBe(401);
    expect((await app.request("/", { headers: { Cookie: `bunraku_80=${TOKEN}` } })).status).toBe(401);
  });
});

describe("before a run", () => {
  test("the page says so, and the service is alive but not ready", async () => {
    expect(await (await app.request("/")).text()).toContain("No run here yet");
    expect((await app.request("/healthz")).status).toBe(200);
    expect((await app.request("/readyz")).status).toBe(503);
    expect((await app.request("/api/run")).status).toBe(503);
  });
});

describe("assets", () => {
  test("are sent once and then confirmed", async () => {
    const first = await app.request("/assets/style.css");
    const etag = first.headers.get("ETag")!;
    const again = await app.request("/assets/style.css", { headers: { "If-None-Match": etag } });
    expect([again.status, await again.text()]).toEqual([304, ""]);
    expect((await app.request("/assets/..%2fapp.tsx")).status).toBe(404);
  });

  test("in TypeScript arrive as JavaScript", async () => {
    const answer = await app.request("/assets/text.ts");
    expect(answer.headers.get("Content-Type")).toBe("text/javascript; charset=utf-8");
    expect(await answer.text()).not.toContain(": string");
  });
});

describe("serveDashboard", () => {
  const serve = (host: string, port: number, token: string | null = null) =>
    serveDashboard({ store, host, port, token, clock: realClock });

  test("answers on a free port, and frees it", async () => {
    startRun();
    const served = await serve("127.0.0.1", 0);
    expect((await read(await fetch(`${served.url}api/run`))).run).toBe("run-1");
    await served.stop();
    const again = await serve("127.0.0.1", Number(new URL(served.url).port));
    await again.stop();
  });

  test("names a port that is in use, and what to do", async () => {
    const served = await serve("127.0.0.1", 0);
    const port = Number(new URL(served.url).port);
    await expect(serve("127.0.0.1", port)).rejects.toThrow(
      new Error(
        `cannot serve the page on 127.0.0.1:${port}: the port is in use. ` +
          "Stop the other program, or choose --metrics.port=N (--metrics.port=0 for any free port).",
      ),
    );
    await served.stop();
  });

  test("does not open the page to other machines without a token", async () => {
    await expect(serve("0.0.0.0", 0)).rejects.toThrow(
      new Error(
        "cannot serve the page on 0.0.0.0: other machines could read it without a token. " +
          "Set --metrics.token=SECRET, or use --metrics.host=127.0.0.1.",
      ),
    );
    const served = await serve("0.0.0.0", 0, TOKEN);
    const url = served.url.replace("0.0.0.0", "127.0.0.1");
    expect((await fetch(url)).status).toBe(401);
    await served.stop();
  });

  test("stops although a live stream is open", async () => {
    startRun();
    const served = await serve("127.0.0.1", 0);
    const stream = await fetch(`${served.url}api/stream`);
    await served.stop();
    // The reader sees the end, clean or cut, and does not hang.
    await stream.text().catch(() => "");
  });
});

test("an env error is listed with its cause and no reward", async () => {
  startRun();
  const outcome = { status: "envError", detail: "SimpleSokoban#5 step: Error: boom" } as const;
  await run.episodes([{ ticket: ticketOf(), sampler: "sampler/0", outcome, update: null, advantage: null }]);
  expect(await json("/api/episodes/1")).toMatchObject({ summary: { reward: null }, row: { outcome } });
});

describe("the style", () => {
  const css = readFileSync(join(import.meta.dir, "../../actors/dashboard/style.css"), "utf8");
  const [light, dark] = [...css.matchAll(/:root \{([^}]*)\}/g)].map(
    ([, block]) =>
      new Map([...block!.matchAll(/--(\w[\w-]*): (#[0-9a-f]{6});/g)].map(([, name, hex]) => [name!, hex!])),
  );

  /** Relative luminance and contrast as in WCAG 2.2. */
  function luminance(hex: string): number {
    const linear = [1, 3, 5].map((at) => {
      const channel = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
      return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0]! + 0.7152 * linear[1]! + 0.0722 * linear[2]!;
  }
  function contrast(a: string, b: string): number {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high! + 0.05) / (low! + 0.05);
  }

  test("computes contrast as WCAG does", () => {
    expect(contrast("#000000", "#ffffff")).toBe(21);
    expect(contrast("#767676", "#ffffff").toFixed(2)).toBe("4.54");
  });

  test.each([
    ["light", light!],
    ["dark", dark!],
  ])("has a contrast of at least 4.5 for every text in %s", (_, colors) => {
    const texts = {
      ink: ["paper", "card", "sunk"],
      muted: ["paper", "card", "sunk"],
      accent: ["paper", "card"],
      box: ["card"],
      bad: ["card", "bad-tint"],
      good: ["good-tint"],
      card: ["accent", "good"],
    };
    for (const [text, surfaces] of Object.entries(texts)) {
      for (const surface of surfaces) {
        const ratio = contrast(colors.get(text)!, colors.get(surface)!);
        expect({ text, surface, ratio, enough: ratio >= 4.5 }).toMatchObject({ enough: true });
      }
    }
  });
});
