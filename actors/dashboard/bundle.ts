/** Bundles the envs for the browser, so that the code that played an episode also replays it there. */
import { builtinModules } from "node:module";
import { fileURLToPath } from "node:url";
import type { BunPlugin } from "bun";
import { type EnvModule, envModules } from "../../envs/registry.ts";

/** Modules replaced by stubs: Node's, Bun's, and the wink packages, which are larger than all envs. */
export const STUBBED = new RegExp(
  `^(node:|bun:|wink-|(${builtinModules.filter((name) => /^\w+$/.test(name)).join("|")}|bun)$)`,
);

/** Stubs are inert while modules load, because some modules call theirs then. Afterwards a call throws an error that names the module. */
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

const pathOf = (file: string) => JSON.stringify(fileURLToPath(new URL(file, import.meta.url)));

/** The bundle's entry: modules of envs from outside, then replay-code.ts, which comes last because it ends the time of inert stubs. */
const replayCodeWith = (modules: readonly EnvModule[]): BunPlugin => ({
  name: "replay-code",
  setup(build) {
    build.onResolve({ filter: /^replay-code$/ }, ({ path }) => ({ path, namespace: "replay-code" }));
    build.onLoad({ filter: /.*/, namespace: "replay-code" }, () => {
      const lines = modules.flatMap((module, i) => [
        `import module${i} from ${JSON.stringify(module.path)};`,
        `addEnvs([module${i}].flat(), ${JSON.stringify(module)});`,
      ]);
      const contents = [
        `import { addEnvs } from ${pathOf("../../envs/registry.ts")};`,
        ...lines,
        `export * from ${pathOf("client/replay-code.ts")};`,
      ];
      return { contents: contents.join("\n"), loader: "ts" };
    });
  },
});

/** @throws {Error} naming what could not be bundled. */
export async function bundleReplayCode(modules: readonly EnvModule[] = envModules()): Promise<string> {
  const { success, outputs, logs } = await Bun.build({
    entrypoints: ["replay-code"],
    target: "browser",
    // A module from outside imports "bunraku/env". The package's exports name the sources of bunraku/env under this condition.
    conditions: ["bun"],
    minify: true,
    plugins: [replayCodeWith(modules), stubs],
    throw: false,
  });
  if (!success) throw new Error(`cannot bundle the envs for the browser: ${logs.map(String).join("; ")}`);
  return outputs[0]!.text();
}
