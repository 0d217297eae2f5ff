/**
 * Runs an untrusted Python program. Knows no expected outputs and no rewards.
 *
 * - bubblewrap gives the program its own namespaces, without network and without other processes. Of this machine's files the program sees
 *   only /usr, read-only, and three devices. The program writes only to one folder in memory, of at most `filesMax` files and
 *   `filesBytesMax` bytes.
 * - The kernel limits CPU time, address space and processes of the program. This module limits wall-clock time, bytes of output and lines of
 *   results. If a program exceeds one of these limits, this module kills all processes of the program.
 * - harness.py writes the results to a separate pipe: a first line, then at most one line per test. This module counts the bytes of the
 *   program's own output, and discards the output.
 * - seccomp refuses system calls that use memory outside these limits or inspect the kernel.
 * - If this process is root, the sandbox first changes its user to `nobody`, because the process limit does not apply to root.
 * - If the machine cannot create this sandbox, no program runs.
 */
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { seccompFilter } from "./seccomp.ts";

const MIB = 2 ** 20;

/** The limits of a program, as options of an env. */
export const sandboxLimits = {
  /** CPU time of each process. */
  cpuSecondsMax: z.int().positive().default(3),
  /** Wall-clock time, the start of the sandbox included. */
  wallMsMax: z.int().positive().default(10_000),
  /** Address space of each process. */
  memoryBytesMax: z
    .int()
    .min(64 * MIB)
    .default(512 * MIB),
  /** Processes and threads together, the first process included. */
  processesMax: z.int().positive().default(4),
  /** Bytes that the program can write to files. */
  filesBytesMax: z
    .int()
    .positive()
    .default(16 * MIB),
  /** Files and folders together that exist at once. */
  filesMax: z.int().positive().default(1000),
  /** Bytes of the results and of the program's output together. */
  outputBytesMax: z
    .int()
    .positive()
    .default(16 * MIB),
};
export type SandboxLimits = Readonly<z.infer<z.ZodObject<typeof sandboxLimits>>>;

/** The input of harness.py. */
export interface SandboxTask {
  readonly code: string;
  /** Name of the function that each test with `arguments` runs. */
  readonly function: string | null;
  readonly tests: readonly ({ readonly input: string } | { readonly arguments: readonly unknown[] })[];
}

export interface SandboxRun {
  /** The lines of harness.py up to the end of the program: "ready", then one line per test. */
  readonly lines: readonly string[];
  /** Why this module killed the program; null if this module did not kill it. */
  readonly stopped: "time" | "output" | "closed" | null;
}

const BWRAP = "/usr/bin/bwrap";
const PYTHON = "/usr/bin/python3";
const PRLIMIT = "/usr/bin/prlimit";
const SETPRIV = "/usr/bin/setpriv";
const UNSHARE = "/usr/bin/unshare";
const MOUNT = "/usr/bin/mount";
const SHELL = "/usr/bin/sh";
const NOBODY = "65534";

/** Number of bubblewrap's own processes inside the sandbox. The kernel's process limit counts them too. */
const OWN_PROCESSES = 1;

