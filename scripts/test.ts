/** `bun run test`: runs the test suite. Whatever follows goes to `bun test`; the last line is `N passed, M failed`. */
import { join } from "node:path";
import { type Command, helped } from "./cli/options.ts";

const command = {
  name: "test",
  words: {
    show: "[FILE | FLAG …]",
    text: "As for `bun test`: parts of file names, --test-name-pattern, --bail, …",
    max: 0,
  },
  flags: {},
  examples: ["bun run test", "bun run test envs", "bun run test tests/tidy.test.ts --bail"],
} as const satisfies Command;

/** A test that takes so long hangs. No test asserts a time, and a busy machine is no failure. */
const HANG_MS = 120_000;

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const child = Bun.spawn([process.execPath, "test", `--timeout=${HANG_MS}`, ...args], {
    cwd: join(import.meta.dir, ".."),
    stdio: ["inherit", "inherit", "pipe"],
    env: { ...process.env, ...(process.stderr.isTTY ? { FORCE_COLOR: "1" } : {}) },
  });
  const end = await passOn(child.stderr);
  const code = await child.exited;
  const passed = count(end, "pass");
  const failed = count(end, "fail");
  if (passed === null && failed === null) throw new Error(`no test ran: \`bun test\` ended with ${code} (see above)`);
  console.log(`${passed ?? 0} passed, ${failed ?? 0} failed`);
  return code;
}

/** Copy a stream to standard error; returns its last 4 KiB or so as text, where the counts are. */
async function passOn(stream: ReadableStream<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let end = "";
  for await (const chunk of stream) {
    process.stderr.write(chunk);
    end = (end + decoder.decode(chunk, { stream: true })).slice(-4096);
  }
  return Bun.stripANSI(end);
}

/** The number of ` 12 pass` in bun test's summary; null if there is no such line. Thrown errors are among its `fail`. */
function count(end: string, what: "pass" | "fail"): number | null {
  const found = [...end.matchAll(new RegExp(`^ *(\\d+) ${what}$`, "gm"))].at(-1);
  return found === undefined ? null : Number(found[1]);
}
