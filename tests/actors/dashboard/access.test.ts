/** Who may read the run's page, which requests the page refuses, and how the page takes and frees its port. */
import { beforeEach, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { realClock } from "../../../actors/clock.ts";
import { serveDashboard } from "../../../actors/dashboard/serve.ts";
import { Store } from "../../../actors/metrics-sink/store.ts";
import { type ActorView, STARTING } from "../../../actors/protocol.ts";
import { root } from "../../scripts/command.ts";
import { actorView } from "../metrics-sink/fake-run.ts";
import { setStage } from "./stage.ts";

interface Probe {
  readonly exec: { readonly command: string[] };
}
/** Of a file for Kubernetes, what is looked at here. */
interface Part {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly template?: {
      readonly spec: {
        readonly containers: readonly Record<"startupProbe" | "livenessProbe" | "readinessProbe", Probe>[];
      };
    };
  };
}

const TOKEN = "a-long-enough-secret";
const stage = setStage();

describe("safety", () => {
  test("every answer forbids foreign and inline code, sniffing and framing", async () => {
    stage.startRun();
    for (const path of ["/", "/metrics", "/api/run", "/assets/live.ts", "/nothing"]) {
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
    for (const host of ["evil.example", "127.evil.example", "127.0.0.1.evil.example", "localhost.evil.example"]) {
      expect((await stage.app.request(`http://${host}:7001/api/run`)).status).toBe(403);
    }
  });

  test("a page of another site or port reads neither the API nor the list of runs", async () => {
    stage.startRun();
    for (const path of ["/api/run", "/metrics", "/runs"]) {
      const status = async (headers: Record<string, string>) =>
        (await stage.app.request(`http://127.0.0.1:7001${path}`, { headers })).status;
      for (const site of ["cross-site", "same-site"]) expect(await status({ "Sec-Fetch-Site": site })).toBe(403);
      for (const site of ["same-origin", "none"]) expect(await status({ "Sec-Fetch-Site": site })).toBe(200);
      expect(await status({ Origin: "http://127.0.0.1:7002" })).toBe(403);
      expect(await status({ Origin: "http://127.0.0.1:7001" })).toBe(200);
    }
  });
});

describe("with a token", () => {
  beforeEach(() => {
    stage.startRun();
    stage.app = stage.appWith(TOKEN);
  });

  test("nothing but the probes is answered without it", async () => {
    for (const path of ["/", "/metrics", "/api/run", "/api/episodes", "/api/stream", "/assets/live.ts"]) {
      expect([path, (await stage.app.request(path)).status]).toEqual([path, 401]);
    }
    expect((await stage.app.request("/healthz")).status).toBe(200);
    expect((await stage.app.request("/readyz")).status).toBe(503);
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
    const headers = { Cookie: cookie.split(";")[0]! };
    expect((await stage.app.request("http://host.example:7001/", { headers })).status).toBe(200);
    // The address with the token, opened again: the page keeps what is in its address.
    const again = await stage.app.request(`http://host.example:7001/?token=${TOKEN}&x=1`, { headers });
    expect([again.status, again.headers.get("Location")]).toEqual([303, "/?x=1"]);
    expect((await stage.app.request("/?token=wrong")).status).toBe(401);
    // Two runs of one host have two cookies, and the way on stays on this host.
    expect(cookie).toStartWith("bunraku_7001=");
    const other = await stage.app.request(`http://host.example:7002//evil.example/?token=${TOKEN}`);
    expect(other.headers.get("Set-Cookie")).toStartWith("bunraku_7002=");
    expect(other.headers.get("Location")).toBe("/evil.example/");
    expect((await stage.app.request("/", { headers: { Cookie: `bunraku_80=${TOKEN}` } })).status).toBe(401);
  });
});

describe("probes", () => {
  const probe = async (path: string) => {
    const answer = await stage.app.request(path);
    return [answer.status, (await answer.text()).trim()];
  };
  const told = (...actors: ActorView[]) => {
    stage.sink.takeActors(actors);
    stage.sink.flush();
  };
  const learner = actorView("learner");
  const sampler = actorView("sampler-0");

  test("a run is ready while a learner and a sampler are there", async () => {
    stage.startRun();
    expect(await probe("/readyz")).toEqual([503, "no actors yet"]);
    told({ ...learner, doing: STARTING }, sampler);
    expect(await probe("/readyz")).toEqual([503, "no learner yet"]);
    told(learner, { ...sampler, doing: STARTING });
    expect(await probe("/readyz")).toEqual([503, "no sampler yet"]);
    told(learner, { ...sampler, pid: null });
    expect(await probe("/readyz")).toEqual([503, "no sampler yet"]);
    told(learner, { ...sampler, pid: null, guest: true });
    expect(await probe("/readyz")).toEqual([200, "ok"]);
    told(learner, sampler);
    expect(await probe("/readyz")).toEqual([200, "ok"]);
    told({ ...learner, pid: null }, sampler);
    expect(await probe("/readyz")).toEqual([503, "no learner yet"]);
  });

  test("is not ready without a report of the actors, and with one of an earlier session", async () => {
    stage.startRun();
    told(learner, sampler);
    stage.now += 10_000;
    expect(await probe("/readyz")).toEqual([200, "ok"]);
    stage.now += 1000;
    expect(await probe("/readyz")).toEqual([503, "no report from the actors for 11 s"]);
    expect(await probe("/healthz")).toEqual([200, "ok"]);
    told(learner, sampler);
    stage.now += 1000;
    stage.startRun();
    expect(await probe("/readyz")).toEqual([503, "no actors yet"]);
  });

  test("is not ready while its record cannot be written, and says why", async () => {
    stage.store.close();
    stage.store = new Store({ path: ":memory:", durability: "normal", wallClock: () => stage.now, bytesMax: 400_000 });
    stage.app = stage.appWith(null);
    stage.startRun();
    const rest = { points: [], episodes: [], actors: [learner, sampler] };
    const event = { actor: "learner", level: "info", kind: "phase" } as const;
    const write = (text: string) => () => stage.store.write({ ...rest, events: [{ ...event, text }] });
    expect(write("x".repeat(1_000_000))).toThrow("database or disk is full");
    expect(await probe("/readyz")).toEqual([
      503,
      "cannot write run.sqlite: database or disk is full; the run waits until the folder of the run can be written",
    ]);
    write("there is room")();
    expect(await probe("/readyz")).toEqual([200, "ok"]);
  });

  test("those of docs/deploy/kubernetes.yaml ask for what is served, and fail when it says no", async () => {
    const parts = Bun.YAML.parse(readFileSync(join(root, "docs/deploy/kubernetes.yaml"), "utf8")) as Part[];
    const [container] = parts.find(({ metadata }) => metadata.name === "bunraku-learner")!.spec.template!.spec
      .containers;
    const place = { host: "127.0.0.1", port: 0, token: TOKEN };
    const served = await serveDashboard({ shown: stage.context, ...place, clock: realClock });
    const exitCode = ({ exec: { command } }: Probe) =>
      Bun.spawn(
        command.map((word) => word.replace("http://127.0.0.1:7001/", served.url)),
        { stderr: "ignore" },
      ).exited;
    stage.startRun();
    const { startupProbe, livenessProbe, readinessProbe } = container!;
    expect(startupProbe.exec).toEqual(livenessProbe.exec);
    expect([await exitCode(livenessProbe), await exitCode(readinessProbe)]).toEqual([0, 1]);
    told(learner, sampler);
    expect(await exitCode(readinessProbe)).toBe(0);
    await served.stop();
    expect(await exitCode(livenessProbe)).toBe(1);
  });
});

describe("serveDashboard", () => {
  const serve = (host: string, port: number, token: string | null = null) =>
    serveDashboard({ shown: stage.context, host, port, token, clock: realClock });

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
          "Stop the other program, or choose --port N (--port 0 for any free port).",
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
