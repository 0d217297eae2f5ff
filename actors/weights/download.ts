/** Downloads a version from a URL of the run and hashes it on the way. After a broken connection the download continues where it broke. */
import { type Clock, pause, realClock } from "../clock.ts";
import { describeError } from "../errors.ts";
import { noProxyHere } from "../transport/address.ts";
import type { ClientTls } from "../transport/tls.ts";
import { bearer } from "../transport/token.ts";
import { decodeHalf } from "./half.ts";

export interface Download {
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
  readonly clock: Clock;
  /** A connection that brings no byte for this long is given up. */
  readonly silenceMsMax: number;
  /** The download fails after this many connections in a row that bring no byte. */
  readonly failuresMax: number;
  /** Wait before the next connection, times the failures in a row. */
  readonly pauseMs: number;
}

/**
 * A sampler tries twice. Together the tries outlast a cut network until the connection to the learner ends (`SILENCE_MS_MAX`): then
 * these weights are no longer due, and the sampler connects again.
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

/** An answer that a further try would not change. */
class Refused extends Error {}

/**
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
        throw new Error(`given up after ${failures} ${tries} without a byte; the last: ${describeError(error)}`, {
          cause: error,
        });
      }
      await pause(how.clock, failures * how.pauseMs);
    }
  }
  return { bytes, digest: hasher.digest("hex") };
}

/** The bytes from `begin` on, as they come. Only a whole version may come in half precision. */
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
    // A redirect could take the token to another server.
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
