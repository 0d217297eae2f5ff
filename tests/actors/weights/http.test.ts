/** Weights for other hosts: over the socket listener's port, with the run's token, whatever the connection does. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { realClock } from "../../../actors/clock.ts";
import { SocketTransport } from "../../../actors/transport/socket.ts";
import { SILENCE_MS_MAX } from "../../../actors/transport/socket-wire.ts";
import { overHttp, serveWeights } from "../../../actors/weights/http.ts";
import { type Download, downloading, loadWeights } from "../../../actors/weights/load.ts";
import { type Published, WeightsPublisher } from "../../../actors/weights/publisher.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";
import { FakeClock } from "../fake-clock.ts";
import { TOKEN } from "../transport/stage.ts";

const LENGTH = 300_000;
const values = Float32Array.from({ length: LENGTH }, (_, i) => Math.sin(i));
const bytes = new Uint8Array(values.buffer);

let folder: string;
let publisher: WeightsPublisher;
let published: Published;
const ends: (() => unknown)[] = [];
beforeEach(async () => {
  folder = temporaryFolder();
  publisher = new WeightsPublisher({ folder, run: "test" });
  published = await publisher.publish(4, values);
});
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
  publisher.close();
});

/** @returns where it listens */
function serve(answer: (request: Request) => Response | Promise<Response>): string {
  const server = Bun.serve({ port: 0, hostname: "127.0.0.1", idleTimeout: 0, fetch: answer });
  ends.push(() => server.stop(true));
  return server.url.href;
}
const impatient: Download = { ...downloading(), failuresMax: 2, pauseMs: 0 };
const load = (base: string, token = TOKEN, how: Download = impatient) =>
  loadWeights(overHttp(published, base), LENGTH, token, how);

describe("a sampler of another host", () => {
  test("gets the bytes over the port where actors meet, if it has the token", async () => {
    const limits = { clock: realClock, frameBytesMax: 1 << 16, queuedBytesMax: 1 << 20 };
    const weights = serveWeights(publisher);
    const nothing = { told() {}, asked: () => ({ type: "failed", code: "protocol", detail: "no" }) as const };
    const listener = await new SocketTransport({ ...limits, token: TOKEN }).listen("ws://127.0.0.1:0", nothing, {
      fetch: (request) => weights(request) ?? new Response("nothing here\n", { status: 404 }),
    });
    ends.push(() => listener.close());
    const base = listener.address.replace("ws:", "http:");
    expect(await load(base)).toEqual({ values, digest: published.digest });
    await expect(load(base, "another-token-of-16")).rejects.toThrow(
      `cannot load weights of version 4 from ${base}/weights/4: the answer was 401: wrong token`,
    );
  });

  test("learns that a version is gone", async () => {
    for (const version of [5, 6]) await publisher.publish(version, values);
    const weights = serveWeights(publisher);
    await expect(load(serve((request) => weights(request)!))).rejects.toThrow(
      "the answer was 404: version 4 is not kept",
    );
  });

  test("refuses other bytes", async () => {
    const other = bytes.slice();
    other[77]! ^= 1;
    const digest = new Bun.CryptoHasher("sha256").update(other).digest("hex");
    expect(await load(serve(() => new Response(other)))).toEqual({ values: null, digest });
  });

  test("refuses more bytes than were published", async () => {
    const more = Buffer.concat([bytes, new Uint8Array(1)]);
    await expect(load(serve(() => new Response(more)))).rejects.toThrow(
      `more than the ${bytes.length} published bytes came`,
    );
  });

  test("continues where a connection broke, as long as each attempt brings bytes", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 1, max: bytes.length }), { maxLength: 4 }), async (cuts) => {
        const begins: number[] = [];
        const left = [...cuts];
        const base = serve((request) => {
          const begin = Number(/^bytes=(\d+)-$/.exec(request.headers.get("range") ?? "")?.[1] ?? 0);
          begins.push(begin);
          const cut = left.shift();
          return new Response(bytes.subarray(begin, cut === undefined ? bytes.length : begin + cut), {
            status: begin === 0 ? 200 : 206,
          });
        });
        expect((await load(base)).digest).toBe(published.digest);
        const expected = [0];
        for (const cut of cuts)
          if (expected.at(-1)! + cut < bytes.length) expected.push(expected.at(-1)! + cut);
          else break;
        expect(begins).toEqual(expected);
      }),
      { numRuns: 25 },
    );
  });

  test("gives up when nothing comes any more, saying after how many tries", async () => {
    let asked = 0;
    const base = serve((request) => {
      asked++;
      if (request.headers.has("range")) return new Response("busy\n", { status: 503 });
      return new Response(bytes.subarray(0, 1000));
    });
    await expect(load(base)).rejects.toThrow(
      "given up after 2 tries without a byte; the last try: Error: the answer was 503: busy",
    );
    expect(asked).toBe(3);
  });

  test("does not wait for ever on a connection that is silent", async () => {
    const { promise: asked, resolve } = Promise.withResolvers<void>();
    const base = serve(() => {
      resolve();
      return new Promise<Response>(() => {});
    });
    const clock = new FakeClock();
    const loading = load(base, TOKEN, { ...impatient, clock, failuresMax: 1, silenceMsMax: 5000 });
    loading.catch(() => {});
    await asked;
    expect(clock.waitingMs).toEqual([5000]);
    clock.advance(5000);
    await expect(loading).rejects.toThrow(
      "given up after 1 try without a byte; the last try: Error: nothing came for 5000 ms",
    );
    expect(clock.waitingMs).toEqual([]);
  });

  test("tries, twice, for longer than a connection lives on a cut network", async () => {
    let waitedMs = 0;
    const how = downloading();
    const clock = {
      now: () => waitedMs,
      after(delayMs: number, run: () => void) {
        // What watches for silence: here every connection fails at once.
        if (delayMs === how.silenceMsMax) return () => {};
        waitedMs += delayMs;
        queueMicrotask(run);
        return () => {};
      },
    };
    const unreachable = () => Promise.reject(new Error("the network is unreachable"));
    await expect(load("http://10.0.0.1", TOKEN, { ...how, clock, fetch: unreachable })).rejects.toThrow("unreachable");
    // Silence is looked for four times in SILENCE_MS_MAX.
    expect(2 * waitedMs).toBeGreaterThan(1.25 * SILENCE_MS_MAX);
  });

  test("takes its token to no other server", async () => {
    let seen = 0;
    const other = serve(() => new Response(`${seen++}`));
    const base = serve(() => Response.redirect(other));
    await expect(load(base)).rejects.toThrow(/without a byte/);
    expect(seen).toBe(0);
  });
});

