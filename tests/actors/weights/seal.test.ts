/** The seal is GMAC, as a slow reference of NIST SP 800-38D computes it, and notices any flipped bit. */
import { expect, test } from "bun:test";
import { createCipheriv } from "node:crypto";
import fc from "fast-check";
import { isSealed, Sealer } from "../../../actors/weights/seal.ts";

const KEY = "feffe9928665731c6d6a8f9467308308";

function sealOf(bytes: Uint8Array, key?: string) {
  const sealer = new Sealer(key);
  sealer.update(bytes);
  return sealer.seal();
}

/** Product in GF(2^128), bit by bit: SP 800-38D, algorithm 1. */
function times(x: bigint, y: bigint): bigint {
  let [z, v] = [0n, y];
  for (let bit = 127n; bit >= 0n; bit--) {
    if ((x >> bit) & 1n) z ^= v;
    v = v & 1n ? (v >> 1n) ^ (0xe1n << 120n) : v >> 1n;
  }
  return z;
}

/** GHASH of the bytes and their length, under the block cipher's zero, masked by its first counter. */
function gmac(bytes: Uint8Array): string {
  const aes = (block: Uint8Array) => {
    const cipher = createCipheriv("aes-128-ecb", Buffer.from(KEY, "hex"), null).setAutoPadding(false);
    return BigInt(`0x${cipher.update(block).toString("hex")}`);
  };
  const subkey = aes(new Uint8Array(16));
  const padded = new Uint8Array(Math.ceil(bytes.length / 16) * 16 + 16);
  padded.set(bytes);
  new DataView(padded.buffer).setBigUint64(padded.length - 16, BigInt(8 * bytes.length));
  let state = 0n;
  for (let at = 0; at < padded.length; at += 16) {
    state = times(state ^ BigInt(`0x${Buffer.from(padded.subarray(at, at + 16)).toString("hex")}`), subkey);
  }
  const counter = new Uint8Array(16);
  counter[15] = 1;
  return (state ^ aes(counter)).toString(16).padStart(32, "0");
}

test.each([0, 1, 16, 17, 1000])("a seal of %i bytes is their GMAC", (length) => {
  const bytes = Uint8Array.from({ length }, (_, i) => 7 * i);
  expect(sealOf(bytes, KEY)).toEqual({ key: KEY, tag: gmac(bytes) });
});

test("does not depend on the pieces in which the bytes come", () => {
  const bytes = new Uint8Array((2 << 23) + 5).map((_, i) => i >> 3);
  const sealer = new Sealer(KEY);
  for (let at = 0; at < bytes.length; at += 1_000_003) sealer.update(bytes.subarray(at, at + 1_000_003));
  expect(sealer.seal()).toEqual(sealOf(bytes, KEY));
});

test("has a new key each time", () => {
  expect(sealOf(new Uint8Array(1)).key).not.toBe(sealOf(new Uint8Array(1)).key);
});

test("holds for the bytes that were sealed, and not with any bit flipped", () => {
  const any = fc.uint8Array({ minLength: 1, maxLength: 300 });
  fc.assert(
    fc.property(any, fc.nat(), (bytes, at) => {
      const seal = sealOf(bytes);
      expect(isSealed(bytes, seal)).toBe(true);
      const bit = at % (8 * bytes.length);
      bytes[bit >> 3]! ^= 1 << (bit & 7);
      expect(isSealed(bytes, seal)).toBe(false);
    }),
  );
});
