/**
 * A thousand transfers that are cut, resumed and changed on the way, over HTTP and through shared memory: each gives exactly the bytes
 * that were published, or a refusal. Never a mix, and never an acknowledgement of other bytes.
 */
import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { WeightsError } from "../../../actors/errors.ts";
import { type Download, downloading, loadWeights } from "../../../actors/weights/load.ts";
import { type Published, WeightsPublisher } from "../../../actors/weights/publisher.ts";
import { sequence } from "../../../model/rng.ts";
import { figure } from "../../figure.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

const ROW = "weights cut off or changed on their way";
const LENGTH = 5000;
const TRANSFERS = 500;
const uniform = sequence(7, "transfers");
const random = (below: number) => Math.floor(uniform() * below);
const valuesOf = (version: number) => Float32Array.from({ length: LENGTH }, (_, i) => Math.sin(version * LENGTH + i));
const sha256 = (bytes: Uint8Array) => new Bun.CryptoHasher("sha256").update(bytes).digest("hex");

/** @returns "loaded" or "refused"; anything else fails the test. */
async function outcome(message: Published, expected: Float32Array, how?: Download): Promise<"loaded" | "refused"> {
  try {
    const { values, digest } = await loadWeights(message, LENGTH, "", how);
    if (values === null) {
      expect(digest).not.toBe(message.digest);
      return "refused";
    }
    expect(
      Buffer.compare(Buffer.from(values.buffer, values.byteOffset, 4 * LENGTH), Buffer.from(expected.buffer)),
    ).toBe(0);
    expect(digest).toBe(message.digest);
    return "loaded";
  } catch (error) {
    expect(error).toBeInstanceOf(WeightsError);
    return "refused";
  }
}

test(`${TRANSFERS} downloads, cut anywhere, some from a server that has other bytes meanwhile`, async () => {
  const seen = { loaded: 0, refused: 0 };
  for (let transfer = 0; transfer < TRANSFERS; transfer++) {
    const [right, other] = [valuesOf(transfer), valuesOf(transfer + 1)];
    const bytes = new Uint8Array(right.buffer);
    let cuts = random(4);
    // From some answer on, the server is another learner's, which calls other bytes the same version.
    const changesAfter = random(3) === 0 ? random(3) : Number.POSITIVE_INFINITY;
    let answers = 0;
    const fetch = async (_: string, { headers }: RequestInit) => {
      const source = answers++ < changesAfter ? bytes : new Uint8Array(other.buffer);
      const begin = Number(/bytes=(\d+)-/.exec((headers as Record<string, string>)["Range"] ?? "")?.[1] ?? 0);
      const end = cuts-- > 0 ? begin + random(bytes.length - begin) : bytes.length;
      return new Response(source.slice(begin, end), { status: begin === 0 ? 200 : 206 });
    };
    const location = { kind: "http", url: "http://127.0.0.1/weights/1" } as const;
    const message: Published = {
      type: "weights",
      version: transfer,
      digest: sha256(bytes),
      byteLength: bytes.length,
      location,
    };
    seen[await outcome(message, right, { ...downloading(), fetch, failuresMax: 3, pauseMs: 0 })]++;
  }
  figure(ROW, { downloads: TRANSFERS, exact: seen.loaded, refused: seen.refused, mixed: 0 });
  expect(seen.loaded).toBeGreaterThan(TRANSFERS / 2);
  expect(seen.refused).toBeGreaterThan(20);
});

test(`${TRANSFERS} versions in shared memory, some changed after they were published`, async () => {
  const publisher = new WeightsPublisher({ folder: temporaryFolder(), run: "test" });
  const seen = { loaded: 0, refused: 0 };
  for (let version = 0; version < TRANSFERS; version++) {
    const message = await publisher.publish(version, valuesOf(version));
    const path = message.location.kind === "shared" ? message.location.path : "";
    const fault = random(4);
    if (fault === 0) {
      // A part of the version before, as a write that was cut short would leave it.
      const bytes = readFileSync(path);
      const begin = random(bytes.length);
      bytes.set(new Uint8Array(valuesOf(version - 1).buffer).subarray(begin), begin);
      writeFileSync(path, bytes);
    }
    if (fault === 1) writeFileSync(path, readFileSync(path).subarray(0, random(4 * LENGTH)));
    const expected = fault < 2 ? "refused" : "loaded";
    const found = await outcome(message, valuesOf(version));
    expect(found).toBe(expected);
    seen[found]++;
  }
  publisher.close();
  figure(ROW, { "versions in shared memory": TRANSFERS, exact: seen.loaded, refused: seen.refused, mixed: 0 });
  expect(seen.refused).toBeGreaterThan(TRANSFERS / 4);
});
