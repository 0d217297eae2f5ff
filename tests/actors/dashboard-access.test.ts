/** Who may read the run's page, what it refuses, and how it takes and frees its port. */
import { beforeEach, describe, expect, test } from "bun:test";
import { realClock } from "../../actors/clock.ts";
import { serveDashboard } from "../../actors/dashboard/serve.ts";
import { setStage } from "./dashboard-stage.ts";

const TOKEN = "a-long-enough-secret";
const stage = setStage();

describe("safety", () => {
  test("every answer forbids foreign and inline code, sniffing and framing", async () => {
    stage.startRun();
    for (const path of ["/", "/metrics", "/api/run", "/assets/live.js", "/nothing"]) {
      const { headers } = await stage.app.request(path);
      expect(headers.get("Content-Security-Policy")).toContain("default-src 'none'; script-src 'self'");
      expect(headers.get("Content-Security-Policy")).not.toContain("unsafe");
      expect(headers.get("X-Content-Type-Options")).toBe("nosniff");
    }
  });

  test("the page has no inline script, style or handler, and nothing from elsewhere", async () => {
    stage.startRun();
    const page = await (await stage.app.request("/")).text();
    expect(page).toStartWith("<!doctype html>");
    expect(page).not.toMatch(/<script(?![^>]*\ssrc="\/assets\/)|<style|\sstyle=|\son[a-z]+=|https?:/);
  });

  test("names and texts from outside are escaped", async () => {
    stage.store.startSession({ name: "<script>alert(1)</script>", env: '"><img src=x>', updates: 1, seed: 1 });
    stage.run.event("engine", "<b onmouseover=alert(2)>");
    stage.sink.flush();
    const page = await (await stage.app.request("/")).text();
    expect(page).not.toContain("<script>alert");
    expect(page).not.toContain("<img src=x");
    expect(page).not.toContain("<b onmouseover");
    expect(page).toContain("&lt;script&gt;alert(1)&lt;/script&gt;");
  });

  test.each(["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])("%s changes nothing: it is refused", async (method) => {
    stage.startRun();
    const answer = await stage.app.request("/api/run", { method });
    expect([answer.status, answer.headers.get("Allow")]).toEqual([405, "GET, HEAD"]);
  });

  test("without a token, only loopback names are answered, so that no foreign page can borrow the browser", async () => {
    stage.startRun();
    for (const host of ["localhost:7001", "127.0.0.1:7001", "[::1]:7001"]) {
      expect((await stage.app.request(`http://${host}/api/run`)).status).toBe(200);
    }
    expect((await stage.app.request("http://evil.example:7001/api/run")).status).toBe(403);
  });
});

describe("with a token", () => {
  beforeEach(() => {
    stage.startRun();
    stage.app = stage.appWith(TOKEN);
  });

  test("nothing but the probes is answered without it", async () => {
    for (const path of ["/", "/metrics", "/api/run", "/api/episodes", "/api/stream", "/assets/live.js"]) {
      expect([path, (await stage.app.request(path)).status]).toEqual([path, 401]);
    }
    expect((await stage.app.request("/healthz")).status).toBe(200);
    expect((await stage.app.request("/readyz")).status).toBe(200);
  });

  test("programs send it in a header", async () => {
    const get = (token: string) => stage.app.request("/metrics", { headers: { Authorization: `Bearer ${token}` } });
    expect((await get(TOKEN)).status).toBe(200);
    expect((await get("wrong")).status).toBe(401);
    expect((await get("")).status).toBe(401);
  });

  test("people open the page with it once; then a cookie, which is not the token, carries it", async () => {
    const answer = await stage.app.request(`http://host.example:7001/?token=${TOKEN}&x=1`);
    expect([answer.status, answer.headers.get("Location")]).toEqual([303, "/?x=1"]);
    const cookie = answer.headers.get("Set-Cookie")!;
    expect(cookie).toContain("HttpOnly");
    expect(cookie).toContain("SameSite=Strict");
    expect(cookie).not.toContain(TOKEN);
    const page = await stage.app.request("http://host.example:7001/", { headers: { Cookie: cookie.split(";")[0]! } });
    expect(page.status).toBe(200);
    expect((await stage.app.request("/?token=wrong")).status).toBe(401);
    expect((await stage.app.request("/", { headers: { Cookie: `bunraku_80=${TOKEN}` } })).status).toBe(401);
  });
});

describe("serveDashboard", () => {
  const serve = (host: string, port: number, token: string | null = null) =>
    serveDashboard({ store: stage.store, host, port, token, clock: realClock });

  test("answers on a free port, and frees it", async () => {
    stage.startRun();
    const served = await serve("127.0.0.1", 0);
    expect(await (await fetch(`${served.url}healthz`)).text()).toBe("ok\n");
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
    stage.startRun();
    const served = await serve("127.0.0.1", 0);
    const stream = await fetch(`${served.url}api/stream`);
    await served.stop();
    // The reader sees the end, clean or cut, and does not hang.
    await stream.text().catch(() => "");
  });
});
