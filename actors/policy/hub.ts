/**
 * Models of the Hugging Face Hub, into the cache that its own tools use: hf:OWNER/NAME, or hf:OWNER/NAME@REVISION.
 *
 *   CACHE/models--OWNER--NAME/refs/REVISION           commit that the name meant when it was last asked
 *                            /blobs/ETAG              a file's bytes; ETAG.incomplete while they come
 *                            /snapshots/COMMIT/FILE   a link to them
 *
 * - A model that is there as a whole is used as it is; nobody is asked.
 * - A download that broke off goes on where it was. No file is in its place before its size, and its hash where the server names
 *   one, are what the server said.
 * - The token goes to the Hub, and to no other server that it points to.
 *
 * Source: huggingface_hub, file_download.py.
 */
import { createHash } from "node:crypto";
import { createReadStream, existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { open, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import { TOKENIZER_FILES, weightFiles } from "./pretrained.ts";

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
  /** After every part of a file. */
  readonly progress: (file: string, bytes: number, bytesTotal: number) => void;
}

/** A model that cannot be had, in one line. */
export class HubError extends Error {
  override readonly name = "HubError";
}

const PREFIX = "hf:";
export const isHubName = (path: string): boolean => path.startsWith(PREFIX);

/** @throws {HubError} if this is no name of a model. */
export function parseHubName(text: string): HubName {
  const [, repository, revision = "main"] = /^hf:([\w-][\w.-]*\/[\w-][\w.-]*)(?:@([\w-][\w./-]*))?$/.exec(text) ?? [];
  if (repository !== undefined && !`${repository}/${revision}`.includes("..")) return { repository, revision };
  throw new HubError(`${text} names no model of the Hub; write hf:OWNER/NAME or hf:OWNER/NAME@REVISION`);
}

/** Where the Hub's own tools keep models. @param home  of the user */
export function hubCache(env: Readonly<Record<string, string | undefined>>, home: string): string {
  const { HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME } = env;
  return HF_HUB_CACHE ?? join(HF_HOME ?? join(XDG_CACHE_HOME ?? join(home, ".cache"), "huggingface"), "hub");
}

/** Tries of one file, each from where the one before broke off. */
const ATTEMPTS = 4;
const REDIRECTS_MAX = 5;
const INDEX = "model.safetensors.index.json";
const COMMIT = /^[0-9a-f]{40}$/;

/** The folder of a model, downloaded if it is not there as a whole. @throws {HubError} saying what could not be had, and why. */
export async function hubModel({ repository, revision }: HubName, hub: Hub): Promise<string> {
  const folder = join(hub.cache, `models--${repository.replace("/", "--")}`);
  const ref = join(folder, "refs", ...revision.split("/"));
  const known = COMMIT.test(revision) ? revision : existsSync(ref) ? readFileSync(ref, "utf8").trim() : null;
  if (known !== null && isWhole(join(folder, "snapshots", known))) return join(folder, "snapshots", known);

  const { commit, files } = await listFiles(repository, revision, hub);
  const snapshot = join(folder, "snapshots", commit);
  const get = (file: string) => download(repository, commit, file, folder, hub);
  for (const file of ["config.json", INDEX, ...TOKENIZER_FILES].filter((file) => files.has(file))) await get(file);
  for (const file of weightFiles(snapshot)) {
    if (!files.has(file)) throw new HubError(`${PREFIX}${repository} has no file ${file}; only safetensors are read`);
    await get(file);
  }
  if (!COMMIT.test(revision)) {
    mkdirSync(dirname(ref), { recursive: true });
    await writeFile(ref, commit);
  }
  return snapshot;
}

/** Links to files that are not there any more do not count. */
function isWhole(snapshot: string): boolean {
  const has = (file: string) => existsSync(join(snapshot, file));
  return ["config.json", "tokenizer.json", "tokenizer_config.json"].every(has) && weightFiles(snapshot).every(has);
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
  if (!listing.success) throw new HubError(`${url} answered something else than a list of files`);
  const { sha, siblings } = listing.data;
  return { commit: sha, files: new Set(siblings.map(({ rfilename }) => rfilename)) };
}

function refusal({ status }: Response, { token, endpoint }: Hub): string {
  if (status === 404) return `${endpoint} knows no such model or revision (404)`;
  if (status !== 401 && status !== 403) return `${endpoint} answered ${status}`;
  const advice = token === null ? "set HF_TOKEN" : "HF_TOKEN may not read it; has its licence been accepted?";
  return `${endpoint} wants to know who asks (${status}); ${advice}`;
}

/** Put a file into the snapshot. */
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
  // The name of a file in the cache: it must be nothing else.
  if (!/^[\w-]{1,128}$/.test(etag) || !Number.isSafeInteger(size))
    throw new HubError(`${url} has no etag and size that could be used, found "${etag}" and ${size}`);
  const blob = join(folder, "blobs", etag);
  mkdirSync(dirname(blob), { recursive: true });
  if (!existsSync(blob)) await fill(`${blob}.incomplete`, blob, { url, file, etag, size }, hub);
  mkdirSync(dirname(link), { recursive: true });
  rmSync(link, { force: true });
  await symlink(join("..", "..", "blobs", etag), link);
}

