/**
 * Runs a Python program that nobody trusts. Knows no tests and no rewards.
 *
 * - Its own namespaces (bubblewrap): no network, no other process, no file of this machine but the system's programs, read only.
 *   What it can write is a folder in memory of `filesBytesMax`.
 * - Limits of the kernel: processor time, address space and processes; and of ours: time on the clock, bytes of output.
 *   Over any of them, everything it started is killed.
 * - System calls that hold memory outside those limits, or look into the kernel, are refused (seccomp).
 * - As root it first becomes nobody: root is counted against no limit of processes.
 * - Where that is not to be had, nothing is run. There is no other way.
 */
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { seccompFilter } from "./seccomp.ts";

export interface SandboxLimits {
  /** Processor time of each process. */
  readonly cpuSecondsMax: number;
  /** Time on the clock, start included. */
  readonly wallMsMax: number;
  /** Address space of each process. */
  readonly memoryBytesMax: number;
  /** Processes and threads, the first included. */
  readonly processesMax: number;
  readonly filesBytesMax: number;
  readonly outputBytesMax: number;
}

export interface SandboxRun {
  /** Lines that the harness wrote before it ended or was ended. */
  readonly lines: readonly string[];
  /** Why it was ended; null if it ended by itself. */
  readonly stopped: "time" | "output" | "closed" | null;
}

const BWRAP = "/usr/bin/bwrap";
const PYTHON = "/usr/bin/python3";
const PRLIMIT = "/usr/bin/prlimit";
const SETPRIV = "/usr/bin/setpriv";
const NOBODY = "65534";

/** Read at the first run. */
function harness(): string {
  harnessText ??= readFileSync(new URL("./harness.py", import.meta.url), "utf8");
  return harnessText;
}
let harnessText: string | null = null;

/** bubblewrap's own processes in the sandbox, which count as well. */
const OWN_PROCESSES = 1;

