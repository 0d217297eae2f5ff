/** Tests that need something which a machine may lack. The name of a skipped test says what, and `bun run test` ends with the list. */
import { describe, test } from "bun:test";

type Body = () => void | Promise<void>;

const skippedName = (name: string, lack: string) => `${name} (skipped: ${lack})`;

/** @param lack  what this machine lacks, in a few words; null if the tests can run */
export function describeWhere(lack: string | null, name: string, body: () => void): void {
  if (lack === null) describe(name, body);
  else describe.skip(skippedName(name, lack), body);
}

/** `describeWhere` for one test. */
export function testWhere(lack: string | null, name: string, body: Body, timeoutMs?: number): void {
  if (lack === null) test(name, body, timeoutMs);
  else test.skip(skippedName(name, lack), body);
}

/** The Python of tests; BUNRAKU_PYTHON may have packages that python3 lacks. */
export const pythonHere = (): string | null => process.env["BUNRAKU_PYTHON"] ?? Bun.which("python3");

/** Why tests that need these Python modules ("torch, transformers") cannot run; null if they can. Finds the modules, as importing them takes seconds. */
export function lackOfPython(modules: string): string | null {
  const python = pythonHere();
  if (python === null) return "no python3";
  const found = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))";
  const { exitCode } = Bun.spawnSync([python, "-c", found, ...modules.split(", ")]);
  return exitCode === 0 ? null : `no Python with ${modules}; BUNRAKU_PYTHON may name one`;
}
