/** How the supervisor starts its children: as processes, or as Bun workers of this process. Tests use a fake spawner. */
import { realClock } from "../clock.ts";
import type { ChildMessage } from "../process/boot.ts";
import { linesOf } from "../process/lines.ts";

export interface Exit {
  /** The exit code; null if a signal ended the child. */
  readonly code: number | null;
  readonly signal: string | null;
}

export interface SpawnedChild {
  /** The child's process id; for a worker, the id of this process. */
  readonly pid: number;
  /** Resolves after the child's end, when `output` has got its last lines. For a process, this wait is at most `LAST_LINES_MS`. */
  readonly exited: Promise<Exit>;
  kill(signal: "SIGTERM" | "SIGKILL"): void;
}

export interface Spawner {
  /** True if children run on this thread. The supervisor does not start such a child again. */
  readonly sharesThread?: boolean;
  /**
   * @param entry  path of the module to run
   * @param settingsLine  first line of a process's standard input. The input stays open while this process lives. The end of
   *   the input tells the child that this process has ended. A worker gets the line as a message
   * @param output  called with each line that a process writes, on either stream, or that a worker logs
   * @throws {Error} with `errno`, if the operating system cannot start a process
   */
  spawn(entry: string, settingsLine: string, output: (line: string) => void): SpawnedChild;
}

/** Longest wait for the last lines of a dead child. The limit is needed because a grandchild may hold the child's streams open. */
const LAST_LINES_MS = 200;

/** The spawner splits a line with more characters than this: it does not wait for the line's end, and the rest becomes the next line. */
const LINE_MAX = 1 << 16;

/** Settings of Bun in an actor's process. A variable of the user's environment overrides the setting of the same name. */
const BUN_SETTINGS = {
  // JavaScriptCore's last compiler, FTL, compiles a function after ten times as much use as by default. At the default, FTL takes a tenth of the
  // CPU time of a run of half a minute. A longer run still compiles its most frequent functions.
  BUN_JSC_thresholdForFTLOptimizeAfterWarmUp: "640000",
  BUN_JSC_thresholdForFTLOptimizeSoon: "10000",
  // Memory that an actor frees goes back to the system after this many ms. At the default the system gets it at once, and an actor asks for
  // it again in the next update: this took 5 % of the CPU time.
  MIMALLOC_PURGE_DELAY: "1000",
};

export const processSpawner: Spawner = {
  spawn(entry, settingsLine, output) {
    const child = Bun.spawn([process.execPath, entry], {
      stdin: "pipe",
      stdout: "pipe",
      stderr: "pipe",
      // The current environment, from which this process has removed secrets. Bun's default, the environment at the start, still has them.
      env: { ...BUN_SETTINGS, ...process.env },
    });
    const lines = Promise.all([readLines(child.stdout, output), readLines(child.stderr, output)]);
    const sendSettings = async () => {
      child.stdin.write(`${settingsLine}\n`);
      await child.stdin.flush();
    };
    // If the child dies before it has read the line (EPIPE), its exit reports the failure.
    sendSettings().catch(() => {});
    return {
      pid: child.pid,
      exited: child.exited.then(async (): Promise<Exit> => {
        await Promise.race([lines, Bun.sleep(LAST_LINES_MS)]);
        return { code: child.exitCode, signal: child.signalCode === null ? null : String(child.signalCode) };
      }),
      kill: (signal) => child.kill(signal),
    };
  },
};

/** Longest wait for the end of a terminated worker. A worker ends only when its native code returns. */
const TERMINATE_MS_MAX = 5000;

/**
 * `kill` immediately ends a worker that loops in JavaScript. It cannot end a worker that hangs in native code: after `TERMINATE_MS_MAX` this
 * worker counts as ended, and its thread stays until this process ends.
 */
export const workerSpawner: Spawner = {
  spawn(entry, settingsLine, output) {
    const worker = new Worker(entry);
    const { promise: exited, resolve } = Promise.withResolvers<Exit>();
    let exit: Exit = { code: null, signal: "SIGKILL" };
    worker.onmessage = ({ data }: MessageEvent<ChildMessage>) => {
      if (data.kind === "line") output(data.line.trimEnd());
      if (data.kind === "exit") exit = { code: data.code, signal: null };
    };
    // Handles an error that comes before the actor has set its own handlers: for example, a module does not load.
    worker.onerror = (event) => {
      event.preventDefault();
      exit = { code: 1, signal: null };
      output(JSON.stringify({ level: "error", kind: "crash", text: event.message.trim() }));
    };
    worker.addEventListener("close", () => resolve(exit));
    worker.postMessage(settingsLine);
    return {
      pid: process.pid,
      exited,
      kill(signal) {
        exit = { code: null, signal };
        const cancel = realClock.after(TERMINATE_MS_MAX, () => {
          output(JSON.stringify({ level: "warning", kind: "stuck", text: STUCK_TEXT }));
          resolve(exit);
        });
        void exited.then(cancel);
        worker.terminate();
      },
    };
  },
};

const STUCK_TEXT =
  "this thread hangs in native code and stays until the process ends; with actors: processes it could be killed";

async function readLines(stream: ReadableStream<Uint8Array>, output: (line: string) => void): Promise<void> {
  for await (const line of linesOf(stream, LINE_MAX)) output(line);
}
