/** Encodings of weights give back the very bits, take fewer bytes where they should, and refuse what is none of theirs. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { downloading } from "../../../actors/weights/download.ts";
import { decode, encode, PIECE_BYTES, roundToHalf } from "../../../actors/weights/encoding.ts";
import {
  type Held,
  loadWeights,
  overHttp,
  serveWeights,
  WeightsError,
  WeightsPublisher,
} from "../../../actors/weights/publisher.ts";
import { removeTemporaryFolders, temporaryFolder } from "../../scripts/temporary.ts";

const readerOf = (bytes: Uint8Array) => (begin: number, end: number) => bytes.subarray(begin, end);

/** The stream in pieces of a size that fits nothing. */
async function* pieces(stream: AsyncIterable<Uint8Array>, size: number): AsyncGenerator<Uint8Array> {
  for await (const chunk of stream) for (let at = 0; at < chunk.length; at += size) yield chunk.subarray(at, at + size);
}

async function roundTrip(next: Uint8Array, base: Uint8Array | null, size = 1 << 20): Promise<Uint8Array> {
  const reader = base === null ? null : readerOf(base);
  const sent = pieces(encode(readerOf(next), reader, next.length), size);
  return Buffer.concat(await Array.fromAsync(decode(sent, reader, next.length)));
}

describe("delta", () => {
  test("gives back every bit, whatever the numbers are, and however the bytes arrive", async () => {
    const any = fc.uint32Array({ minLength: 1, maxLength: 200 });
    await fc.assert(
      fc.asyncProperty(any, fc.nat(), fc.integer({ min: 1, max: 50 }), async (words, seed, size) => {
        const next = new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
        const base = next.map((byte, i) => byte ^ ((seed * (i + 1)) >> 5));
        expect(Buffer.compare(await roundTrip(next, base, size), next)).toBe(0);
      }),
    );
  });

  test("goes over several pieces, and is much shorter where little has changed", async () => {
    const count = PIECE_BYTES / 4 + 1000;
    const before = Float32Array.from({ length: count }, (_, i) => Math.sin(i));
    // A step of the size that AdamW makes at a learning rate of 1e-5.
    const after = before.map((value, i) => value + 1e-5 * Math.cos(i));
    const [base, next] = [new Uint8Array(before.buffer), new Uint8Array(after.buffer)];
    expect(Buffer.compare(await roundTrip(next, base), next)).toBe(0);
    const sent = await Array.fromAsync(encode(readerOf(next), readerOf(base), next.length));
    const share = sent.reduce((sum, { length }) => sum + length, 0) / next.length;
    console.log(`delta after a step of 1e-5: ${(100 * share).toFixed(0)} % of the bytes`);
    expect(share).toBeLessThan(0.6);
  });
});

describe("half", () => {
  test("gives back every value that half precision holds, in half the bytes", async () => {
    const all = Uint16Array.from({ length: 1 << 16 }, (_, i) => i);
    const values = Float32Array.from(new Float16Array(all.buffer)).map((value) => (Number.isNaN(value) ? 0 : value));
    const bytes = new Uint8Array(values.buffer);
    expect(Buffer.compare(await roundTrip(bytes, null), bytes)).toBe(0);
    const sent = await Array.fromAsync(encode(readerOf(bytes), null, bytes.length));
    expect(sent.reduce((sum, { length }) => sum + length, 0)).toBe(bytes.length / 2 + 4);
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

test.each([
  ["a piece cannot take 0 bytes", [0, 0, 0, 0]],
  ["a piece cannot take 4294967295 bytes", [255, 255, 255, 255]],
  ["the connection ended in the middle of a piece", [9, 0, 0, 0, 1]],
  ["the connection ended in the middle of a piece", [9, 0]],
  ["a piece of 8 bytes came as 4", [2, 0, 0, 0, 1, 2]],
  ["more than was published came", [4, 0, 0, 0, 1, 2, 3, 4, 4, 0, 0, 0, 1, 2, 3, 4]],
])("what is no encoding is refused: %s", async (message, bytes) => {
  async function* stream() {
    yield Uint8Array.from(bytes);
  }
  await expect(Array.fromAsync(decode(stream(), null, 8))).rejects.toThrow(message);
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
    removeTemporaryFolders();
  });

  function host(half = false) {
    const publisher = new WeightsPublisher({ folder: temporaryFolder(), run: "test", keep: 2, half });
    const serve = serveWeights(publisher);
    const server = Bun.serve({
      hostname: "127.0.0.1",
      port: 0,
      async fetch(request) {
        const answer = (await serve(request)) ?? new Response("", { status: 404 });
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

  async function hold(publisher: WeightsPublisher, base: string, version: number, held: Held | null): Promise<Held> {
    const message = await publisher.publish(version, valuesOf(version));
    const { values, digest } = await loadWeights(overHttp(message, base), LENGTH, "", how, held);
    expect(digest).toBe(message.digest);
    return { version, values, digest };
  }

  test("is told what differs from what it holds, if the learner still has that; else everything", async () => {
    const { publisher, base } = host();
    const first = await hold(publisher, base, 1, null);
    const second = await hold(publisher, base, 2, first);
    await hold(publisher, base, 3, first);
    await hold(publisher, base, 4, { ...second, digest: "0".repeat(64), version: 3 });
    expect(second.values).toEqual(valuesOf(2));
    expect(sent).toEqual([null, "delta", null, null]);
  });

  test("goes on without the encoding after a cut", async () => {
    const { publisher, base } = host();
    const first = await hold(publisher, base, 1, null);
    cut = true;
    expect((await hold(publisher, base, 2, first)).values).toEqual(valuesOf(2));
    expect(sent.slice(1)).toEqual(["delta", "delta"]);
  });

  test("refuses them if what it holds is not what it says", async () => {
    const { publisher, base } = host();
    const first = await hold(publisher, base, 1, null);
    const changed = { ...first, values: first.values.map((value, i) => (i === 7 ? value + 1 : value)) };
    await expect(hold(publisher, base, 2, changed)).rejects.toBeInstanceOf(WeightsError);
  });

  test("gets half precision in half the bytes, as samplers of the learner's own host have it", async () => {
    const { publisher, base } = host(true);
    const remote = await hold(publisher, base, 1, null);
    expect([remote.values, sent]).toEqual([roundToHalf(valuesOf(1)), ["half"]]);
    const local = await loadWeights(await publisher.publish(2, valuesOf(1)), LENGTH);
    expect(local).toEqual({ values: remote.values, digest: remote.digest });
  });
});
