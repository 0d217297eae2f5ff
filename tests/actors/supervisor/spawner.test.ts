/** An actor's process gets Bun's settings for actors, unless the user's environment sets them. */
import { afterEach, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { processSpawner } from "../../../actors/supervisor/spawner.ts";

const NAMES = ["MIMALLOC_PURGE_DELAY", "BUN_JSC_thresholdForFTLOptimizeAfterWarmUp"];
const folder = mkdtempSync(join(tmpdir(), "bunraku-spawner-"));
const before = NAMES.map((name) => process.env[name]);

afterEach(() => {
  for (const [i, name] of NAMES.entries()) setVariable(name, before[i]);
  rmSync(folder, { recursive: true, force: true });
});

function setVariable(name: string, value: string | undefined): void {
  if (value === undefined) delete process.env[name];
  else process.env[name] = value;
}

test("a process gets the settings that the environment does not set", async () => {
  const entry = join(folder, "entry.ts");
  await Bun.write(entry, `for (const name of ${JSON.stringify(NAMES)}) console.log(name, process.env[name]);`);
  setVariable(NAMES[0]!, "7");
  setVariable(NAMES[1]!, undefined);
  const lines: string[] = [];
  await processSpawner.spawn(entry, "{}", (line) => void lines.push(line)).exited;
  expect(lines).toEqual(["MIMALLOC_PURGE_DELAY 7", "BUN_JSC_thresholdForFTLOptimizeAfterWarmUp 640000"]);
});
