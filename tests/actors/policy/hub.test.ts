/** Models of the Hub, from a server of our own that answers as huggingface.co does: redirections to a store, ranges, etags. */
import { afterAll, beforeEach, expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Hub, hubCache, hubModel, parseHubName } from "../../../actors/policy/hub.ts";
import { checkPretrained, readPretrained } from "../../../actors/policy/pretrained.ts";
import { temporaryFolder } from "../../scripts/temporary.ts";

const COMMIT = "0123456789abcdef0123456789abcdef01234567";
const model = join(import.meta.dir, "../../golden/checkpoints/qwen2");
const bytesOf = (file: string) => readFileSync(join(model, file));
const isLarge = (file: string) => file.endsWith(".safetensors");
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const gitName = (bytes: Uint8Array) => createHash("sha1").update(`blob ${bytes.length}\0`).update(bytes).digest("hex");

interface Request_ {
  readonly what: string;
  readonly authorization: string | null;
  readonly range: string | null;
}
let seen: Request_[] = [];
/** Bytes of a large file after which the store's connection breaks, per request; none left: never. */
let breaks: number[] = [];
let spoil = false;
/** Files that are empty at the Hub. */
let empty: string[] = [];
/** The file for which the Hub's server breaks down; null: it works. */
let fails: string | null = null;
let token: string | null = null;

const note = (request: Request, server: string) => {
  const { pathname } = new URL(request.url);
  const { headers } = request;
  seen.push({
    what: `${server} ${request.method} ${pathname}`,
    authorization: headers.get("authorization"),
    range: headers.get("range"),
  });
  return pathname;
};

/** Where large files really are. */
const store = Bun.serve({
  port: 0,
  fetch(request) {
    const file = note(request, "store").slice(1);
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.get("range") ?? "")?.[1] ?? 0);
    const bytes = Uint8Array.from(bytesOf(file));
    if (spoil) bytes[100]! ^= 1;
    const status = from > 0 ? 206 : 200;
    const end = breaks.shift();
    if (end === undefined) return new Response(bytes.subarray(from), { status });
    // A connection that breaks: less than was promised.
    const body = new ReadableStream({
      start(controller) {
        controller.enqueue(bytes.slice(from, end));
        controller.close();
      },
    });
    return new Response(body, { status });
  },
});

const hubServer = Bun.serve({
  port: 0,
  fetch(request) {
    const path = note(request, "hub");
    if (token !== null && request.headers.get("authorization") !== `Bearer ${token}`)
      return new Response("", { status: 401 });
    if (["main", COMMIT].some((revision) => path === `/api/models/tiny/qwen2/revision/${revision}`)) {
      const siblings = [...readdirSync(model), ...empty].map((rfilename) => ({ rfilename }));
      return Response.json({ sha: COMMIT, siblings: [...siblings, { rfilename: "original/params.json" }] });
    }
    const file = path.startsWith(`/tiny/qwen2/resolve/${COMMIT}/`) ? path.split("/").at(-1)! : "";
    if (file === fails) return new Response("", { status: 503 });
    if (empty.includes(file)) return new Response("", { headers: { etag: `"${gitName(new Uint8Array())}"` } });
    if (!existsSync(join(model, file)) || file === "") return new Response("", { status: 404 });
    const bytes = bytesOf(file);
    if (!isLarge(file)) return new Response(bytes, { headers: { etag: `"${gitName(bytes)}"` } });
    return new Response("", {
      status: 302,
      headers: {
        location: `${store.url.origin}/${file}`,
        "x-linked-etag": `"${sha256(bytes)}"`,
        "x-linked-size": String(bytes.length),
      },
    });
  },
});

afterAll(async () => {
  await store.stop(true);
  await hubServer.stop(true);
});

let hub: Hub;
beforeEach(() => {
  [seen, breaks, spoil, empty, fails, token] = [[], [], false, [], null, null];
  const cache = temporaryFolder();
  hub = {
    endpoint: hubServer.url.origin,
    cache,
    token: null,
    progress: () => {},
    fetch: (url, options) => fetch(url, options),
  };
});
const get = () => hubModel(parseHubName("hf:tiny/qwen2"), hub);

