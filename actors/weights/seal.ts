/**
 * A quick check that bytes are the published ones: GMAC, a 128-bit tag under a key that is new for each version. The publisher
 * computes the tag in the same pass as the sha256, and every sampler of the host computes it again from the bytes it mapped.
 *
 * - An equal tag counts as an equal sha256: other bytes have the same tag with a probability of about their count / 2^132.
 * - The samplers of a host compute the tag instead of the sha256, because it takes a seventh of the time (docs/log/2026-11.md).
 * - The seal finds accidents, not attacks: a reader of the message has the key and can forge a tag.
 *
 * Source: NIST SP 800-38D, GMAC (GCM with no plaintext; the bytes are the additional data).
 */
import { type CipherGCM, createCipheriv, randomBytes } from "node:crypto";

export interface Seal {
  /** 16 bytes in hex, used for these bytes only. */
  readonly key: string;
  /** 16 bytes in hex. */
  readonly tag: string;
}

/** Constant, because a key is used once. */
const NONCE = new Uint8Array(12);

/** Additional data of one call. */
const CHUNK_BYTES = 2 ** 23;

export class Sealer {
  readonly #key: string;
  readonly #mac: CipherGCM;

  constructor(key = randomBytes(16).toString("hex")) {
    this.#key = key;
    this.#mac = createCipheriv("aes-128-gcm", Buffer.from(key, "hex"), NONCE);
  }

  update(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; at += CHUNK_BYTES) this.#mac.setAAD(bytes.subarray(at, at + CHUNK_BYTES));
  }

  /** No bytes can be added after this call. */
  seal(): Seal {
    this.#mac.final();
    return { key: this.#key, tag: this.#mac.getAuthTag().toString("hex") };
  }
}

/** True if these are the bytes that were sealed. */
export function isSealed(bytes: Uint8Array, { key, tag }: Seal): boolean {
  const sealer = new Sealer(key);
  sealer.update(bytes);
  return sealer.seal().tag === tag;
}
