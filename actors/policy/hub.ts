/**
 * Downloads models of the Hugging Face Hub (hf:OWNER/NAME or hf:OWNER/NAME@REVISION) into the cache that the Hub's own tools use.
 *
 *   CACHE/models--OWNER--NAME/refs/REVISION           commit of the revision at the last download
 *                            /blobs/ETAG              bytes of a file; ETAG.incomplete during the download
 *                            /snapshots/COMMIT/FILE   link to the blob
 *
 * - If the cache has the complete model, this file sends no request.
 * - A broken download continues where it broke. A file gets its name only after its size matches the size that the server gives. If the
 *   server also gives a hash, the hash must match too.
 * - Two commands may download one file at once. They write the same bytes to the same places, and the first command to end renames the file.
 * - Only the Hub gets the token; servers to which the Hub redirects do not.
 *
 * Source: huggingface_hub, file_download.py.
 */
import { constants, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { open, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import { INDEX, TOKENIZER_FILES, weightFiles } from "./pretrained.ts";

export interface HubName {
  /** "Qwen/Qwen2.5-0.5B-Instruct" */
  readonly repository: string;
  /** A branch, a tag or a commit. */
  readonly revision: string;
}

export interface Hub {
  /** "https://huggingface.co" */
  readonly endpoint: string;
  /** Folder of the cache. */
  readonly cache: string;
  readonly token: string | null;
  readonly fetch: (url: string, options: RequestInit) => Promise<Response>;
  /** The download calls this after every chunk of a file. */
  readonly progress: (file: string, bytes: number, bytesTotal: number) => void;
}

/** Why a model cannot be downloaded, in one line. */
class HubError extends Error {
  override readonly name = "HubError";
}

const PREFIX = "hf:";
export const isHubName = (path: string): boolean => path.startsWith(PREFIX);

/** @throws {HubError} if the text is not the name of a model. */
export function parseHubName(text: string): HubName {
  const [, repository, revision = "main"] = /^hf:([\w-][\w.-]*\/[\w-][\w.-]*)(?:@([\w-][\w./-]*))?$/.exec(text) ?? [];
  if (repository !== undefined && !`${repository}/${revision}`.includes("..")) return { repository, revision };
  throw new HubError(`${text} is not the name of a model on the Hub; write hf:OWNER/NAME or hf:OWNER/NAME@REVISION`);
}

/** Cache folder of the Hub's own tools. @param home  the user's home folder */
export function hubCache(env: Readonly<Record<string, string | undefined>>, home: string): string {
  const { HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME } = env;
  return HF_HUB_CACHE ?? join(HF_HOME ?? join(XDG_CACHE_HOME ?? join(home, ".cache"), "huggingface"), "hub");
}

/** Maximum number of attempts at one file. Each attempt continues where the previous attempt broke. */
const ATTEMPTS = 4;
const REDIRECTS_MAX = 5;
const COMMIT = /^[0-9a-f]{40}$/;

/**
 * The folder of a model. Downloads the files that the cache lacks.
 *
 * @param needs  "weights" means every file; "tokenizer" means every file except the weights
 * @throws {HubError} that names the file and the reason
 */
export async function hubModel(
  { repository, revision }: HubName,
  hub: Hub,
  needs: "weights" | "tokenizer" = "weights",
): Promise<string> {
  const folder = join(hub.cache, `models--${repository.replace("/", "--")}`);
  const ref = join(folder, "refs", ...revision.split("/"));
  const known = COMMIT.test(revision) ? revision : existsSync(ref) ? readFileSync(ref, "utf8").trim() : null;
  if (known !== null && isWhole(join(folder, "snapshots", known), needs)) return join(folder, "snapshots", known);

  const { commit, files } = await listFiles(repository, revision, hub);
  const snapshot = join(folder, "snapshots", commit);
  const get = (file: string) => download(repository, commit, file, folder, hub);
  // config.json comes last of the small files. Until it is there, `isWhole` does not take the snapshot for complete.
  for (const file of [INDEX, ...TOKENIZER_FILES, "config.json"].filter((file) => files.has(file))) await get(file);
  for (const file of needs === "weights" ? weightFiles(snapshot) : []) {
    if (!files.has(file)) throw new HubError(`${PREFIX}${repository} has no file ${file}; only safetensors are read`);
    await get(file);
  }
  if (!COMMIT.test(revision)) {
    mkdirSync(dirname(ref), { recursive: true });
    await writeFile(ref, commit);
  }
  return snapshot;
}

/** Whether the snapshot has all files. A link to a missing file counts as missing. */
function isWhole(snapshot: string, needs: "weights" | "tokenizer"): boolean {
  const has = (file: string) => existsSync(join(snapshot, file));
  if (!["config.json", "tokenizer.json", "tokenizer_config.json"].every(has)) return false;
  return needs === "tokenizer" || weightFiles(snapshot).every(has);
}

const Listing = z.looseObject({
  sha: z.string().regex(COMMIT),
  siblings: z.array(z.looseObject({ rfilename: z.string() })),
});

async function listFiles(repository: string, revision: string, hub: Hub) {
  const url = `${hub.endpoint}/api/models/${repository}/revision/${encodeURIComponent(revision)}`;
  const answer = await ask("GET", url, hub);
  if (!answer.ok) throw new HubError(`cannot get ${PREFIX}${repository}@${revision}: ${refusal(answer, hub)}`);
  const listing = Listing.safeParse(await answer.json().catch(() => null));
  if (!listing.success) throw new HubError(`${url} did not answer with a list of files`);
  const { sha, siblings } = listing.data;
  return { commit: sha, files: new Set(siblings.map(({ rfilename }) => rfilename)) };
}

function refusal({ status }: Response, { token, endpoint }: Hub): string {
  if (status === 404) return `${endpoint} has no such model or revision (404)`;
  if (status !== 401 && status !== 403) return `${endpoint} answered ${status}`;
  const advice =
    token === null
      ? "set HF_TOKEN"
      : "HF_TOKEN has no access to it; accept the model's license on its page, or use another token";
  return `${endpoint} refuses access (${status}); ${advice}`;
}

async function download(repository: string, commit: string, file: string, folder: string, hub: Hub): Promise<void> {
  const link = join(folder, "snapshots", commit, file);
  if (existsSync(link)) return;
  const url = `${hub.endpoint}/${repository}/resolve/${commit}/${file}`;
  const head = await ask("HEAD", url, hub);
  if (!head.ok && (head.status < 300 || head.status > 399))
    throw new HubError(`cannot get ${file} of ${PREFIX}${repository}: ${refusal(head, hub)}`);
  const header = (...names: string[]) => names.map((name) => head.headers.get(name)).find((value) => value !== null);
  const etag = (header("x-linked-etag", "etag") ?? "").replace(/^W\//, "").replaceAll('"', "");
  const size = Number(header("x-linked-size", "content-length") ?? Number.NaN);
  // The etag becomes a file name in the cache, so it must not contain a path.
  if (!/^[\w-]{1,128}$/.test(etag) || !Number.isSafeInteger(size))
    throw new HubError(`${url} has no usable etag and size: found "${etag}" and ${size}`);
  const blob = join(folder, "blobs", etag);
  mkdirSync(dirname(blob), { recursive: true });
  if (!existsSync(blob)) await fill(`${blob}.incomplete`, blob, { url, file, etag, size }, hub);
  mkdirSync(dirname(link), { recursive: true });
  rmSync(link, { force: true });
  await symlink(join("..", "..", "blobs", etag), link).catch((error) => {
    if (!existsSync(link)) throw error;
  });
}

interface RemoteFile {
  readonly url: string;
  readonly file: string;
  readonly etag: string;
  readonly size: number;
}

/** Downloads the missing bytes of a file, checks the file, and renames it. */
async function fill(part: string, blob: string, remote: RemoteFile, hub: Hub): Promise<void> {
  const { file, etag, size } = remote;
  let reason = "";
  const isShort = () => lengthOf(part) < size || !existsSync(part);
  for (let attempt = 0; attempt < ATTEMPTS && !existsSync(blob) && isShort(); attempt++) {
    try {
      await append(part, remote, hub);
    } catch (error) {
      if (error instanceof HubError) throw error;
      reason = `: ${(error as Error).message}`;
    }
  }
  if (existsSync(blob)) return;
  const got = lengthOf(part);
  if (isShort())
    throw new HubError(
      `the download of ${file} broke off ${ATTEMPTS} times, the last time at byte ${got} of ${size}${reason}; run the command again to continue`,
    );
  const digest = got === size ? await digestOf(part, etag, size) : null;
  if (got > size || (digest !== null && digest !== etag)) {
    rmSync(part, { force: true });
    throw new HubError(
      `${file} has ${got} bytes${digest === null ? "" : ` and the hash ${digest}`}, but the server announced ${size} bytes and ${etag}; the file was removed`,
    );
  }
  if (!existsSync(blob)) renameSync(part, blob);
}

/** 0 for a missing file. */
const lengthOf = (path: string): number => Bun.file(path).size;

async function append(part: string, { url, file, size }: RemoteFile, hub: Hub): Promise<void> {
  const from = lengthOf(part);
  const answer = await ask("GET", url, hub, from > 0 ? { range: `bytes=${from}-` } : {});
  if (!answer.ok || answer.body === null) throw new HubError(`cannot get ${file}: ${refusal(answer, hub)}`);
  // A server that does not support ranges sends the whole file again.
  await using out = await open(part, constants.O_CREAT | constants.O_WRONLY);
  let done = answer.status === 206 ? from : 0;
  for await (const chunk of answer.body) {
    if (done + chunk.length > size) throw new HubError(`${file} is longer than the announced ${size} bytes`);
    for (let at = 0; at < chunk.length; ) {
      const { bytesWritten } = await out.write(chunk, at, chunk.length - at, done);
      at += bytesWritten;
      done += bytesWritten;
    }
    hub.progress(file, done, size);
  }
}

/** The file's hash, of the same kind as the etag: sha256 for a large file, git's sha1 for a small one; null if the etag is no such hash. */
async function digestOf(path: string, etag: string, size: number): Promise<string | null> {
  const kind = etag.length === 64 ? "sha256" : COMMIT.test(etag) ? "sha1" : null;
  if (kind === null) return null;
  const hash = new Bun.CryptoHasher(kind);
  if (kind === "sha1") hash.update(`blob ${size}\0`);
  for await (const chunk of Bun.file(path).stream()) hash.update(chunk);
  return hash.digest("hex");
}

/**
 * Sends a request and follows redirects. Only the Hub itself gets the token.
 * A HEAD request follows no redirect to another server, because the Hub's own answer has the hash and the size.
 */
async function ask(
  method: "GET" | "HEAD",
  url: string,
  hub: Hub,
  headers: Record<string, string> = {},
): Promise<Response> {
  const own = new URL(hub.endpoint).origin;
  let at = new URL(url);
  for (let hops = 0; hops <= REDIRECTS_MAX; hops++) {
    const access = hub.token !== null && at.origin === own ? { authorization: `Bearer ${hub.token}` } : {};
    const answer = await hub
      .fetch(at.href, { method, redirect: "manual", headers: { ...headers, ...access, "accept-encoding": "identity" } })
      .catch((error: Error) => {
        throw new Error(`cannot reach ${at.origin}: ${error.message}`);
      });
    const location = answer.headers.get("location");
    if (answer.status < 300 || answer.status > 399 || location === null) return answer;
    const next = new URL(location, at);
    if (next.protocol !== "https:" && next.protocol !== at.protocol)
      throw new HubError(`${at.origin} redirects to ${next.origin} without encryption; the download was stopped`);
    if (method === "HEAD" && next.origin !== own) return answer;
    at = next;
  }
  throw new HubError(`${url} redirects more than ${REDIRECTS_MAX} times`);
}