interface Remote {
  readonly url: string;
  readonly file: string;
  readonly etag: string;
  readonly size: number;
}

/** Download what is missing of a file, check it, and put it in its place. */
async function fill(part: string, blob: string, remote: Remote, hub: Hub): Promise<void> {
  const { file, etag, size } = remote;
  let reason = "";
  for (let attempt = 0; attempt < ATTEMPTS && lengthOf(part) < size; attempt++) {
    try {
      await append(part, remote, hub);
    } catch (error) {
      if (error instanceof HubError) throw error;
      reason = `: ${(error as Error).message}`;
    }
  }
  const got = lengthOf(part);
  if (got < size)
    throw new HubError(`${file} broke off at byte ${got} of ${size} ${ATTEMPTS} times${reason}; run it again to go on`);
  const digest = got === size ? await digestOf(part, etag, size) : null;
  if (got > size || (digest !== null && digest !== etag)) {
    rmSync(part);
    throw new HubError(
      `${file} is ${got} bytes of hash ${digest}, but ${size} bytes of ${etag} were promised; it was removed`,
    );
  }
  renameSync(part, blob);
}

const lengthOf = (path: string): number => (existsSync(path) ? statSync(path).size : 0);

async function append(part: string, { url, file, size }: Remote, hub: Hub): Promise<void> {
  const from = lengthOf(part);
  const answer = await ask("GET", url, hub, from > 0 ? { range: `bytes=${from}-` } : {});
  if (!answer.ok || answer.body === null) throw new HubError(`cannot get ${file}: ${refusal(answer, hub)}`);
  // A server that knows no ranges sends all of it again.
  const out = await open(part, from > 0 && answer.status === 206 ? "a" : "w");
  let done = answer.status === 206 ? from : 0;
  try {
    for await (const chunk of answer.body) {
      done += chunk.length;
      if (done > size) throw new HubError(`${file} is longer than the ${size} bytes that were promised`);
      await out.write(chunk);
      hub.progress(file, done, size);
    }
  } finally {
    await out.close();
  }
}

/** By what the etag is: sha256 of a large file, git's name of a small one; null if it is neither. */
async function digestOf(path: string, etag: string, size: number): Promise<string | null> {
  const kind = etag.length === 64 ? "sha256" : COMMIT.test(etag) ? "sha1" : null;
  if (kind === null) return null;
  const hash = createHash(kind);
  if (kind === "sha1") hash.update(`blob ${size}\0`);
  for await (const chunk of createReadStream(path)) hash.update(chunk as Uint8Array);
  return hash.digest("hex");
}

/**
 * Ask, and follow redirections; only the Hub itself is shown the token.
 * A HEAD stops where it leads to another server: the Hub's own answer is the one that names hash and size.
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
    const known = hub.token !== null && at.origin === own ? { authorization: `Bearer ${hub.token}` } : {};
    const answer = await hub
      .fetch(at.href, { method, redirect: "manual", headers: { ...headers, ...known, "accept-encoding": "identity" } })
      .catch((error: Error) => {
        throw new Error(`cannot reach ${at.origin}: ${error.message}`);
      });
    const location = answer.headers.get("location");
    if (answer.status < 300 || answer.status > 399 || location === null) return answer;
    const next = new URL(location, at);
    if (next.protocol !== "https:" && next.protocol !== at.protocol)
      throw new HubError(`${at.origin} leads to ${next.origin}, which is less safe`);
    if (method === "HEAD" && next.origin !== own) return answer;
    at = next;
  }
  throw new HubError(`${url} leads on and on, more than ${REDIRECTS_MAX} times`);
}
