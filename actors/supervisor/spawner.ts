/** How the supervisor starts processes. Runs use `bunSpawner`, tests a fake. */

export interface Exit {
  /** null if a signal ended it. */
  readonly code: number | null;
  readonly signal: string | null;
}

export interface ChildProcess {
  readonly pid: number;
  /** Resolves when the process has ended and its last lines have been passed on. */
  readonly exited: Promise<Exit>;
  kill(signal: "SIGTERM" | "SIGKILL"): void;
}

export interface Spawner {
  /**
   * @param entry  path of the module to run
   * @param settingsLine  first line of the child's standard input. The input stays open while this process lives; its end tells
   *   the child that it is an orphan
   * @param output  called with each line that the child writes, on either stream
   * @throws {Error} with `errno`, if the system starts no process
   */
  spawn(entry: string, settingsLine: string, output: (line: string) => void): ChildProcess;
}

/** Time for the last lines of a dead child: a grandchild may hold its streams open. */
const LAST_LINES_MS = 200;

/** Characters of one line; the rest of a longer line becomes the next line. */
const LINE_MAX = 1 << 16;

export const bunSpawner: Spawner = {
  spawn(entry, settingsLine, output) {
    const child = Bun.spawn([process.execPath, entry], {
      stdin: "pipe",
      stdout: "pipe",
      stderr: "pipe",
      // The current environment, from which secrets have been removed, not that of this process's start.
      env: process.env,
    });
    const lines = Promise.all([readLines(child.stdout, output), readLines(child.stderr, output)]);
    const sendSettings = async () => {
      child.stdin.write(`${settingsLine}\n`);
      await child.stdin.flush();
    };
    // If the child dies before it has read the line (EPIPE), its exit says so.
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

async function readLines(stream: ReadableStream<Uint8Array>, output: (line: string) => void): Promise<void> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of stream) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) output(line);
    if (rest.length > LINE_MAX) {
      output(rest);
      rest = "";
    }
  }
  if (rest !== "") output(rest);
}
