/**
 * Serves published weights over HTTP to samplers on other hosts. The caller, a socket listener or the gate, has already checked a token.
 */
import { encodeHalf } from "./half.ts";
import type { Published, WeightsPublisher } from "./publisher.ts";

const PATH = /^\/weights\/(\d{1,15})(\/file)?$/;

/** A version's file on this host, and the data for the HTTP answer. */
export interface ServedFile {
  readonly path: string;
  readonly digest: string;
  readonly byteLength: number;
  /** True if half precision holds every value exactly. */
  readonly half: boolean;
}

/** The message `weights` for a sampler on another host. @param base  the start of the URL, such as "http://10.0.0.5:7000" */
export const overHttp = (published: Published, base: string): Published => ({
  ...published,
  location: { kind: "http", url: new URL(`/weights/${published.version}`, base).href },
});

/**
 * Answers `GET /weights/VERSION` with all bytes or one range of them. Answers `GET /weights/VERSION/file` with a `ServedFile`: the gate on
 * this host asks for it and serves the bytes itself.
 *
 * @returns a function for `ListenOptions.fetch`; it returns null if the request is not about weights.
 */
export function serveWeights(publisher: Pick<WeightsPublisher, "file">): (request: Request) => Response | null {
  return (request) => {
    const [, version, where] = PATH.exec(new URL(request.url).pathname) ?? [];
    if (version === undefined) return null;
    const file = publisher.file(Number(version));
    if (file === undefined) return new Response(`version ${version} is not kept\n`, { status: 404 });
    const { digest, byteLength } = file.message;
    const served: ServedFile = { path: file.path, digest, byteLength, half: file.half };
    return where === undefined ? serveFile(served, request) : Response.json(served);
  };
}

/** The bytes that a request asks for. A request for all bytes gets half precision if `half` is true and the request accepts it. */
export function serveFile({ path, digest, byteLength, half }: ServedFile, request: Request): Response {
  if (request.method !== "GET" && request.method !== "HEAD") {
    return new Response("weights can only be read\n", { status: 405, headers: { Allow: "GET, HEAD" } });
  }
  const file = Bun.file(path);
  const headers = { "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", ETag: `"${digest}"` };
  const range = request.headers.get("range");
  if (range === null) {
    if (!half || request.headers.get("accept-weights") !== "half") return new Response(file, { headers });
    return new Response(encodeHalf(file.stream()), { headers: { ...headers, "Content-Weights": "half" } });
  }
  const part = parseRange(range, byteLength);
  if (part === null) {
    return new Response(`no range of ${byteLength} bytes: ${range.slice(0, 64)}\n`, {
      status: 416,
      headers: { ...headers, "Content-Range": `bytes */${byteLength}` },
    });
  }
  const { begin, end } = part;
  return new Response(file.slice(begin, end), {
    status: 206,
    headers: { ...headers, "Content-Range": `bytes ${begin}-${end - 1}/${byteLength}` },
  });
}

/**
 * One range of bytes, as RFC 9110 section 14.1.2 writes it: `bytes=0-99`, `bytes=100-` or `bytes=-100`.
 *
 * @returns the range's first byte, and the byte after its last; null if the text is no such range, or the range holds no byte.
 */
function parseRange(range: string, size: number): { begin: number; end: number } | null {
  const [, first, last] = /^bytes=(\d*)-(\d*)$/.exec(range) ?? [];
  if (first === undefined || last === undefined || (first === "" && last === "")) return null;
  const begin = first === "" ? Math.max(0, size - Number(last)) : Number(first);
  const end = first === "" || last === "" ? size : Math.min(size, Number(last) + 1);
  return begin < end ? { begin, end } : null;
}