function command(limits: SandboxLimits): string[] {
  const { cpuSecondsMax, memoryBytesMax, processesMax, filesBytesMax } = limits;
  const asNobody = [SETPRIV, `--reuid=${NOBODY}`, `--regid=${NOBODY}`, "--clear-groups"];
  const folders = ["lib", "lib64", "bin"].flatMap((name) => ["--symlink", `usr/${name}`, `/${name}`]);
  const devices = ["null", "zero", "urandom"].flatMap((name) => ["--dev-bind", `/dev/${name}`, `/dev/${name}`]);
  return [
    process.getuid?.() === 0 ? asNobody : [],
    [BWRAP, "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--clearenv"],
    ["--uid", NOBODY, "--gid", NOBODY, "--hostname", "sandbox", "--cap-drop", "ALL"],
    ["--ro-bind", "/usr", "/usr", ...folders, ...devices],
    ["--size", String(filesBytesMax), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"],
    // Equal programs then print sets in equal order.
    ["--setenv", "PYTHONHASHSEED", "0", "--setenv", "HOME", "/tmp"],
    ["--seccomp", String(FILTER_FD)],
    [PRLIMIT, `--cpu=${cpuSecondsMax}`, `--as=${memoryBytesMax}`, `--nproc=${processesMax + OWN_PROCESSES}`],
    [`--fsize=${filesBytesMax}`, "--core=0", "--nofile=64"],
    [PYTHON, "-s", "-B", "-X", "utf8", "-c", harness()],
  ].flat();
}

/** Where bubblewrap finds the filter of system calls among what it inherits. */
const FILTER_FD = 3;

/** An open file of the filter, of which each run needs one of its own: they are read to their end. */
function openFilter(): number {
  if (filterFd === null) {
    const folder = mkdtempSync(join(tmpdir(), "sandbox-"));
    const path = join(folder, "seccomp.bpf");
    writeFileSync(path, seccompFilter(process.arch)!);
    filterFd = openSync(path, "r");
    // It lives on, nameless, as long as this process.
    rmSync(folder, { recursive: true });
  }
  return openSync(`/proc/self/fd/${filterFd}`, "r");
}
let filterFd: number | null = null;

/** A run that can be ended before its time. */
export interface RunningSandbox {
  readonly ended: Promise<SandboxRun>;
  kill(): void;
}

/** @param task  what the harness reads: see harness.py. */
export function runSandboxed(task: unknown, limits: SandboxLimits): RunningSandbox {
  let stopped: SandboxRun["stopped"] = null;
  const filter = openFilter();
  const child = Bun.spawn(command(limits), { stdio: ["pipe", "pipe", "ignore", filter], env: {}, detached: true });
  closeSync(filter);
  const stop = (why: SandboxRun["stopped"]) => {
    stopped ??= why;
    endAll(child.pid);
  };
  const timer = setTimeout(() => stop("time"), limits.wallMsMax);
  // A child that ends early closes its end; what it says then, or does not say, is the result.
  const given = (async () => {
    child.stdin.write(JSON.stringify(task));
    await child.stdin.end();
  })().catch(() => {});
  const run = async (): Promise<SandboxRun> => {
    try {
      const decoder = new TextDecoder();
      let text = "";
      let bytes = 0;
      for await (const chunk of child.stdout) {
        bytes += chunk.length;
        if (bytes > limits.outputBytesMax) {
          stop("output");
          break;
        }
        text += decoder.decode(chunk, { stream: true });
      }
      await Promise.all([given, child.exited]);
      return { lines: text.split("\n").filter((line) => line !== ""), stopped };
    } finally {
      clearTimeout(timer);
      if (child.exitCode === null && child.signalCode === null) endAll(child.pid);
    }
  };
  return { ended: run(), kill: () => stop("closed") };
}

/**
 * Ends a sandbox that runs. Its first process takes all the others along, and bubblewrap, outside, then buries it and ends. Before
 * there is one, the sandbox is being set up and not yet tied to bubblewrap: then the whole group goes at once.
 */
function endAll(bubblewrap: number): void {
  const inside = childrenOf(bubblewrap);
  for (const pid of inside.length > 0 ? inside : [-bubblewrap]) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It has ended by itself.
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

/** Why no program can be run on this machine, in one line; null if one can. Found out once, by running one. */
export function sandboxLack(): string | null {
  lack ??= { text: lookForLack() };
  return lack.text;
}
let lack: { readonly text: string | null } | null = null;

function lookForLack(): string | null {
  if (process.platform !== "linux") return `programs are run in a sandbox of Linux only, not on ${process.platform}`;
  const absent = [BWRAP, PYTHON, PRLIMIT, SETPRIV].find((path) => !existsSync(path));
  if (absent !== undefined) return `programs are run in a sandbox, and there is no ${absent} (${HOW})`;
  if (seccompFilter(process.arch) === null) return `programs are run in a sandbox, and it knows no ${process.arch}`;
  const filter = openFilter();
  const { exitCode, stdout, stderr } = Bun.spawnSync(command(CHECK_LIMITS), {
    stdio: [Buffer.from(JSON.stringify({ code: "", function: null, tests: [] })), "pipe", "pipe", filter],
    env: {},
    timeout: CHECK_LIMITS.wallMsMax,
    killSignal: "SIGKILL",
  });
  closeSync(filter);
  if (exitCode === 0 && stdout.toString().trim() === '{"ready": true}') return null;
  const said = stderr.toString().trim().split("\n").at(-1) || `exit code ${exitCode}`;
  return `programs are run in a sandbox, and bubblewrap cannot make one here: ${said}`;
}

const CHECK_LIMITS: SandboxLimits = {
  cpuSecondsMax: 10,
  wallMsMax: 20_000,
  memoryBytesMax: 2 ** 29,
  processesMax: 2,
  filesBytesMax: 2 ** 20,
  outputBytesMax: 2 ** 16,
};