/** @param source  the Python program that runs in the sandbox */
function command(limits: SandboxLimits, source: string): string[] {
  const { cpuSecondsMax, memoryBytesMax, processesMax, filesBytesMax, filesMax } = limits;
  const asNobody = [SETPRIV, `--reuid=${NOBODY}`, `--regid=${NOBODY}`, "--clear-groups"];
  const folders = ["lib", "lib64", "bin"].flatMap((name) => ["--symlink", `usr/${name}`, `/${name}`]);
  const devices = ["null", "zero", "urandom"].flatMap((name) => ["--dev-bind", `/dev/${name}`, `/dev/${name}`]);
  // bubblewrap cannot limit the number of files of a tmpfs, so `mount` makes the tmpfs. The root of the tmpfs and the input of a test count
  // as files too.
  const files = [MOUNT, "-t", "tmpfs", "-o", `size=${filesBytesMax},nr_inodes=${filesMax + 2}`, "tmpfs", "/tmp"];
  return [
    process.getuid?.() === 0 ? asNobody : [],
    [UNSHARE, "--user", "--map-root-user", "--mount", SHELL, "-c", `${files.join(" ")} && exec "$@"`, "sandbox"],
    [BWRAP, "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--clearenv"],
    ["--uid", NOBODY, "--gid", NOBODY, "--hostname", "sandbox", "--cap-drop", "ALL"],
    ["--ro-bind", "/usr", "/usr", ...folders, ...devices],
    ["--bind", "/tmp", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"],
    // A fixed hash seed: equal programs print sets in equal order.
    ["--setenv", "PYTHONHASHSEED", "0", "--setenv", "HOME", "/tmp"],
    ["--seccomp", String(FILTER_FD)],
    [PRLIMIT, `--cpu=${cpuSecondsMax}`, `--as=${memoryBytesMax}`, `--nproc=${processesMax + OWN_PROCESSES}`],
    [`--fsize=${filesBytesMax}`, "--core=0", "--nofile=64"],
    [PYTHON, "-s", "-B", "-X", "utf8", "-c", source],
  ].flat();
}

/** The descriptor at which bubblewrap inherits the filter. */
const FILTER_FD = 3;
const NEWLINE = 10;

/** The filter as an open file without a name. Each run needs its own file, because bubblewrap reads the file to the end. */
function openFilter(): number {
  const folder = mkdtempSync(join(tmpdir(), "sandbox-"));
  try {
    const path = join(folder, "seccomp.bpf");
    writeFileSync(path, seccompFilter(process.arch)!);
    return openSync(path, "r");
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export interface RunningSandbox {
  readonly ended: Promise<SandboxRun>;
  kill(): void;
}

export function runSandboxed(task: SandboxTask, limits: SandboxLimits): RunningSandbox {
  let stopped: SandboxRun["stopped"] = null;
  const filter = openFilter();
  const harness = readFileSync(new URL("./harness.py", import.meta.url), "utf8");
  const child = Bun.spawn(command(limits, harness), {
    stdio: ["pipe", "pipe", "pipe", filter],
    env: {},
    detached: true,
  });
  closeSync(filter);
  const stop = (why: SandboxRun["stopped"]) => {
    stopped ??= why;
    killAll(child.pid);
  };
  const timer = setTimeout(() => stop("time"), limits.wallMsMax);
  let bytes = 0;
  /** The chunks of a pipe, until both pipes together exceed the limit. */
  async function* limited(pipe: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const chunk of pipe) {
      bytes += chunk.length;
      if (bytes > limits.outputBytesMax) return stop("output");
      yield chunk;
    }
  }
  const discardOutput = async () => {
    for await (const _ of limited(child.stderr));
  };
  const readResults = async (): Promise<string> => {
    const linesMax = 1 + task.tests.length;
    const decoder = new TextDecoder();
    let text = "";
    let lines = 0;
    for await (const chunk of limited(child.stdout)) {
      for (let at = chunk.indexOf(NEWLINE); at >= 0 && lines <= linesMax; at = chunk.indexOf(NEWLINE, at + 1)) lines++;
      if (lines > linesMax) {
        stop("output");
        break;
      }
      text += decoder.decode(chunk, { stream: true });
    }
    return text;
  };
  // A program that ends early closes the pipe, and the write fails. `readResults` still reads the lines that the program wrote.
  const writeTask = async () => {
    child.stdin.write(JSON.stringify(task));
    await child.stdin.end();
  };
  const run = async (): Promise<SandboxRun> => {
    try {
      const [text] = await Promise.all([readResults(), discardOutput(), writeTask().catch(() => {}), child.exited]);
      return { lines: text.split("\n").filter((line) => line !== ""), stopped };
    } finally {
      clearTimeout(timer);
      if (child.exitCode === null && child.signalCode === null) killAll(child.pid);
    }
  };
  return { ended: run(), kill: () => stop("closed") };
}

/**
 * Kills the first process inside the sandbox: the kernel then kills the other processes inside, and the bubblewrap process outside ends.
 * While bubblewrap still creates the sandbox, no process is inside, so this function kills the whole process group.
 */
function killAll(bubblewrap: number): void {
  const inside = childrenOf(bubblewrap);
  for (const pid of inside.length > 0 ? inside : [-bubblewrap]) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // The process has already ended.
    }
  }
}

function childrenOf(pid: number): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

const HOW = "on Debian: apt-get install bubblewrap python3";

/** Why this machine cannot run the sandbox, in one line; null if it can. The first call runs a program as a test. */
export function missingForSandbox(): string | null {
  lack ??= { reason: testSandbox() };
  return lack.reason;
}
let lack: { readonly reason: string | null } | null = null;

function testSandbox(): string | null {
  if (process.platform !== "linux") return `programs run in a sandbox that needs Linux, not ${process.platform}`;
  const absent = [BWRAP, PYTHON, PRLIMIT, SETPRIV, UNSHARE, MOUNT, SHELL].find((path) => !existsSync(path));
  if (absent !== undefined) return `programs run in a sandbox that needs ${absent}, which is missing (${HOW})`;
  if (seccompFilter(process.arch) === null) return `programs run in a sandbox that does not support ${process.arch}`;
  let filter: number;
  try {
    filter = openFilter();
  } catch (error) {
    return `programs run in a sandbox that needs a folder for temporary files: ${(error as Error).message}; set TMPDIR to such a folder`;
  }
  const { exitCode, stdout, stderr } = Bun.spawnSync(command(CHECK_LIMITS, "print('ready')"), {
    stdio: ["ignore", "pipe", "pipe", filter],
    env: {},
    timeout: CHECK_LIMITS.wallMsMax,
    killSignal: "SIGKILL",
  });
  closeSync(filter);
  if (exitCode === 0 && stdout.toString().trim() === "ready") return null;
  const reason = stderr.toString().trim().split("\n").at(-1) || `exit code ${exitCode}`;
  return `programs run in a sandbox that bubblewrap cannot create here: ${reason}`;
}

const CHECK_LIMITS: SandboxLimits = {
  cpuSecondsMax: 10,
  wallMsMax: 20_000,
  memoryBytesMax: 2 ** 29,
  processesMax: 2,
  filesBytesMax: 2 ** 20,
  filesMax: 1,
  outputBytesMax: 2 ** 16,
};
