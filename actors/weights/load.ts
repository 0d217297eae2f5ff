/**
 * Loads published weights into a sampler's memory: maps the file if it is on this host, else downloads it.
 *
 * - No function returns weights before it has checked their length and their digest.
 */
import { statSync } from "node:fs";
import type { ModelConfig } from "../../model/policy/model-config.ts";
import { parameterCount } from "../../model/policy/parameters.ts";
import type { ActorContext } from "../actor.ts";
import { type Clock, pause, realClock } from "../clock.ts";
import { describeError, messageOf, WeightsError } from "../errors.ts";
import type { Messages } from "../protocol.ts";
import { bearer, noProxyHere } from "../transport/address.ts";
import type { ClientTls } from "../transport/tls.ts";
import { decodeHalf } from "./half.ts";
import { overHttp } from "./http.ts";
import { isSealed } from "./seal.ts";

type Announced = Messages["weights"];

interface Loaded {
  /** null if the bytes are not the published bytes. A write to the values changes only this copy. */
  readonly values: Float32Array | null;
  /** sha256 of the loaded bytes: computed, or proved by the seal (seal.ts). */
  readonly digest: string;
}

interface Reader {
  readonly model: ModelConfig;
  /** null on the learner's machine, where weights are in shared memory. */
  readonly guest: ActorContext["guest"];
  /** Bearer token for weights over HTTP. */
  readonly token: string;
}

/** Loads the weights that the learner has announced. @throws {WeightsError} in one line, if the bytes cannot be read */
export function announcedValues({ model, guest, token }: Reader, message: Announced): Promise<Loaded> {
  const where = guest === null ? message : overHttp(message, guest.weightsFrom);
  return loadWeights(where, parameterCount(model), token, downloading(guest?.tls));
}

/**
 * @param expectedLength  number of values of the policy
 * @param token           the bearer token for downloads
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
  // The sha256 takes seven times as long as the seal. Only wrong bytes need it, because the sampler reports their digest.
  const found = isSealed(bytes, seal) ? digest : new Bun.CryptoHasher("sha256").update(bytes).digest("hex");
  return { bytes, digest: found };
}

/** Maps the file privately: a write to the mapping never reaches the file or another process. */
function mapped(path: string, byteOffset: number, byteLength: number): Uint8Array<ArrayBuffer> {
  if (byteOffset % 4 !== 0) throw new RangeError(`values of 4 bytes cannot begin at byte ${byteOffset}`);
  // A read past the end of a mapped file would end the process.
  const { size } = statSync(path);
  if (size < byteOffset + byteLength) {
    throw new RangeError(
      `the file has ${size} bytes, but the learner published ${byteLength} bytes from byte ${byteOffset} on`,
    );
  }
  return (Bun.mmap(path, { shared: false }) as Uint8Array<ArrayBuffer>).subarray(byteOffset, byteOffset + byteLength);
}

export interface Download {
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
  readonly clock: Clock;
  /** The download ends a connection that brings no byte for this long. */
  readonly silenceMsMax: number;
  /** The download fails after this many connections in a row that bring no byte. */
  readonly failuresMax: number;
  /** The wait before the next connection is this time multiplied by the number of failures in a row. */
  readonly pauseMs: number;
}

/**
 * The settings of a download. A sampler downloads a version at most twice. While the network is cut, the two downloads together take longer
 * than `SILENCE_MS_MAX`, so the connection to the learner ends meanwhile. Then the sampler connects again and no longer needs this version.
 *
 * @param tls  for https:// addresses
 */
export const downloading = (tls: ClientTls = {}): Download => ({
  fetch: (url, init) => fetch(url, { ...init, ...noProxyHere(url), tls }),
  clock: realClock,
  silenceMsMax: 10_000,
  failuresMax: 8,
  pauseMs: 1000,
});

/** An HTTP answer that another attempt would not change. */
class Refused extends Error {}

/**
 * Downloads a version from a URL of the run and computes the hash meanwhile. After a lost connection the download continues at the next byte.
 *
 * @returns exactly `byteLength` bytes and their sha256 (hex).
 * @throws {Error} with the reason, if the download fails.
 */
export async function download(
  url: string,
  byteLength: number,
  token: string,
  how: Download,
): Promise<{ bytes: Uint8Array<ArrayBuffer>; digest: string }> {
  const bytes = new Uint8Array(byteLength);
  const hasher = new Bun.CryptoHasher("sha256");
  let got = 0;
  let failures = 0;
  while (got < byteLength) {
    const before = got;
    try {
      for await (const chunk of body(url, got, token, how)) {
        if (got + chunk.length > byteLength) throw new Refused(`more than the ${byteLength} published bytes came`);
        bytes.set(chunk, got);
        hasher.update(chunk);
        got += chunk.length;
      }
      if (got < byteLength) throw new Error(`the connection ended after ${got} of ${byteLength} bytes`);
    } catch (error) {
      if (error instanceof Refused) throw new Error(error.message);
      failures = got > before ? 0 : failures + 1;
      if (failures >= how.failuresMax) {
        const tries = failures === 1 ? "try" : "tries";
        throw new Error(`given up after ${failures} ${tries} without a byte; the last try: ${describeError(error)}`, {
          cause: error,
        });
      }
      await pause(how.clock, failures * how.pauseMs);
    }
  }
  return { bytes, digest: hasher.digest("hex") };
}

/** Yields the bytes from `begin` on, as they arrive. It accepts half precision only if `begin` is 0. */
async function* body(url: string, begin: number, token: string, how: Download): AsyncGenerator<Uint8Array> {
  const abort = new AbortController();
  let cancel = () => {};
  const watch = () => {
    cancel();
    const silent = new Error(`nothing came for ${how.silenceMsMax} ms`);
    cancel = how.clock.after(how.silenceMsMax, () => abort.abort(silent));
  };
  watch();
  try {
    const headers = {
      Authorization: bearer(token),
      ...(begin > 0 ? { Range: `bytes=${begin}-` } : { "Accept-Weights": "half" }),
    };
    // A redirect could send the token to another server.
    const response = await how.fetch(url, { headers, signal: abort.signal, redirect: "error" });
    const wanted = begin === 0 ? 200 : 206;
    if (response.status !== wanted) {
      const text = (await response.text()).trim().slice(0, 200);
      const answer = `the answer was ${response.status}${text === "" ? "" : `: ${text}`}`;
      if (response.status >= 500) throw new Error(answer);
      throw new Refused(answer);
    }
    const stream = watched(response.body ?? [], watch);
    const encoding = response.headers.get("content-weights");
    if (encoding === null) yield* stream;
    else if (encoding === "half") yield* decodeHalf(stream);
    else throw new Refused(`the bytes came in an unknown encoding, ${encoding}`);
  } finally {
    cancel();
    // Ends a connection that still brings bytes.
    abort.abort();
  }
}

async function* watched(stream: AsyncIterable<Uint8Array> | Iterable<never>, watch: () => void) {
  for await (const chunk of stream) {
    watch();
    yield chunk as Uint8Array;
  }
}
