/** Half precision gives back every published bit from half of the bytes, in whatever pieces the bytes arrive. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { decodeHalf, encodeHalf, roundToHalf } from "../../../actors/weights/half.ts";
import { overHttp, serveWeights } from "../../../actors/weights/http.ts";
import { downloading, loadWeights } from "../../../actors/weights/load.ts";
import { WeightsPublisher } from "../../../actors/weights/publisher.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

/** The bytes in chunks whose ends are no value's. */
async function* chunks(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

describe("half", () => {
  const all = Uint16Array.from({ length: 1 << 16 }, (_, i) => i);
  const values = Float32Array.from(new Float16Array(all.buffer)).map((value) => (Number.isNaN(value) ? 0 : value));
  const bytes = new Uint8Array(values.buffer);

  test("gives back every value that half precision holds, in half the bytes, however they arrive", async () => {
    const size = fc.integer({ min: 1, max: 5000 });
    await fc.assert(
      fc.asyncProperty(size, size, async (read, sent) => {
        const code = Buffer.concat(await Array.fromAsync(encodeHalf(chunks(bytes, read))));
        expect(code.length).toBe(bytes.length / 2);
        const decoded = Buffer.concat(await Array.fromAsync(decodeHalf(chunks(code, sent))));
        expect(Buffer.compare(decoded, bytes)).toBe(0);
      }),
      { numRuns: 20, examples: [[1001, 3]] },
    );
  });

  test("leaves out a value of which only one byte came", async () => {
    const code = Buffer.concat(await Array.fromAsync(encodeHalf(chunks(bytes.subarray(0, 12), 5))));
    const decoded = Buffer.concat(await Array.fromAsync(decodeHalf(chunks(code.subarray(0, 5), 2))));
    expect(Buffer.compare(decoded, bytes.subarray(0, 8))).toBe(0);
  });

  test("rounds to the nearest, and refuses what it cannot hold", () => {
    // 11 bits of mantissa: 1 + 2^-11 is half-way, and goes to the even neighbour.
    expect(roundToHalf(Float32Array.of(1 + 2 ** -10, 1 + 2 ** -11, -0.1))).toEqual(
      Float32Array.of(1 + 2 ** -10, 1, -0.0999755859375),
    );
    expect(() => roundToHalf(Float32Array.of(1, 70_000))).toThrow(
      new RangeError("weight 1 is 70000, and half precision ends at 65504; use sampler.precision full"),
    );
  });
});

describe("a sampler of another host", () => {
  const LENGTH = 100_000;
  const valuesOf = (version: number) => Float32Array.from({ length: LENGTH }, (_, i) => Math.sin(i) + version * 1e-5);
  const ends: (() => unknown)[] = [];
  let sent: (string | null)[];
  let cut: boolean;
  beforeEach(() => {
    [sent, cut] = [[], false];
  });
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });

  function host(half = false) {
    const publisher = new WeightsPublisher({ folder: temporaryFolder(), run: "test", half });
    const serve = serveWeights(publisher);
    const server = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      async fetch(request) {
        const answer = serve(request) ?? new Response("", { status: 404 });
        sent.push(answer.headers.get("content-weights"));
        if (!cut) return answer;
        cut = false;
        return new Response((await answer.bytes()).subarray(0, 5000), { headers: answer.headers });
      },
    });
    ends.push(
      () => server.stop(true),
      () => publisher.close(),
    );
    return { publisher, base: server.url.href };
  }
  const how = { ...downloading(), pauseMs: 0 };

  /** What a sampler of another host holds after it downloaded a version. */
  async function remote(publisher: WeightsPublisher, base: string) {
    const message = await publisher.publish(1, valuesOf(1));
    const loaded = await loadWeights(overHttp(message, base), LENGTH, "", how);
    expect(loaded.digest).toBe(message.digest);
    return loaded;
  }

  test("gets half precision in half the bytes, as samplers of the learner's own host have it", async () => {
    const { publisher, base } = host(true);
    const loaded = await remote(publisher, base);
    expect([loaded.values, sent]).toEqual([roundToHalf(valuesOf(1)), ["half"]]);
    expect(await loadWeights(await publisher.publish(2, valuesOf(1)), LENGTH)).toEqual(loaded);
  });

  test("continues with a range of the whole bytes after a cut", async () => {
    const { publisher, base } = host(true);
    cut = true;
    expect((await remote(publisher, base)).values).toEqual(roundToHalf(valuesOf(1)));
    expect(sent).toEqual(["half", null]);
  });

  test("gets the bytes as they are if they are not in half precision", async () => {
    const { publisher, base } = host();
    expect((await remote(publisher, base)).values).toEqual(valuesOf(1));
    expect(sent).toEqual([null]);
  });
});