describe("the server of weights", () => {
  const ask = (path: string, init?: RequestInit) =>
    serveWeights(publisher)(new Request(`http://learner:7000${path}`, init));

  test("leaves other paths to others", () => {
    for (const path of ["/", "/weights", "/weights/", "/weights/x", "/weights/4/x", "/weights/-4", "/v/weights/4"]) {
      expect(ask(path)).toBeNull();
    }
  });

  test.each([
    ["bytes=0-0", 0, 1],
    ["bytes=8-15", 8, 16],
    [`bytes=${bytes.length - 4}-`, bytes.length - 4, bytes.length],
    ["bytes=-12", bytes.length - 12, bytes.length],
    [`bytes=4-${2 * bytes.length}`, 4, bytes.length],
    [`bytes=-${2 * bytes.length}`, 0, bytes.length],
  ])("gives the part that was asked for: %s", async (range, begin, end) => {
    const response = (await ask("/weights/4", { headers: { Range: range } }))!;
    expect(response.status).toBe(206);
    expect(response.headers.get("content-range")).toBe(`bytes ${begin}-${end - 1}/${bytes.length}`);
    expect(await response.bytes()).toEqual(bytes.slice(begin, end));
  });

  test.each([`bytes=${bytes.length}-`, "bytes=9-8", "bytes=-0", "bytes=-", "bytes=0-1,4-5", "items=0-1", "bytes=a-b"])(
    "refuses a part that it has not got: %s",
    async (range) => {
      const response = (await ask("/weights/4", { headers: { Range: range } }))!;
      expect([response.status, response.headers.get("content-range")]).toEqual([416, `bytes */${bytes.length}`]);
    },
  );

  test("says the digest in advance, and takes nothing in", async () => {
    expect((await ask("/weights/4", { method: "HEAD" }))!.headers.get("etag")).toBe(`"${published.digest}"`);
    expect((await ask("/weights/4", { method: "PUT", body: "x" }))!.status).toBe(405);
    expect((await ask("/weights/99"))!.status).toBe(404);
  });
});
