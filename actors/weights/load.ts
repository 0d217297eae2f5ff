/**
 * Published weights in a sampler's memory: mapped from the file if it is on this host, downloaded otherwise.
 *
 * - Weights are returned only after their length and digest were checked.
 */
import { statSync } from "node:fs";
import { messageOf } from "../errors.ts";
import type { Messages } from "../protocol.ts";
import { type Download, download, downloading } from "./download.ts";
import { WeightsError } from "./error.ts";
import { isSealed } from "./seal.ts";

type Announced = Messages["weights"];

/**
 * @param expectedLength  number of values of the policy
 * @param token           of the run; for downloads
 * @returns the values, and the sha256 of these bytes, computed or proved by the seal. Writing to the values changes only this copy
 * @throws {WeightsError} in one line, if the bytes cannot be read, or are not the published ones
 */
export async function loadWeights(
  message: Announced,
  expectedLength: number,
  token = "",
  how: Download = downloading(),
): Promise<{ values: Float32Array; digest: string }> {
  const { version, byteLength, location } = message;
  if (location.kind === "server")
    throw new WeightsError(`cannot load ${location.name}: its weights stay at the server of engine tinker`, null);
  const what = `weights of version ${version} from ${location.kind === "shared" ? location.path : location.url}`;
  const refuse = (text: string, digest: string | null = null): never => {
    throw new WeightsError(`cannot load ${what}: ${text}`, digest);
  };
  if (byteLength !== 4 * expectedLength) {
    return refuse(`they are ${byteLength} bytes, and this policy has ${expectedLength} values of 4 bytes`);
  }
  let bytes: Uint8Array<ArrayBuffer>;
  let digest: string;
  try {
    ({ bytes, digest } =
      location.kind === "shared" ? shared(message, location) : await download(location.url, byteLength, token, how));
  } catch (error) {
    return refuse(messageOf(error));
  }
  if (digest !== message.digest) {
    return refuse(`their sha256 is ${digest}, and ${message.digest} was published`, digest);
  }
  return { values: new Float32Array(bytes.buffer, bytes.byteOffset, expectedLength), digest };
}

type Shared = Extract<Announced["location"], { kind: "shared" }>;

function shared({ byteLength, digest }: Announced, { path, byteOffset, seal }: Shared) {
  const bytes = mapped(path, byteOffset, byteLength);
  // The sha256 takes seven times as long as the seal, and is needed only to name wrong bytes.
  const found = isSealed(bytes, seal) ? digest : new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
  return { bytes, digest: found };
}

/** A private mapping: a write to it never reaches the file or another process. */
function mapped(path: string, byteOffset: number, byteLength: number): Uint8Array<ArrayBuffer> {
  if (byteOffset % 4 !== 0) throw new RangeError(`values of 4 bytes cannot begin at byte ${byteOffset}`);
  // Reading a mapping past the end of its file would end the process.
  const { size } = statSync(path);
  if (size < byteOffset + byteLength) {
    throw new RangeError(`the file has ${size} bytes, and ${byteLength} from byte ${byteOffset} on were published`);
  }
  return (Bun.mmap(path, { shared: false }) as Uint8Array<ArrayBuffer>).subarray(byteOffset, byteOffset + byteLength);
}
