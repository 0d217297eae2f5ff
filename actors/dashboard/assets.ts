/**
 * The page's files: style, scripts, and uPlot from its package. Nothing is fetched from elsewhere.
 *
 * - Scripts in TypeScript are served under their own names with the types taken out; there is no build step.
 * - The envs, for replays in the browser, are one bundle. It is made when it is first asked for, and kept.
 */
import { createHash } from "node:crypto";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import { bundleStage } from "./bundle.ts";

const STYLES = ["style.css", "parts.css", "charts.css", "actors.css", "episodes.css", "player.css"];
const SCRIPTS = [
  "live.js",
  "dom.js",
  "page-run.js",
  "page-actors.js",
  "page-episodes.js",
  "page-alarms.js",
  "charts.js",
  "chart.js",
  "chart-list.js",
  "compare.js",
  "curve.ts",
  "thin.ts",
  "episode-list.js",
  "episode-detail.js",
  "board.js",
  "tokens.js",
  "player.js",
  "text.ts",
];
const FILES: Readonly<Record<string, string>> = {
  ...Object.fromEntries([...STYLES, "icon.svg"].map((name) => [name, new URL(name, import.meta.url).href])),
  ...Object.fromEntries(SCRIPTS.map((name) => [name, new URL(`client/${name}`, import.meta.url).href])),
  "uplot.js": import.meta.resolve("uplot/dist/uPlot.iife.min.js"),
  "uplot.css": import.meta.resolve("uplot/dist/uPlot.min.css"),
};
const TYPES: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".js": "text/javascript; charset=utf-8",
  ".ts": "text/javascript; charset=utf-8",
};
/** The bundle's name. */
const STAGE = "stage.js";

export interface Asset {
  readonly text: string;
  readonly type: string;
  /** Quoted, as the header wants it. */
  readonly etag: string;
}

export interface Assets {
  /** Null if there is none of this name. @throws {Error} if the bundle cannot be made */
  get(name: string): Promise<Asset | null>;
}

/** @throws {Error} if a file of the page or the package uplot is not installed. */
export async function loadAssets(): Promise<Assets> {
  const typescript = new Bun.Transpiler({ loader: "ts" });
  const entries = Object.entries(FILES).map(async ([name, url]) => {
    const source = await Bun.file(fileURLToPath(url)).text();
    return [name, assetOf(name, extname(name) === ".ts" ? typescript.transformSync(source) : source)] as const;
  });
  const files = new Map(await Promise.all(entries));
  let stage: Promise<Asset> | null = null;
  return {
    async get(name) {
      if (name !== STAGE) return files.get(name) ?? null;
      stage ??= bundleStage().then((text) => assetOf(name, text));
      return stage;
    },
  };
}

function assetOf(name: string, text: string): Asset {
  const etag = `"${createHash("sha256").update(text).digest("hex").slice(0, 16)}"`;
  return { text, type: TYPES[extname(name)]!, etag };
}
