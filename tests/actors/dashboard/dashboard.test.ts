import { describe, expect, test } from "bun:test";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EpisodeSummary, NamesAnswer, Overview, Series } from "../../../actors/dashboard/answers.ts";
import { prometheusName } from "../../../actors/dashboard/prometheus.ts";
import { METRIC_NAMES, partName } from "../../../actors/metrics/metrics.ts";
import type { PlayedOutcome } from "../../../actors/protocol.ts";
import { actorView, playedRow, ticketOf } from "../metrics-sink/fake-run.ts";
import { setStage } from "./stage.ts";

/** The fields of all answers that these tests read. */
interface Answer extends Overview {
  readonly error: string;
  readonly cursor: number;
  readonly series: Series[];
  readonly rows: EpisodeSummary[];
  readonly next: number;
  readonly summary: EpisodeSummary;
  readonly row: { outcome: PlayedOutcome };
}
const stage = setStage();
const read = async (answer: Response) => (await answer.json()) as Answer;
const json = async (path: string) => read(await stage.app.request(path));
const statusOf = async () => (await json("/api/run")).status;

describe("the sentence on top of the page", () => {
  test("follows a run from its start to its end", async () => {
    stage.startRun();
    expect(await statusOf()).toBe("Waiting for the first update: the actors are starting");
    stage.run.event("phase", "measuring the baselines");
    stage.sink.flush();
    expect(await statusOf()).toBe("Waiting for the first update: measuring the baselines");
    stage.run.metrics(172, { "warm/stage": 1, "warm/progress": 0.439, "warm/loss": 0.7 });
    stage.sink.flush();
    expect(await statusOf()).toBe("Waiting for the first update: warm start, stage 1, 43 %");
    stage.run.metrics(400, { "warm/stage": 2, "warm/progress": 1 });
    stage.run.event("phase", "validating the policy before reinforcement");
    stage.sink.flush();
    expect(await statusOf()).toBe("Waiting for the first update: validating the policy before reinforcement");
    stage.run.metrics(90, { "total/updates": 90, "speed/left_s": 180 });
    stage.sink.flush();
    expect(await statusOf()).toBe("Training: 30 updates to go, about 3 min left");
    stage.run.event("finished", "120 updates made");
    stage.sink.flush();
    expect(await json("/api/run")).toMatchObject({ status: "120 updates made", phase: "finished", progress: 1 });
  });

  test("of a run that was stopped in order says so at once", async () => {
    stage.startRun(120);
    stage.run.metrics(45, { "total/updates": 45 });
    stage.sink.close();
    const status = "The run stopped at update 45; continue it: bun run cluster --resume FOLDER";
    expect(await json("/api/run")).toMatchObject({ phase: "silent", status, progress: 45 / 120 });
    stage.now += 1;
    stage.startRun(120);
    expect(await json("/api/run")).toMatchObject({ phase: "training", status: "Training: 75 updates to go" });
  });

  test("says nothing of an earlier session's end after a resume", async () => {
    stage.startRun(null);
    stage.run.event("finished", "stopped by hand");
    stage.sink.flush();
    stage.now += 60_000;
    stage.startRun(null);
    stage.run.metrics(5, { "total/updates": 5 });
    stage.sink.flush();
    expect(await json("/api/run")).toMatchObject({ status: "Training: update 5", progress: null, engine: null });
  });
});

describe("/api/run", () => {
  test("counts the time of all sessions, and none after the end", async () => {
    stage.startRun();
    stage.now += 5000;
    stage.run.metrics(1, { "total/updates": 1 });
    stage.sink.flush();
    stage.now += 3_600_000;
    stage.startRun();
    stage.now += 700;
    stage.run.event("finished", "120 updates made");
    stage.sink.flush();
    stage.now += 9_000_000;
    expect((await json("/api/run")).aliveMs).toBe(5700);
  });

  test("says how long the warm start takes, and no less than 0 updates to go", async () => {
    stage.startRun();
    stage.run.metrics(10, { "warm/stage": 1, "warm/progress": 0.5, "warm/left_s": 240, "speed/left_s": 60 });
    stage.sink.flush();
    expect(await statusOf()).toBe("Waiting for the first update: warm start, stage 1, 50 %, about 4 min left");
    stage.run.metrics(125, { "total/updates": 125 });
    stage.sink.flush();
    expect(await json("/api/run")).toMatchObject({
      progress: 1,
      status: "Training: 0 updates to go, about 1 min left",
    });
  });

  test("has null, never 0, for what was not measured", async () => {
    stage.startRun();
    const { success, update, tokensPerSecond, engine } = await json("/api/run");
    expect({ success, update, tokensPerSecond, engine }).toEqual({
      success: { random: null, taught: null, before: null, now: null, nowUpdate: null, best: null, expert: null },
      update: null,
      tokensPerSecond: null,
      engine: null,
    });
  });

  test("shows the five numbers side by side", async () => {
    stage.startRun();
    stage.run.warm(1);
    stage.run.metrics(20, { "validate/success": 0.71 });
    stage.sink.flush();
    expect((await json("/api/run")).success).toEqual({
      random: 0.188,
      taught: 0.742,
      before: 0.211,
      now: 0.71,
      nowUpdate: 20,
      best: 1,
      expert: null,
    });
  });
});

