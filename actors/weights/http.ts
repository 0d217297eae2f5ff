/**
 * Published weights over plain HTTP, for samplers of other hosts. Who may ask is decided before: the socket listener has
 * compared the run's token when this is called.
 */

import { encode, type Reader } from "./encoding.ts";
import type { Published, WeightsPublisher } from "./publisher.ts";

const PATH = /^\/weights\/(\d{1,15})(\/file)?$/;

/** What of a version's message its bytes must be served with, and where they are on this host. */
export interface ServedFile {
  readonly path: string;
  readonly digest: string;
  readonly byteLength: number;
  /** Every value fits half precision. */
  readonly half: boolean;
}

/** Another version that is kept. */
export type FindFile = (version: number) => ServedFile | null | Promise<ServedFile | null>;

/** The same version, to be told to a sampler of another host. @param base  such as "http://10.0.0.5:7000" */
export const overHttp = (published: Published, base: string): Published => ({
  ...published,
  location: { kind: "http", url: new URL(`/weights/${published.version}`, base).href },
});

/**
 * Answers `GET /weights/VERSION`, whole or from one range of bytes; and `GET /weights/VERSION/file` with where the bytes are, for who
 * serves them in our place on this host.
 *
 * @returns a function for `ListenOptions.fetch`; null where the request is not about weights.
 */
export function serveWeights(
  publisher: Pick<WeightsPublisher, "file">,
): (request: Request) => Response | Promise<Response> | null {
  const find = (version: number): ServedFile | null => {
    const file = publisher.file(version);
    if (file === undefined) return null;
    const { digest, byteLength } = file.message;
    return { path: file.path, digest, byteLength, half: file.half };
  };
  return (request) => {
    const [, version, where] = PATH.exec(new URL(request.url).pathname) ?? [];
    if (version === undefined) return null;
    const file = find(Number(version));
    if (file === null) return new Response(`version ${version} is not kept any more\n`, { status: 404 });
    return where === undefined ? serveFile(file, request, find) : Response.json(file);
  };
}

/**
 * The bytes that a request wants, in the shortest encoding that it takes. Unencoded, the system sends them from the file; either way
 * they go as fast as the other end reads.
 */
export async function serveFile(file: ServedFile, request: Request, find: FindFile): Promise<Response> {
  const { path, digest, byteLength } = file;
  if (request.method !== "GET" && request.method !== "HEAD") {
    return new Response("weights are only read\n", { status: 405, headers: { Allow: "GET, HEAD" } });
  }
  const headers = { "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", ETag: `"${digest}"` };
  const range = request.headers.get("range");
  if (range === null) {
    const accept = request.headers.get("accept-weights") ?? "";
    const base = await baseOf(accept, byteLength, find);
    if (base === null && !(file.half && /\bhalf\b/.test(accept))) return new Response(Bun.file(path), { headers });
    const code = encode(readerOf(path), base === null ? null : readerOf(base.path), byteLength);
    return new Response(code, { headers: { ...headers, "Content-Weights": base === null ? "half" : "delta" } });
  }
  const part = parseRange(range, byteLength);
  if (part === null) {
    return new Response(`no range of ${byteLength} bytes: ${range.slice(0, 64)}\n`, {
      status: 416,
      headers: { ...headers, "Content-Range": `bytes */${byteLength}` },
    });
  }
  const { begin, end } = part;
  return new Response(Bun.file(path).slice(begin, end), {
    status: 206,
    headers: { ...headers, "Content-Range": `bytes ${begin}-${end - 1}/${byteLength}` },
  });
}

/** The version that both ends hold, if it is the very same. */
async function baseOf(accept: string, byteLength: number, find: FindFile): Promise<ServedFile | null> {
  const [, version, digest] = /\bdelta=(\d{1,15}):([0-9a-f]{64})\b/.exec(accept) ?? [];
  if (version === undefined) return null;
  const base = await find(Number(version));
  return base?.digest === digest && base?.byteLength === byteLength ? base : null;
}

const readerOf =
  (path: string): Reader =>
  (begin, end) =>
    Bun.file(path).slice(begin, end).bytes();

/**
 * One range of bytes, as RFC 9110 section 14.1.2 writes it: `bytes=0-99`, `bytes=100-` or `bytes=-100`.
 *
 * @returns where it begins and ends (not included); null if it is something else, or holds no byte.
 */
function parseRange(range: string, size: number): { begin: number; end: number } | null {
  const [, first, last] = /^bytes=(\d*)-(\d*)$/.exec(range) ?? [];
  if (first === undefined || last === undefined || (first === "" && last === "")) return null;
  const begin = first === "" ? Math.max(0, size - Number(last)) : Number(first);
  const end = first === "" || last === "" ? size : Math.min(size, Number(last) + 1);
  return begin < end ? { begin, end } : null;
}
