/** What tests end: servers, children, file systems. */
import { afterAll, afterEach } from "bun:test";
import { temporaryFolder } from "./scripts/temporary.ts";

/** A list of functions that are called after each test, the last one first. Call this once in a test file, outside of tests. */
export function endsOfTests(): (() => unknown)[] {
  const ends: (() => unknown)[] = [];
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });
  return ends;
}

/** A file system of `kib` KiB for the tests of a file. `lack` says why there is none. */
export function smallDisk(kib: number): { folder: string; lack: string | null } {
  const folder = temporaryFolder();
  const command = ["mount", "-t", "tmpfs", "-o", `size=${kib}k`, "tmpfs", folder];
  const mounted = Bun.spawnSync(command, { stderr: "ignore" }).success;
  afterAll(() => {
    if (mounted) Bun.spawnSync(["umount", folder]);
  });
  return { folder, lack: mounted ? null : "this account may not mount a file system" };
}
