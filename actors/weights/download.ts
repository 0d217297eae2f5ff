/**
 * Bytes from a URL of the run, hashed as they come. A connection that breaks is made again from where it broke.
 */
import { type Clock, realClock } from "../clock.ts";
import { describeError } from "../errors.ts";
import type { ClientTls } from "../transport/tls.ts";
import { bearer } from "../transport/token.ts";
import { decode } from "./encoding.ts";

export interface Download {
  readonly fetch: (url: string, init: RequestInit) => Promise<Response>;
  readonly clock: Clock;
  /** A connection on which no byte comes for so long is given up. */
  readonly silenceMsMax: number;
  /** So many connections in a row that bring no byte are the end. */
  readonly failuresMax: number;
  /** Before the next try, times the failures in a row. */
  readonly pauseMs: number;
}

/** @param tls  for https:// addresses */
export const downloading = (tls: ClientTls = {}): Download => ({
  fetch: (url, init) => fetch(url, { ...init, tls }),
  clock: realClock,
  silenceMsMax: 10_000,
  failuresMax: 4,
  pauseMs: 200,
});

/** A version that the other end may describe its bytes by. */
export interface Held {
  readonly version: number;
  readonly digest: string;
  readonly values: Float32Array;
}

/** An answer that will not get better by asking again. */
class Refused extends Error {}

/**
 * @param held  a version of as many bytes that we have; null to be told everything
 * @returns exactly `byteLength` bytes and their sha256 (hex).
 * @throws {Error} saying why they cannot be had.
 */
export async function download(
  url: string,
  byteLength: number,
  token: string,
  how: Download,
  held: Held | null = null,
): Promise<{ bytes: Uint8Array<ArrayBuffer>; digest: string }> {
  const bytes = new Uint8Array(byteLength);
  const hasher = new Bun.CryptoHasher("sha256");
  let got = 0;
  let failures = 0;
  while (got < byteLength) {
    const before = got;
    try {
      for await (const chunk of body({ url, begin: got, byteLength, token, how, held })) {
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
        throw new Error(
          `given up after ${failures} ${failures === 1 ? "try" : "tries"} without a byte; the last: ${describeError(error)}`,
          {
            cause: error,
          },
        );
      }
      await new Promise<void>((resume) => how.clock.after(failures * how.pauseMs, resume));
    }
  }
  return { bytes, digest: hasher.digest("hex") };
}

interface Wanted {
  readonly url: string;
  readonly begin: number;
  readonly byteLength: number;
  readonly token: string;
  readonly how: Download;
  readonly held: Held | null;
}

/** The bytes from `begin` on, as they come. Only a whole version may come in another encoding. */
async function* body({ url, begin, byteLength, token, how, held }: Wanted): AsyncGenerator<Uint8Array> {
  const abort = new AbortController();
  let cancel = () => {};
  const watch = () => {
    cancel();
    const silent = new Error(`nothing came for ${how.silenceMsMax} ms`);
    cancel = how.clock.after(how.silenceMsMax, () => abort.abort(silent));
  };
  watch();
  try {
    const usable = held !== null && 4 * held.values.length === byteLength;
    const accept = usable ? `half, delta=${held.version}:${held.digest}` : "half";
    const headers = {
      Authorization: bearer(token),
      ...(begin > 0 ? { Range: `bytes=${begin}-` } : { "Accept-Weights": accept }),
    };
    // A redirect could take the token to somebody else.
    const response = await how.fetch(url, { headers, signal: abort.signal, redirect: "error" });
    const wanted = begin === 0 ? 200 : 206;
    if (response.status !== wanted) {
      const text = (await response.text()).trim().slice(0, 200);
      const answer = `the answer was ${response.status}${text === "" ? "" : `: ${text}`}`;
      if (response.status >= 500) throw new Error(answer);
      throw new Refused(answer);
    }
    yield* decoded(heard(response.body ?? [], watch), response.headers.get("content-weights"), byteLength, held);
  } finally {
    cancel();
    // Ends a connection that still brings bytes nobody wants.
    abort.abort();
  }
}

async function* heard(stream: AsyncIterable<Uint8Array> | Iterable<never>, watch: () => void) {
  for await (const chunk of stream) {
    watch();
    yield chunk as Uint8Array;
  }
}

function decoded(
  stream: AsyncIterable<Uint8Array>,
  encoding: string | null,
  byteLength: number,
  held: Held | null,
): AsyncIterable<Uint8Array> {
  if (encoding === null) return stream;
  if (encoding === "half") return decode(stream, null, byteLength);
  if (encoding !== "delta" || held === null)
    throw new Refused(`bytes came in an encoding that was not asked for, ${encoding}`);
  const base = new Uint8Array(held.values.buffer, held.values.byteOffset, held.values.byteLength);
  return decode(stream, (begin, end) => base.subarray(begin, end), byteLength);
}
