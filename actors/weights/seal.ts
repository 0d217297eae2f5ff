/**
 * A quick check that bytes are the published bytes: GMAC, a 128-bit tag under a key that is new for each version. The publisher
 * computes the tag in the same pass as the sha256. Every sampler on the host computes the tag again from the bytes that it mapped.
 *
 * - An equal tag counts as an equal sha256: the probability that other data of n bytes has the same tag is about n / 2^132.
 * - The samplers of a host compute the tag instead of the sha256, because the tag takes a seventh of the time (docs/log/2026-11.md).
 * - The seal finds accidents, not attacks: a reader of the message has the key and can forge a tag.
 *
 * Source: NIST SP 800-38D, GMAC (GCM with no plaintext; the bytes are the additional data).
 */
import { type CipherGCM, createCipheriv, randomBytes } from "node:crypto";

export interface Seal {
  /** 16 bytes in hex. The key is new for each version. */
  readonly key: string;
  /** 16 bytes in hex. */
  readonly tag: string;
}

/** The nonce may be constant, because each key seals one version only. */
const NONCE = new Uint8Array(12);

/** Maximum number of bytes that one call of `setAAD` gets. */
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

  /** Ends the computation: no `update` may follow. */
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