test("charts can show what the run has recorded, but for what each actor reports", async () => {
  stage.startRun();
  stage.run.metrics(1, { "train/success": 0.5, "process/rss_bytes": 5, "queue/playing": 1 });
  stage.sink.flush();
  const { metrics } = (await (await stage.app.request("/api/names")).json()) as NamesAnswer;
  expect(metrics.map(({ name }) => name)).toEqual(["train/success"]);
});

test("the costs leave out the updates that a roll-back gave up", async () => {
  stage.startRun();
  for (const step of [1, 2, 3]) stage.run.metrics(step, { "total/tokens": step * 100, "total/updates": step });
  stage.run.metrics(1, { "health/rollbacks": 1 });
  stage.sink.flush();
  expect(await json("/api/costs")).toMatchObject({ total: { tokens: 100 } });
});

describe("/api/metrics", () => {
  test("gives the named series, and only what is new since a cursor", async () => {
    stage.startRun();
    for (let step = 1; step <= 3; step++)
      stage.run.metrics(step, { "train/success": step / 4, "train/entropy": 1 / step });
    stage.sink.flush();
    const first = await json("/api/metrics?names=train/success");
    expect(first.series).toEqual([
      { name: "train/success", actor: "learner", steps: [1, 2, 3], values: [0.25, 0.5, 0.75] },
    ]);
    stage.run.metrics(4, { "train/success": 1 });
    stage.sink.flush();
    const { series } = await json(`/api/metrics?names=train/success&since=${first.cursor}`);
    expect(series).toEqual([{ name: "train/success", actor: "learner", steps: [4], values: [1] }]);
  });

  test.each([
    ["/api/metrics?names=train/sucess", 'no metric named "train/sucess"; docs/metrics.md lists them'],
    ["/api/metrics?since=-1", "since"],
    ["/api/metrics?step=3", '"step"'],
    ["/api/episodes?limit=100000", "limit"],
    ["/api/episodes?purpose=play", "purpose"],
    ["/api/episodes?success=maybe", "success"],
    ["/api/episodes?rewardMin=", "rewardMin"],
    ["/api/metrics?names=%0A", "names"],
    ["/api/episodes?version=1&version=2", "query.version: has 2 values; give one"],
    ["/api/events?before=soon", "before"],
    ["/api/stream?since=yesterday", "a cursor is three counts"],
  ])("refuses %s, naming the fault", async (path, fault) => {
    stage.startRun();
    const answer = await stage.app.request(path);
    expect(answer.status).toBe(400);
    expect((await read(answer)).error).toContain(fault);
  });
});

describe("/api/episodes", () => {
  test("lists, filters and pages", async () => {
    stage.startRun();
    await stage.run.episodes([0, 1, 2, 3].map((i) => playedRow({ episode: `e${i}` }, i % 2 === 0)));
    const ids = ({ rows }: Answer) => rows.map(({ episode }) => episode);
    const page = await json("/api/episodes?limit=3");
    expect(ids(page)).toEqual(["e3", "e2", "e1"]);
    expect(ids(await json(`/api/episodes?limit=3&before=${page.next}`))).toEqual(["e0"]);
    expect(ids(await json("/api/episodes?success=true"))).toEqual(["e2", "e0"]);
    expect(ids(await json("/api/episodes?rewardMax=0&env=SimpleSokoban"))).toEqual(["e3", "e1"]);
  });

  test("gives one whole: turns, tokens and log-probabilities as lists", async () => {
    stage.startRun();
    await stage.run.episodes([playedRow({ episode: "e0" })]);
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
    stage.startRun();
    const answer = await stage.app.request(`/api/episodes/${id}`);
    expect([answer.status, await answer.json()]).toEqual([
      404,
      { error: `no episode ${id}; /api/episodes lists them` },
    ]);
  });
});

