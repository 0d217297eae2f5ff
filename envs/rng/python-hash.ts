/**
 * CPython's `hash(str)` with PYTHONHASHSEED=0: SipHash-1-3 with a zero key. RAGEN reseeds failed boards with
 * abs(hash(str(seed))) mod 2^32; without PYTHONHASHSEED that differs between processes.
 *
 * Source: Aumasson and Bernstein, "SipHash" (2012); CPython 3.11 and later, Python/pyhash.c.
 */

const MASK = 0xffffffffffffffffn;

/** The uint32 seed tried after `seed` failed. */
export function nextSeed(seed: number): number {
  const hash = BigInt.asIntN(64, sipHash13(new TextEncoder().encode(String(seed))));
  return Number((hash < 0n ? -hash : hash) & 0xffffffffn);
}

function sipHash13(bytes: Uint8Array): bigint {
  let v0 = 0x736f6d6570736575n;
  let v1 = 0x646f72616e646f6dn;
  let v2 = 0x6c7967656e657261n;
  let v3 = 0x7465646279746573n;
  const round = () => {
    v0 = (v0 + v1) & MASK;
    v1 = rotate(v1, 13n) ^ v0;
    v2 = (v2 + v3) & MASK;
    v3 = rotate(v3, 16n) ^ v2;
    v0 = (rotate(v0, 32n) + v3) & MASK;
    v2 = (v2 + v1) & MASK;
    v3 = rotate(v3, 21n) ^ v0;
    v1 = rotate(v1, 17n) ^ v2;
    v2 = rotate(v2, 32n);
  };
  const absorb = (word: bigint) => {
    v3 ^= word;
    round();
    v0 ^= word;
  };
  const whole = bytes.length - (bytes.length % 8);
  for (let at = 0; at < whole; at += 8) absorb(littleEndian(bytes.subarray(at, at + 8)));
  absorb(littleEndian(bytes.subarray(whole)) | (BigInt(bytes.length & 0xff) << 56n));
  v2 ^= 0xffn;
  for (let i = 0; i < 3; i++) round();
  return v0 ^ v1 ^ v2 ^ v3;
}

function rotate(value: bigint, bits: bigint): bigint {
  return ((value << bits) | (value >> (64n - bits))) & MASK;
}

function littleEndian(bytes: Uint8Array): bigint {
  return bytes.reduceRight((value, byte) => (value << 8n) | BigInt(byte), 0n);
}
