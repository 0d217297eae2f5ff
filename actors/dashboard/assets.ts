/**
 * The page's files: styles, scripts, uPlot from its package, and the bundle of the envs. The page loads nothing from other servers.
 *
 * - The scripts have no build step: the server removes the types of each script, and serves the script under the name of its file.
 * - A script may import the SHARED files of actors/. These files import nothing. The server serves them in the same folder as the scripts.
 * - The code of all envs is one bundle. The server makes the bundle at the first request for it, and keeps it. If this fails, the next request
 *   tries again.
 */
import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { builtinModules } from "node:module";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import type { BunPlugin } from "bun";
import { type EnvModule, envModules } from "../../envs/registry.ts";

const CLIENT = new URL("client/", import.meta.url);
const STYLES = ["style.css", "parts.css", "charts.css", "actors.css", "episodes.css", "player.css"];
/** All scripts except replay-code.ts, which is in the bundle. */
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
    // The server serves all files in one folder.
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

/** Modules that the bundle replaces by stubs: Node's, Bun's, and the wink packages, which are larger than all envs together. */
export const STUBBED = new RegExp(
  `^(node:|bun:|wink-|(${builtinModules.filter((name) => /^\w+$/.test(name)).join("|")}|bun)$)`,
);

/** A call of a stub throws an error that names the module. While modules load, a call does nothing, because some modules call stubs while they load. */
const stubs: BunPlugin = {
  name: "stubs",
  setup(build) {
    build.onResolve({ filter: STUBBED }, ({ path }) => ({ path, namespace: "stub" }));
    build.onLoad({ filter: /.*/, namespace: "stub" }, async ({ path }) => {
      const message = JSON.stringify(`this env needs ${path}, which browsers do not have`);
      const names = !path.startsWith("wink-") ? Object.keys(await import(path)) : [];
      const contents = `
        function use() {
          if (globalThis[Symbol.for(import.meta.url)]) throw new Error(${message});
          return stub;
        }
        const get = (_, name) => (name === Symbol.toPrimitive ? () => "" : stub);
        const stub = new Proxy(function () {}, { get, apply: use, construct: use });
        export default stub;
        ${names
          .filter((name) => name !== "default")
          .map((name) => `export { stub as ${name} };`)
          .join("")}`;
      return { contents, loader: "js" };
    });
  },
};

/** Path of the bundle's entry, a file in memory. */
const ENTRY = fileURLToPath(new URL("replay-entry.ts", import.meta.url));

/**
 * The text of the bundle's entry. It imports the modules that define envs outside Bunraku (actors/play/env-modules.ts), and then replay-code.ts.
 * replay-code.ts must load last: after it has loaded, calls of stubs throw.
 */
const entryWith = (modules: readonly EnvModule[]): string =>
  [
    'import { addEnvs } from "../../envs/registry.ts";',
    ...modules.flatMap((module, i) => [
      `import module${i} from ${JSON.stringify(module.path)};`,
      `addEnvs([module${i}].flat(), ${JSON.stringify(module)});`,
    ]),
    'export * from "./client/replay-code.ts";',
  ].join("\n");

/** @throws {Error} naming what could not be bundled. */
export async function bundleReplayCode(modules: readonly EnvModule[] = envModules()): Promise<string> {
  const { success, outputs, logs } = await Bun.build({
    entrypoints: [ENTRY],
    files: { [ENTRY]: entryWith(modules) },
    target: "browser",
    // A module outside Bunraku imports "bunraku/env". With the export condition "bun", package.json resolves this name to TypeScript sources.
    conditions: ["bun"],
    minify: true,
    plugins: [stubs],
    throw: false,
  });
  if (!success) throw new Error(`cannot bundle the envs for the browser: ${logs.map(String).join("; ")}`);
  return outputs[0]!.text();
}
