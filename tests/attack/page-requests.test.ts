/** Requests that would make the page's server large, slow or unsafe are refused with one short line. */
import { afterEach, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { realClock } from "../../actors/clock.ts";
import { READS_WAITING_MAX } from "../../actors/dashboard/run-routes.tsx";
import { type Served, serveDashboard } from "../../actors/dashboard/serve.ts";
import { partName } from "../../actors/metrics/metrics.ts";
import { setStage } from "../actors/dashboard/stage.ts";

const TOKEN = "a-long-enough-secret";
const stage = setStage();
const get = (path: string, headers: Record<string, string> = {}) => stage.app.request(path, { headers });
const errorOf = async (answer: Response) => ((await answer.json()) as { error: string }).error;

let served: Served | null = null;
afterEach(async () => {
  await served?.stop();
  served = null;
});
const serve = async () => {
  served = await serveDashboard({ shown: stage.context, host: "127.0.0.1", port: 0, token: null, clock: realClock });
  return served.url;
};

/** Sends `lines` as they are; `fetch` would correct them. @returns status line and body */
async function raw(url: string, ...lines: string[]): Promise<[string, string]> {
  const text = await new Promise<string>((resolve, reject) => {
    let received = "";
    const socket = connect(Number(new URL(url).port), "127.0.0.1", () =>
      socket.write(`${[...lines, "Connection: close"].join("\r\n")}\r\n\r\n`),
    );
    socket.on("data", (bytes) => {
      received += bytes;
    });
    socket.on("close", () => resolve(received));
    socket.on("error", reject);
  });
  return [text.split("\r\n")[0]!, text.split("\r\n\r\n")[1] ?? ""];
}

describe("an answer to a bad query is short", () => {
  test.each([
    ["names", `/api/metrics?names=${Array.from({ length: 5000 }, (_, i) => `n${i}`)}`],
    ["one long name", `/api/metrics?names=${"x".repeat(15_000)}`],
    ["many parameters", `/api/episodes?${Array.from({ length: 2000 }, (_, i) => `p${i}=1`).join("&")}`],
    ["names of another run", `/api/runs/a/metrics?names=${"a,".repeat(5000)}`],
  ])("%s", async (_, path) => {
    stage.startRun();
    const answer = await get(path);
    const error = await errorOf(answer);
    expect([answer.status, error.length < 1100, error.includes("\n")]).toEqual([400, true, false]);
  });

  test("a metric that is named twice is answered once", async () => {
    stage.startRun();
    stage.run.metrics(1, { "train/success": 0.5 });
    stage.sink.flush();
    const answer = await get(`/api/metrics?names=${Array.from({ length: 2000 }, () => "train/success")}`);
    expect(((await answer.json()) as { series: unknown[] }).series).toHaveLength(1);
  });

  test("more names than there are metrics are refused by their number", async () => {
    stage.startRun();
    const names = Array.from({ length: 900 }, (_, i) => partName("validate/success", "env", `${i}`));
    const answer = await get(`/api/metrics?names=${encodeURIComponent(names.join(","))}`);
    expect([answer.status, await errorOf(answer)]).toEqual([400, expect.stringContaining("900 names; at most 500")]);
  });
});

test("a text with a NUL is refused", async () => {
  stage.startRun();
  for (const path of ["/api/episodes?text=%00", "/api/episodes?text=a%00b", "/api/episodes?env=%00"]) {
    const answer = await get(path);
    expect([path, answer.status]).toEqual([path, 400]);
    expect(await errorOf(answer)).not.toContain("\n");
  }
  for (const text of ["%21%21", '"', "%F0%9F%98%80", "a*", "%ED%A0%80", "NEAR(a b)"]) {
    expect([text, (await get(`/api/episodes?text=${text}`)).status]).toEqual([text, 200]);
  }
});

describe("reads", () => {
  const SLOW_MS = 20;
  /** A store whose searches block the process. @returns times at which they began and ended */
  function slowSearches(): { began: number[]; ended: number[] } {
    const times = { began: [] as number[], ended: [] as number[] };
    const { episodes } = stage.store;
    stage.store.episodes = (...all) => {
      times.began.push(performance.now());
      Bun.sleepSync(SLOW_MS);
      times.ended.push(performance.now());
      return episodes.apply(stage.store, all);
    };
    return times;
  }

  test("beyond the bound on waiting ones are refused at once", async () => {
    stage.startRun();
    const times = slowSearches();
    const answers = await Promise.all(Array.from({ length: 200 }, () => get("/api/episodes?text=box")));
    const refused = answers.filter(({ status }) => status === 503);
    expect(times.began.length).toBeLessThanOrEqual(READS_WAITING_MAX + 1);
    expect(refused.length).toBeGreaterThanOrEqual(200 - READS_WAITING_MAX - 1);
    expect(refused[0]!.headers.get("Retry-After")).toBe("2");
    expect(await errorOf(refused[0]!)).toBe(`${READS_WAITING_MAX} requests wait already; try again in 2 s`);
    expect((await get("/api/episodes")).status).toBe(200);
  });

  test("leave the process as much time as they take", async () => {
    stage.startRun();
    const times = slowSearches();
    await Promise.all(Array.from({ length: 5 }, () => get("/api/episodes?text=box")));
    expect(times.began).toHaveLength(5);
    for (const [i, began] of times.began.slice(1).entries()) {
      expect(began - times.ended[i]!).toBeGreaterThanOrEqual(SLOW_MS - 2);
    }
  });

  test("whose reader has gone are not made", async () => {
    stage.startRun();
    const times = slowSearches();
    const gone = new AbortController();
    const answers = Array.from({ length: 10 }, () => stage.app.request("/api/episodes", { signal: gone.signal }));
    gone.abort();
    await Promise.all(answers);
    expect(times.began.length).toBeLessThanOrEqual(1);
  });
});

describe("requests that another site makes", () => {
  const CROSS = { "Sec-Fetch-Site": "cross-site" };

  test.each(["/api/run", "/api/episodes?text=box", "/api/stream", "/api/openapi.json", "/metrics"])(
    "%s is refused",
    async (path) => {
      stage.startRun();
      for (const headers of [
        CROSS,
        { "Sec-Fetch-Site": "same-site" },
        { Origin: "http://evil.example" },
        { Origin: "null" },
      ]) {
        const answer = await get(path, headers);
        await answer.body?.cancel();
        expect([headers, answer.status]).toEqual([headers, 403]);
      }
    },
  );

  test("those of the page itself, of the address bar and of programs are answered", async () => {
    stage.startRun();
    for (const headers of [
      {},
      { "Sec-Fetch-Site": "same-origin" },
      { "Sec-Fetch-Site": "none" },
      { Origin: "http://localhost" },
    ]) {
      expect((await get("/api/run", headers)).status).toBe(200);
    }
    // A link on another site may open the page.
    expect((await get("/", CROSS)).status).toBe(200);
  });
});

test("a Host that is no host name is refused with one line", async () => {
  stage.startRun();
  const url = await serve();
  for (const host of ["a b", "[::1", "127.0.0.1:99999999", "<x>", "a\\b", "%zz"]) {
    const [status, body] = await raw(url, "GET /api/run HTTP/1.1", `Host: ${host}`);
    expect([host, status]).toEqual([host, expect.stringMatching(/ (400|403) /)]);
    expect(body.trim()).not.toContain("\n");
  }
});

test("the redirect that drops the token stays on this host", async () => {
  stage.startRun();
  const app = stage.appWith(TOKEN);
  for (const path of ["//evil.example/", "///evil.example", "/\\evil.example/", "/%2F/evil.example"]) {
    const answer = await app.fetch(new Request(`http://127.0.0.1:7001${path}?token=${TOKEN}`));
    const target = new URL(answer.headers.get("Location")!, "http://127.0.0.1:7001/");
    expect([path, answer.status, target.origin]).toEqual([path, 303, "http://127.0.0.1:7001"]);
  }
});