describe("/metrics", () => {
  test("exposes the latest values with help and unit, and no sample for what was not measured", async () => {
    stage.startRun();
    stage.run.metrics(1, { "validate/success": 0.5, "weights/publish_ms": 25, "total/episodes": 100 });
    stage.run.metrics(2, { "validate/success": 0.625, "total/episodes": 228 });
    stage.run.metrics(2, { [partName("validate/success", "env", "Ice")]: 0.25 });
    stage.run.metrics(2, { "process/rss_bytes": 1024 }, "sampler/0");
    stage.run.metrics(2, { "process/rss_bytes": 2048 }, "sampler/1");
    stage.sink.flush();
    const answer = await stage.app.request("/metrics");
    expect(answer.headers.get("Content-Type")).toStartWith("text/plain; version=0.0.4");
    const text = await answer.text();
    expect(text).toContain(
      "# HELP bunraku_validate_success Share of validation episodes that the policy solved. Unit: share.\n",
    );
    expect(text.split("\n").filter((line) => line !== "" && !line.startsWith("#"))).toEqual([
      'bunraku_validate_success{run="run-1"} 0.625',
      'bunraku_validate_success{run="run-1",env="Ice"} 0.25',
      'bunraku_weights_publish_seconds{run="run-1"} 0.025',
      'bunraku_episodes_total{run="run-1"} 228',
      'bunraku_process_rss_bytes{run="run-1",actor="sampler/0"} 1024',
      'bunraku_process_rss_bytes{run="run-1",actor="sampler/1"} 2048',
    ]);
    expect(await (await stage.app.request("/metrics")).text()).toBe(text);
  });

  test("leaves out what a later version recorded", async () => {
    stage.startRun();
    const points = ["of/later", "train/success"].map((name) => ({ name, actor: "learner", step: 1, value: 0.5 }));
    stage.store.write({ points, events: [], episodes: [] });
    const answer = await stage.app.request("/metrics");
    expect([answer.status, await answer.text()]).toEqual([200, expect.not.stringContaining("later")]);
  });

  test("has no samples of an actor that is gone", async () => {
    stage.startRun();
    const guest = actorView("sampler-2", { guest: true, pid: null, rssBytes: 3 });
    stage.sink.takeActors([actorView("sampler-0", { rssBytes: 1 }), actorView("sampler-1", { rssBytes: 2 }), guest]);
    stage.sink.flush();
    const samples = async () =>
      [...(await (await stage.app.request("/metrics")).text()).matchAll(/^bunraku_process_rss_bytes.*$/gm)].map(String);
    expect((await samples()).length).toBe(3);
    stage.sink.takeActors([actorView("sampler-0", { rssBytes: 1 }), actorView("sampler-1", { pid: null }), guest]);
    stage.sink.flush();
    expect(await samples()).toEqual([
      'bunraku_process_rss_bytes{run="run-1",actor="sampler-0"} 1',
      'bunraku_process_rss_bytes{run="run-1",actor="sampler-2"} 3',
    ]);
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
    stage.startRun();
    stage.run.metrics(1, { "train/success": 0.25 });
    stage.sink.flush();
    const answer = await stage.app.request("/api/stream?since=0.0.0");
    const reading = follow(answer, 2);
    expect(answer.headers.get("Content-Type")).toBe("text/event-stream");
    stage.run.metrics(2, { "train/success": 0.5 });
    stage.run.event("phase", "hello");
    const [first, second] = await reading;
    expect(first!.data).toMatchObject({ points: [["train/success", "learner", 1, 0.25]], events: [] });
    expect(second!.data).toMatchObject({
      points: [["train/success", "learner", 2, 0.5]],
      events: [{ text: "hello" }],
      run: { update: 2 },
    });
    expect(second!.id).toBe("2.1.0");
  });

  test("continues from the last message after a lost connection, without a gap or a repeat", async () => {
    stage.startRun();
    for (let step = 1; step <= 4; step++) stage.run.metrics(step, { "train/success": step / 4 });
    stage.sink.flush();
    const answer = await stage.app.request("/api/stream?since=0.0.0", { headers: { "Last-Event-ID": "2.0.0" } });
    const [message] = await follow(answer, 1);
    expect(message!.data["points"]).toEqual([
      ["train/success", "learner", 3, 0.75],
      ["train/success", "learner", 4, 1],
    ]);
  });

  test("sends all of a record that is shorter than the one which the reader knew", async () => {
    stage.startRun();
    stage.run.metrics(1, { "train/success": 0.25 });
    stage.sink.flush();
    const answer = await stage.app.request("/api/stream?since=500.0.0");
    const reading = follow(answer, 2);
    stage.run.metrics(2, { "train/success": 0.5 });
    expect((await reading).map(({ id, data }) => [id, data["points"]])).toEqual([
      ["1.0.0", [["train/success", "learner", 1, 0.25]]],
      ["2.0.0", [["train/success", "learner", 2, 0.5]]],
    ]);
  });

  test("is not opened by HEAD, so that as many as are allowed take no place of a reader", async () => {
    stage.startRun();
    for (let n = 0; n < 64; n++) {
      const answer = await stage.app.request("/api/stream", { method: "HEAD" });
      expect([answer.status, answer.headers.get("Content-Type")]).toEqual([200, "text/event-stream"]);
    }
    expect((await stage.app.request("/api/stream")).status).toBe(200);
  });

  test("has 64 readers at most; one that leaves makes room", async () => {
    stage.startRun();
    const readers = await Promise.all(Array.from({ length: 64 }, () => stage.app.request("/api/stream")));
    expect(readers.map(({ status }) => status)).toEqual(Array(64).fill(200));
    expect(await read(await stage.app.request("/api/stream"))).toMatchObject({ error: "64 of 64 streams are open" });
    await readers[0]!.body!.cancel();
    let next = await stage.app.request("/api/stream");
    // The stream learns of it at its next write.
    while (next.status !== 200) {
      stage.run.event("phase", "hello");
      stage.sink.flush();
      await new Promise(setImmediate);
      next = await stage.app.request("/api/stream");
    }
    expect(next.status).toBe(200);
  });

  test("ends when the page is closed down", async () => {
    stage.startRun();
    const answer = await stage.app.request("/api/stream");
    const reading = answer.text();
    stage.closing.abort();
    expect(await reading).toBe(": connected\n\n");
  });
});

