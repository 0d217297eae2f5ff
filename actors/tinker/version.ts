/** A policy version that a server keeps: samplers get its name in place of bytes. */
import type { Messages } from "../protocol.ts";

/** The message for samplers. Its digest is that of the name, because the server never shows the bytes. */
export const servedVersion = (version: number, name: string): Messages["weights"] => ({
  type: "weights",
  version,
  digest: digestOf(name),
  byteLength: 0,
  location: { kind: "server", name },
});

/** sha256 in hex. */
export const digestOf = (name: string): string => new Bun.CryptoHasher("sha256").update(name).digest("hex");
