/** Bundles the envs for the browser, so that an episode is replayed there by the code that played it. */
import { fileURLToPath } from "node:url";
import type { BunPlugin } from "bun";

/** Modules replaced by stubs: Node's, and language models, which are larger than all envs. */
const STUBBED = /^(node:|wink-)/;

/** Stubs are inert while modules load, because some modules use them then; afterwards using one throws an error that names it. */
const stubs: BunPlugin = {
  name: "stubs",
  setup(build) {
    build.onResolve({ filter: STUBBED }, ({ path }) => ({ path, namespace: "stub" }));
    build.onLoad({ filter: /.*/, namespace: "stub" }, async ({ path }) => {
      const message = JSON.stringify(`this env needs ${path}, which browsers do not have`);
      const names = path.startsWith("node:") ? Object.keys(await import(path)) : [];
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

/** @throws {Error} naming what could not be bundled. */
export async function bundleStage(): Promise<string> {
  const { success, outputs, logs } = await Bun.build({
    entrypoints: [fileURLToPath(new URL("client/stage.ts", import.meta.url))],
    target: "browser",
    minify: true,
    plugins: [stubs],
    throw: false,
  });
  if (!success) throw new Error(`cannot bundle the envs for the browser: ${logs.map(String).join("; ")}`);
  return outputs[0]!.text();
}
