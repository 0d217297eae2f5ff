/**
 * Published weights in a sampler's memory: mapped from the file if it is on this host, downloaded otherwise.
 *
 * - Weights are returned only after their length and digest were checked.
 */
import { statSync } from "node:fs";
import type { ModelConfig } from "../../model/policy/model-config.ts";
import { parameterCount } from "../../model/policy/parameters.ts";
import type { ActorContext } from "../actor.ts";
import { messageOf } from "../errors.ts";
import type { Messages } from "../protocol.ts";
import { type Download, download, downloading } from "./download.ts";
import { WeightsError } from "./error.ts";
import { overHttp } from "./http.ts";
import { isSealed } from "./seal.ts";

type Announced = Messages["weights"];

interface Loaded {
  /** null if these are not the published bytes. Writing to the values changes only this copy. */
  readonly values: Float32Array | null;
  /** sha256 of the bytes found, computed or proved by the seal. */
  readonly digest: string;
}

interface Reader {
  readonly model: ModelConfig;
  /** null on the learner's machine, where weights are in shared memory. */
  readonly guest: ActorContext["guest"];
  /** Bearer token for weights over HTTP. */
  readonly token: string;
}

/** Loads the weights that the learner has announced. @throws {WeightsError} as `loadWeights` */
export function announcedValues({ model, guest, token }: Reader, message: Announced): Promise<Loaded> {
  const where = guest === null ? message : overHttp(message, guest.weightsFrom);
  return loadWeights(where, parameterCount(model), token, downloading(guest?.tls));
}

/**
 * @param expectedLength  number of values of the policy
 * @param token           of the run; for downloads
 * @throws {WeightsError} in one line, if the bytes cannot be read
 */
export async function loadWeights(
  message: Announced,
  expectedLength: number,
  token = "",
  how: Download = downloading(),
): Promise<Loaded> {
  const { version, byteLength, location } = message;
  if (location.kind === "server")
    throw new WeightsError(`cannot load ${location.name}: its weights stay at the server of engine tinker`);
  const what = `weights of version ${version} from ${location.kind === "shared" ? location.path : location.url}`;
  const refuse = (text: string): never => {
    throw new WeightsError(`cannot load ${what}: ${text}`);
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
  if (digest !== message.digest) return { values: null, digest };
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