test("a model is laid down as the Hub's own tools do, and is then used without asking anybody", async () => {
  const progress: string[] = [];
  const folder = await hubModel(parseHubName("hf:tiny/qwen2"), {
    ...hub,
    progress: (file, bytes, total) => void progress.push(`${file} ${bytes === total}`),
  });
  const own = join(hub.cache, "models--tiny--qwen2");
  expect(folder).toBe(join(own, "snapshots", COMMIT));
  expect(readFileSync(join(own, "refs", "main"), "utf8")).toBe(COMMIT);
  const shard = "model-00001-of-00002.safetensors";
  expect(lstatSync(join(folder, shard)).isSymbolicLink()).toBe(true);
  expect(readFileSync(join(own, "blobs", sha256(bytesOf(shard))))).toEqual(bytesOf(shard));
  expect(readdirSync(folder).sort()).toEqual([
    "config.json",
    "generation_config.json",
    shard,
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
  ]);
  await checkPretrained(folder);
  expect(progress).toContain(`${shard} true`);
  seen = [];
  expect(await get()).toBe(folder);
  expect(await hubModel(parseHubName(`hf:tiny/qwen2@${COMMIT}`), hub)).toBe(folder);
  expect(seen).toEqual([]);
});

test("for a server that has the weights only the other files are asked for; a later run gets the weights too", async () => {
  const folder = await hubModel(parseHubName("hf:tiny/qwen2"), hub, "tokenizer");
  expect(readdirSync(folder).filter((file) => file.endsWith(".safetensors"))).toEqual([]);
  readPretrained(folder);
  seen = [];
  expect(await hubModel(parseHubName("hf:tiny/qwen2"), hub, "tokenizer")).toBe(folder);
  expect(seen).toEqual([]);
  await checkPretrained(await get());
});

test("the token is shown to the Hub and not to the store that it points to", async () => {
  token = "secret";
  await hubModel(parseHubName("hf:tiny/qwen2"), { ...hub, token });
  const by = (server: string) =>
    new Set(seen.filter(({ what }) => what.startsWith(server)).map((one) => one.authorization));
  expect(by("hub")).toEqual(new Set(["Bearer secret"]));
  expect(by("store")).toEqual(new Set([null]));
});

test("a download that breaks off continues where it was, also in a later run", async () => {
  // The first shard breaks twice; the second four times, which is given up.
  breaks = [1000, 5000, 99_999, 10, 20, 30, 40];
  await expect(get()).rejects.toThrow(
    "the download of model-00002-of-00002.safetensors broke off 4 times, the last time at byte 40 of 4888",
  );
  expect(
    seen
      .filter(({ what }) => what.endsWith("00001-of-00002.safetensors") && what.startsWith("store"))
      .map(({ range }) => range),
  ).toEqual([null, "bytes=1000-", "bytes=5000-"]);
  seen = [];
  await checkPretrained(await get());
  expect(seen.filter(({ what }) => what.startsWith("store"))).toEqual([
    { what: "store GET /model-00002-of-00002.safetensors", authorization: null, range: "bytes=40-" },
  ]);
});

test("two downloads of one model at once end with the same whole model", async () => {
  // Each pauses in the first shard: the second begins where the first pauses, and ends after it.
  const shard = "model-00001-of-00002.safetensors";
  const pausing = (go: Promise<void>) => async (url: string, options: RequestInit) => {
    const answer = await fetch(url, options);
    if (options.method !== "GET" || !url.startsWith(store.url.origin) || !url.endsWith(shard)) return answer;
    const bytes = await answer.bytes();
    const body = new ReadableStream({
      async start(controller) {
        controller.enqueue(bytes.slice(0, 1000));
        await go;
        controller.enqueue(bytes.slice(1000));
        controller.close();
      },
    });
    return new Response(body, { status: answer.status });
  };
  const [one, two, goOne, goTwo] = Array.from({ length: 4 }, () => Promise.withResolvers<void>());
  const start = (wrote: () => void, go: Promise<void>) => {
    const progress = (file: string) => void (file === shard && wrote());
    return hubModel(parseHubName("hf:tiny/qwen2"), { ...hub, progress, fetch: pausing(go) });
  };
  const first = start(one!.resolve, goOne!.promise);
  await one!.promise;
  const second = start(two!.resolve, goTwo!.promise);
  await two!.promise;
  goOne!.resolve();
  const folder = await first;
  goTwo!.resolve();
  expect(await second).toBe(folder);
  for (const file of readdirSync(folder)) expect(readFileSync(join(folder, file))).toEqual(bytesOf(file));
  expect(readdirSync(join(hub.cache, "models--tiny--qwen2", "blobs")).filter((name) => name.includes("."))).toEqual([]);
  // The second did not spoil the first's file, and so had not to repeat it.
  const asked = seen.filter(({ what }) => what === `store GET /${shard}`);
  expect(asked.map(({ range }) => range)).toEqual([null, "bytes=1000-"]);
});

