/** The page's scripts as they are served: a browser finds every file that they import. */
import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { loadAssets } from "../../../actors/dashboard/assets.ts";

const client = join(import.meta.dir, "../../../actors/dashboard/client");
const scripts = readdirSync(client).filter((name) => name.endsWith(".ts") && name !== "replay-code.ts");
const assets = await loadAssets();

test.each(scripts)("%s imports only what is served beside it", async (name) => {
  const { text } = (await assets.get(name))!;
  const imported = new Bun.Transpiler().scanImports(text).map(({ path }) => path);
  const missing = await Promise.all(
    imported.map(async (path) => (path.startsWith("./") && (await assets.get(path.slice(2))) !== null ? [] : [path])),
  );
  expect(missing.flat()).toEqual([]);
});

test("a bundle that could not be made is made at the next request, and kept", async () => {
  let tries = 0;
  const { get } = await loadAssets(async () => {
    tries++;
    if (tries === 1) throw new Error("cannot bundle");
    return "the envs";
  });
  await expect(get("replay-code.js")).rejects.toThrow("cannot bundle");
  for (let i = 0; i < 2; i++) expect((await get("replay-code.js"))!.text).toBe("the envs");
  expect(tries).toBe(2);
});
