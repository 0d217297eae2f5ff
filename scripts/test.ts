/**
 * `bun run test`: runs the test suite, several files at once. Its arguments go to `bun test`. The last lines name each reason why tests could
 * not run on this machine, with their number. The very last line is `N passed, M failed, K skipped`. `bun test` ignores flags that it does
 * not know, and would run all tests; this command refuses such flags.
 *
 * `--quick` leaves out slow files, and the folders whose tests start processes or browsers. It says how many files it left out.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { linesOf } from "../actors/process/lines.ts";
import { didYouMean, nearest } from "../envs/text/nearest.ts";
import { type Command, type Parsed, UsageError } from "./cli/options.ts";

export const command = {
  words: {
    show: "[--quick] [FILE | FLAG …]",
    text: "--quick leaves out slow files, and takes no FILE; all other words go to `bun test`: parts of file names, --bail, …",
    max: 0,
  },
  flags: {},
  passesOn: true,
  examples: ["bun run test", "bun run test --quick", "bun run test envs", "bun run test tests/tidy.test.ts --bail"],
} as const satisfies Command;

/** Flags of `bun` that `bun test` takes and that its help does not list. */
const BUN_FLAGS = ["check", "inspect", "inspect-brk", "inspect-wait", "preload", "smol", "watch"];

/** A test that runs longer counts as hung, and fails. */
const HANG_MS = 300_000;
/** More files than the machine has cores run at once, because a file that waits for processes leaves a core idle. */
const FILES_AT_ONCE = availableParallelism() + 2;
/** Durations of the files, in milliseconds, as `bun test --update-timings` writes them. The slowest files start first. */
const TIMINGS = "tests/timings.json";
/** `--quick` leaves out a file that takes longer. */
const QUICK_MS_MAX = 1000;
const SLOW_FOLDERS = /^tests\/(attack|e2e|browser|scripts|golden|examples)\//;

/** Settings of the tests' processes, most of which end within seconds. */
const SETTINGS = {
  // Mesa compiles the shaders of the WebGPU tests for the CPU. With narrow vectors and without optimization, this compilation takes 11 s of CPU
  // time instead of 27 s.
  LP_NATIVE_VECTOR_WIDTH: "128",
  GALLIVM_PERF: "nopt",
  // Processes do not return freed memory to the system, because they would soon ask for it again.
  MIMALLOC_PURGE_DELAY: "-1",
};

/** JavaScriptCore compiles later than by default, by this factor: in a short process, compilation takes more time than it saves. */
const JIT_POLICY_SCALE = "4";

const root = join(import.meta.dir, "..");

export async function main({ words: args }: Parsed<typeof command>): Promise<number> {
  const rest = args.filter((arg) => arg !== "--quick");
  const quick = rest.length < args.length;
  await checkFlags(rest);
  const isValue = (i: number) => /^(-t|--[^=]+)$/.test(rest[i - 1] ?? "");
  const word = rest.find((arg, i) => !arg.startsWith("-") && !isValue(i));
  if (quick && word !== undefined)
    throw new UsageError(`--quick chooses the files itself; leave out --quick, or "${word}"`);
  const { files, leftOut } = quick ? await quickFiles() : { files: [], leftOut: 0 };
  const parallel = [`--parallel=${FILES_AT_ONCE}`, `--timings=${TIMINGS}`];
  // The test files of whole runs share their warm starts in this folder.
  const warmStarts = mkdtempSync(join(tmpdir(), "bunraku-warm-starts-"));
  const child = Bun.spawn([process.execPath, "test", `--timeout=${HANG_MS}`, ...parallel, ...files, ...rest], {
    cwd: root,
    stdio: ["inherit", "inherit", "pipe"],
    env: {
      ...SETTINGS,
      ...process.env,
      BUN_JSC_jitPolicyScale: JIT_POLICY_SCALE,
      BUNRAKU_TEST_WARM_STARTS: warmStarts,
      ...(process.stderr.isTTY ? { FORCE_COLOR: "1" } : {}),
    },
  });
  // `bun test` stops its workers when it gets a signal. A signal to this process alone would leave `bun test` running.
  let wasStopped = false;
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      wasStopped = true;
      child.kill(signal);
    });
  }
  const { counts, lacking } = await passOn(child.stderr);
  const code = await child.exited;
  rmSync(warmStarts, { recursive: true, force: true });
  if (wasStopped) return code;
  if (!counts.has("pass") && !counts.has("fail"))
    throw new Error(`no test ran: \`bun test\` ended with ${code} (see above)`);
  for (const [lack, names] of lacking) console.log(`not tested here: ${lack} (${names.size} tests)`);
  if (quick) console.log(`--quick left out ${leftOut} files; \`bun run test\` runs them all`);
  const [passed, failed, skipped] = ["pass", "fail", "skip"].map((what) => counts.get(what) ?? 0);
  console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
  return code;
}

