/** Temporary folders of tests. bunfig.toml loads this file before the test files, so the folders go after the tests. */
import { afterAll } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const made: string[] = [];

/** The removal may take longer than a test may. */
const REMOVAL_MS_MAX = 300_000;
afterAll(() => {
  for (const folder of made) rmSync(folder, { recursive: true, force: true });
}, REMOVAL_MS_MAX);

export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "bunraku-test-"));
  made.push(folder);
  return folder;
}

/**
 * The folder of warm starts that runs share: under `bun run test` one folder for all test files, otherwise a folder in `folder`. For tests
 * that begin after the warm start.
 */
export const sharedWarmStarts = (folder: string): string =>
  process.env["BUNRAKU_TEST_WARM_STARTS"] ?? join(folder, "warm-start");
