/**
 * The page's files: styles, scripts, and uPlot from its package. Nothing is loaded from elsewhere.
 *
 * - Scripts are served under their own names with their types removed; there is no build step.
 * - A script may import the SHARED files of actors/. They import nothing, and are served beside the scripts.
 * - The envs are one bundle, made at the first request and kept. One that cannot be made is tried again at the next request.
 */
import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import { bundleReplayCode } from "./bundle.ts";

const CLIENT = new URL("client/", import.meta.url);
const STYLES = ["style.css", "parts.css", "charts.css", "actors.css", "episodes.css", "player.css"];
/** All scripts but replay-code.ts, which is in the bundle. */
const SCRIPTS = readdirSync(CLIENT).filter((name) => name.endsWith(".ts") && name !== "replay-code.ts");
const SHARED = ["number-text.ts"];
const FILES: Readonly<Record<string, string>> = {
  ...Object.fromEntries([...STYLES, "icon.svg"].map((name) => [name, new URL(name, import.meta.url).href])),
  ...Object.fromEntries(SCRIPTS.map((name) => [name, new URL(name, CLIENT).href])),
  ...Object.fromEntries(SHARED.map((name) => [name, new URL(`../${name}`, import.meta.url).href])),
  "uplot.js": import.meta.resolve("uplot/dist/uPlot.iife.min.js"),
  "uplot.css": import.meta.resolve("uplot/dist/uPlot.min.css"),
};
const TYPES: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".js": "text/javascript; charset=utf-8",
  ".ts": "text/javascript; charset=utf-8",
};
/** Name of the bundle. */
const REPLAY_CODE = "replay-code.js";

export interface Asset {
  readonly text: string;
  readonly type: string;
  /** In quotes, as the header ETag requires. */
  readonly etag: string;
}

export interface Assets {
  /** Null if there is no file of this name. @throws {Error} if the bundle cannot be made */
  get(name: string): Promise<Asset | null>;
}

/** @throws {Error} if a file of the page cannot be read */
export async function loadAssets(bundle = bundleReplayCode): Promise<Assets> {
  const typescript = new Bun.Transpiler({ loader: "ts" });
  const entries = Object.entries(FILES).map(async ([name, url]) => {
    const source = await Bun.file(fileURLToPath(url)).text();
    if (extname(name) !== ".ts") return [name, assetOf(name, source)] as const;
    // All files are served in one folder.
    return [name, assetOf(name, typescript.transformSync(source).replaceAll('"../../', '"./'))] as const;
  });
  const files = new Map(await Promise.all(entries));
  let replayCode: Promise<Asset> | null = null;
  return {
    async get(name) {
      if (name !== REPLAY_CODE) return files.get(name) ?? null;
      replayCode ??= bundle()
        .then((text) => assetOf(name, text))
        .catch((error) => {
          replayCode = null;
          throw error;
        });
      return replayCode;
    },
  };
}

function assetOf(name: string, text: string): Asset {
  const etag = `"${createHash("sha256").update(text).digest("hex").slice(0, 16)}"`;
  return { text, type: TYPES[extname(name)]!, etag };
}
