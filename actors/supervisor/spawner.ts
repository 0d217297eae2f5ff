/** How the supervisor gets child processes. Tests of its rules pass a fake; real runs pass `bunSpawner`. */

export interface Exit {
  /** null if a signal ended it. */
  readonly code: number | null;
  readonly signal: string | null;
}

export interface ChildProcess {
  readonly pid: number;
  /** Resolves once, when it is gone and its last lines were passed on. */
  readonly exited: Promise<Exit>;
  kill(signal: "SIGTERM" | "SIGKILL"): void;
}

export interface Spawner {
  /**
   * @param entry  path of the module to run.
   * @param actorSettings  first line of its standard input, which then stays open while this process lives: its end tells the
   *   child that it is an orphan.
   * @param output  called with each line it writes, on either stream.
   */
  spawn(entry: string, actorSettings: string, output: (line: string) => void): ChildProcess;
}

/** How long to wait for the last lines of a dead child: a grandchild may hold its streams open. */
const LAST_LINES_MS = 200;

/** Characters of one line passed on; the rest of a longer one is a line of its own. */
const LINE_MAX = 1 << 16;

export const bunSpawner: Spawner = {
  spawn(entry, actorSettings, output) {
    const child = Bun.spawn([process.execPath, entry], {
      stdin: "pipe",
      stdout: "pipe",
      stderr: "pipe",
      // As it is now, not as this process was given it: secrets are taken out.
      env: process.env,
    });
    const lines = Promise.all([readLines(child.stdout, output), readLines(child.stderr, output)]);
    child.stdin.write(`${actorSettings}\n`);
    // A child that dies before it read its actorSettings says so by its exit.
    Promise.resolve(child.stdin.flush()).catch(() => {});
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