/** @throws {UsageError} for the first flag that `bun test` does not take */
async function checkFlags(args: readonly string[]): Promise<void> {
  // The word after one of these flags is a pattern, which may begin with a hyphen.
  const flags = args.filter((arg, i) => arg.startsWith("-") && !/^(-t|--test-name-pattern)$/.test(args[i - 1] ?? ""));
  if (flags.length === 0) return;
  const help = await new Response(Bun.spawn([process.execPath, "test", "--help"], { stderr: "ignore" }).stdout).text();
  const letters = new Set(Array.from(help.matchAll(/^ +-(\w)\b/gm), ([, letter]) => letter));
  const names = Array.from(help.matchAll(/^ +(?:-\w, +)?--([\w-]+)/gm), ([, name]) => name!);
  const known = [...names, ...BUN_FLAGS, "quick", "help", "verbose"];
  for (const flag of flags) {
    const [, name] = /^--([^=]+)/.exec(flag) ?? [];
    if (name === undefined ? letters.has(flag[1]) : known.includes(name)) continue;
    const near = name === undefined ? null : nearest(name, known);
    const hint = near === null ? "; `bun test --help` lists the flags" : didYouMean(`--${near}`);
    throw new UsageError(`test has no flag ${flag.split("=")[0]}${hint}`);
  }
}

async function quickFiles(): Promise<{ files: string[]; leftOut: number }> {
  const all = (await Array.fromAsync(new Bun.Glob("tests/**/*.test.ts").scan(root))).sort();
  const { files: took } = (await Bun.file(join(root, TIMINGS)).json()) as {
    readonly files: Readonly<Record<string, number>>;
  };
  const files = all.filter((file) => !SLOW_FOLDERS.test(file) && (took[file] ?? 0) <= QUICK_MS_MAX);
  return { files: files.map((file) => `./${file}`), leftOut: all.length - files.length };
}

/** Copies a stream to standard error, and reads the counts and the names of the skipped tests from it. */
async function passOn(stream: ReadableStream<Uint8Array>) {
  /** Names of the skipped tests, by what they lack (tests/needs.ts). Bun prints each test twice, in its file and at the end. */
  const lacking = new Map<string, Set<string>>();
  /** Bun's counts, by "pass", "fail" and "skip". The map lacks a count that Bun does not print. */
  const counts = new Map<string, number>();
  for await (const line of linesOf(stream)) {
    process.stderr.write(`${line}\n`);
    const text = Bun.stripANSI(line);
    const lack = /^\(skip\) .*\(skipped: (.+?)\)(?: > |$)/.exec(text)?.[1];
    if (lack !== undefined) lacking.getOrInsert(lack, new Set()).add(text);
    const [, count, what] = /^ *(\d+) (pass|fail|skip)$/.exec(text) ?? [];
    if (what !== undefined) counts.set(what, Number(count));
  }
  return { counts, lacking };
}