test("bytes that are not those that were promised are refused and removed", async () => {
  spoil = true;
  await expect(get()).rejects.toThrow(
    /model-0000\d-of-00002.safetensors has \d+ bytes and the hash [0-9a-f]{64}, but the server announced \d+ bytes and [0-9a-f]{64}; the file was removed/,
  );
  expect(
    readdirSync(join(hub.cache, "models--tiny--qwen2", "blobs")).filter((name) => name.endsWith(".incomplete")),
  ).toEqual([]);
  spoil = false;
  await checkPretrained(await get());
});

test("an empty file of the model is a file too", async () => {
  empty = ["merges.txt"];
  const folder = await get();
  expect(readFileSync(join(folder, "merges.txt"), "utf8")).toBe("");
  await checkPretrained(folder);
});

test("a download of a commit that broke before the last file is no whole model", async () => {
  const name = parseHubName(`hf:tiny/qwen2@${COMMIT}`);
  fails = "generation_config.json";
  await expect(hubModel(name, hub, "tokenizer")).rejects.toThrow("cannot get generation_config.json of hf:tiny/qwen2");
  fails = null;
  expect(readdirSync(await hubModel(name, hub, "tokenizer"))).toContain("generation_config.json");
});

test("a cache that lost a file is filled up", async () => {
  const folder = await get();
  rmSync(join(folder, "tokenizer.json"));
  seen = [];
  await checkPretrained(await get());
  expect(seen.some(({ what }) => what.includes("safetensors") && what.startsWith("store"))).toBe(false);
});

test.each([
  ["hf:tiny/unknown", null, /cannot get hf:tiny\/unknown@main: \S+ has no such model or revision \(404\)/],
  ["hf:tiny/qwen2@v9", null, /cannot get hf:tiny\/qwen2@v9: \S+ has no such model or revision \(404\)/],
  ["hf:tiny/qwen2", "gated", /refuses access \(401\); set HF_TOKEN/],
  ["hf:qwen2", null, /hf:qwen2 is not the name of a model on the Hub; write hf:OWNER\/NAME/],
  ["hf:../../etc", null, /is not the name of a model on the Hub/],
  ["hf:tiny/qwen2@../../x", null, /is not the name of a model on the Hub/],
])("%s is refused in one line", async (name, gate, message) => {
  token = gate;
  const asked = (async () => hubModel(parseHubName(name), hub))();
  await expect(asked).rejects.toThrow(message);
});

test("an error for a server that cannot be reached names it", async () => {
  const gone = Bun.serve({ port: 0, fetch: () => new Response("") });
  const endpoint = gone.url.origin;
  await gone.stop(true);
  await expect(hubModel(parseHubName("hf:tiny/qwen2"), { ...hub, endpoint })).rejects.toThrow(
    `cannot reach ${endpoint}`,
  );
});

test("the cache is where the environment says, in the order of the Hub's own tools", () => {
  expect(hubCache({}, "/home/a")).toBe("/home/a/.cache/huggingface/hub");
  expect(hubCache({ XDG_CACHE_HOME: "/x" }, "/home/a")).toBe("/x/huggingface/hub");
  expect(hubCache({ XDG_CACHE_HOME: "/x", HF_HOME: "/hf" }, "/home/a")).toBe("/hf/hub");
  expect(hubCache({ HF_HOME: "/hf", HF_HUB_CACHE: "/hub" }, "/home/a")).toBe("/hub");
});

test("a model that Python's huggingface_hub has put there is found", async () => {
  const folder = join(hub.cache, "models--tiny--qwen2", "snapshots", COMMIT);
  mkdirSync(folder, { recursive: true });
  mkdirSync(join(hub.cache, "models--tiny--qwen2", "refs"));
  writeFileSync(join(hub.cache, "models--tiny--qwen2", "refs", "main"), COMMIT);
  for (const file of readdirSync(model)) writeFileSync(join(folder, file), bytesOf(file));
  expect(await get()).toBe(folder);
  expect(seen).toEqual([]);
});