describe("before a run", () => {
  test("the page says so, and the service is alive but not ready", async () => {
    expect(await (await stage.app.request("/")).text()).toContain("No run here yet");
    expect((await stage.app.request("/healthz")).status).toBe(200);
    const answer = await stage.app.request("/readyz");
    expect([answer.status, await answer.text()]).toEqual([503, "no run yet\n"]);
    expect((await stage.app.request("/api/run")).status).toBe(503);
  });
});

test("what is not there: a page for people, an error for programs", async () => {
  stage.startRun();
  const headers = { Accept: "text/html,application/xhtml+xml" };
  const answer = await stage.app.request("/episode<b>", { headers });
  const text = await answer.text();
  expect([answer.status, text.includes("There is no page /episode&lt;b&gt;"), text.includes('<a href="/">')]).toEqual([
    404,
    true,
    true,
  ]);
  for (const asked of [stage.app.request("/nothing"), stage.app.request("/api/nothing", { headers })]) {
    expect(await (await asked).json()).toEqual({ error: expect.stringContaining("see / and /api/openapi.json") });
  }
});

describe("assets", () => {
  test("are sent once and then confirmed", async () => {
    const first = await stage.app.request("/assets/style.css");
    const etag = first.headers.get("ETag")!;
    const again = await stage.app.request("/assets/style.css", { headers: { "If-None-Match": etag } });
    expect([again.status, await again.text()]).toEqual([304, ""]);
    expect((await stage.app.request("/assets/..%2fapp.tsx")).status).toBe(404);
  });

  test("in TypeScript arrive as JavaScript", async () => {
    const answer = await stage.app.request("/assets/text.ts");
    expect(answer.headers.get("Content-Type")).toBe("text/javascript; charset=utf-8");
    expect(await answer.text()).not.toContain(": string");
  });
});

test("an env error is listed with its cause and no reward", async () => {
  stage.startRun();
  const outcome = { status: "envError", detail: "SimpleSokoban#5 step: Error: boom" } as const;
  await stage.run.episodes([{ ticket: ticketOf(), sampler: "sampler/0", outcome, update: null, advantage: null }]);
  expect(await json("/api/episodes/1")).toMatchObject({ summary: { reward: null }, row: { outcome } });
});

test("the page is loaded from any working folder: how its elements are made is not the folder's to say", async () => {
  const app = join(import.meta.dir, "../../../actors/dashboard/app.tsx");
  const program = `await import(${JSON.stringify(app)})`;
  const child = Bun.spawn([process.execPath, "-e", program], { cwd: tmpdir(), stdio: ["ignore", "ignore", "pipe"] });
  expect([await child.exited, await child.stderr.text()]).toEqual([0, ""]);
});
