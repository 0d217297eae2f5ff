/**
 * The page's files, read once at the start: style, scripts, and uPlot from its package. Nothing is fetched from elsewhere.
 *
 * - Scripts in TypeScript are served under their own names with the types taken out; there is no build step.
 */
import { createHash } from "node:crypto";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";

const FILES: Readonly<Record<string, string>> = {
  "style.css": new URL("style.css", import.meta.url).href,
  "charts.css": new URL("charts.css", import.meta.url).href,
  "episodes.css": new URL("episodes.css", import.meta.url).href,
  "icon.svg": new URL("icon.svg", import.meta.url).href,
  "live.js": new URL("client/live.js", import.meta.url).href,
  "charts.js": new URL("client/charts.js", import.meta.url).href,
  "episodes.js": new URL("client/episodes.js", import.meta.url).href,
  "curve.ts": new URL("client/curve.ts", import.meta.url).href,
  "text.ts": new URL("client/text.ts", import.meta.url).href,
  "uplot.js": import.meta.resolve("uplot/dist/uPlot.iife.min.js"),
  "uplot.css": import.meta.resolve("uplot/dist/uPlot.min.css"),
};
const TYPES: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".js": "text/javascript; charset=utf-8",
  ".ts": "text/javascript; charset=utf-8",
};

export interface Asset {
  readonly text: string;
  readonly type: string;
  /** Quoted, as the header wants it. */
  readonly etag: string;
}

/** @throws {Error} if a file of the page or the package uplot is not installed. */
export async function loadAssets(): Promise<ReadonlyMap<string, Asset>> {
  const typescript = new Bun.Transpiler({ loader: "ts" });
  const entries = Object.entries(FILES).map(async ([name, url]) => {
    const source = await Bun.file(fileURLToPath(url)).text();
    const text = extname(name) === ".ts" ? typescript.transformSync(source) : source;
    const etag = `"${createHash("sha256").update(text).digest("hex").slice(0, 16)}"`;
    return [name, { text, type: TYPES[extname(name)]!, etag }] as const;
  });
  return new Map(await Promise.all(entries));
}
