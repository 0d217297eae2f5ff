/** Runs a command as a person would: a process, its two streams, its exit code. */
import { join } from "node:path";

export const root = join(import.meta.dir, "..", "..");

export interface Ended {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** `bun run ARGS`, in this repository or another folder that has scripts/run.ts. */
export async function command(args: readonly string[], cwd = root, env: Record<string, string> = {}): Promise<Ended> {
  const child = Bun.spawn([process.execPath, "scripts/run.ts", ...args], {
    cwd,
    env: { ...process.env, FORCE_COLOR: "0", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  return { code, out, err };
}
