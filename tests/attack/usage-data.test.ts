/** onnxruntime sends usage data unless an environment variable forbids it before the library is loaded. We forbid it. */
import { expect, test } from "bun:test";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "../scripts/temporary.ts";

const root = join(import.meta.dir, "../..");

/** Computes with the compiled engine in a process whose home, cache and temporary folder are empty. */
async function compute(): Promise<string> {
  const folder = temporaryFolder();
  for (const name of ["home", "cache", "tmp"]) mkdirSync(join(folder, name));
  const program = `
    import { compiledEngine } from "./model/engine/compiled.ts";
    import { selfCheck } from "./model/engine/self-check.ts";
    await selfCheck(compiledEngine({ threads: 1 }));`;
  const { TMPDIR: _, ORT_DISABLE_TELEMETRY: __, ...env } = process.env;
  const child = Bun.spawn([process.execPath, "-e", program], {
    cwd: root,
    env: { ...env, HOME: join(folder, "home"), XDG_CACHE_HOME: join(folder, "cache"), TMPDIR: join(folder, "tmp") },
    stdio: ["ignore", "ignore", "inherit"],
  });
  expect(await child.exited).toBe(0);
  return folder;
}

test("leaves no device id, no queued events and no log", async () => {
  const folder = await compute();
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  // Bun keeps transpiled sources there.
  expect(files.map(({ name }) => name).filter((name) => !name.endsWith(".pile"))).toEqual([]);
});
