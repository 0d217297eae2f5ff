/** Starts a command as a process: its streams or its terminal, its exit code. */
import { expect } from "bun:test";
import { join } from "node:path";
import { format } from "node:util";
import { envModules, removeEnvs } from "../../envs/registry.ts";
import { runCommand } from "../../scripts/cli/run-command.ts";

export const root = join(import.meta.dir, "..", "..");

export interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

export interface StartOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Words before the command, such as `ip netns exec HOST`. */
  readonly wrap?: readonly string[];
  /**
   * Starts the command as a shell does: `bun run` around the command, in a process group of their own.
   * "terminal": on a terminal (a pty); all that it shows is in `Ended.out`.
   */
  readonly shell?: "pipes" | "terminal";
  /** Standard error goes to this file; then `Ended.err` is empty. */
  readonly errorsTo?: string;
}

export const COLUMNS = 60;

/**
 * The environment of a process that a test starts. Such a process ends within seconds. In so short a time, JavaScriptCore's optimizing
 * compiler costs more CPU time than the optimized code saves. The test's own process keeps this compiler, as it may compute for long.
 */
export const childEnv = (env: Readonly<Record<string, string>> = {}): Record<string, string | undefined> => ({
  BUN_JSC_useDFGJIT: "0",
  ...process.env,
  ...env,
});

export class CommandProcess {
  readonly ended: Promise<Ended>;
  readonly #child: Bun.Subprocess;

  constructor(args: readonly string[], options: StartOptions = {}) {
    const { cwd = root, env = {}, wrap = [], shell, errorsTo } = options;
    const entry = shell === undefined ? ["scripts/run.ts"] : ["run", "--silent"];
    const argv = [...wrap, process.execPath, ...entry, ...args];
    const common = { cwd, env: childEnv({ FORCE_COLOR: "0", NO_COLOR: "1", ...env }) };
    if (shell === "terminal") {
      const decoder = new TextDecoder();
      let out = "";
      const data = (_: Bun.Terminal, bytes: Uint8Array) => {
        out += decoder.decode(bytes, { stream: true });
      };
      const child = Bun.spawn(argv, { ...common, terminal: { cols: COLUMNS, rows: 30, data } });
      this.#child = child;
      this.ended = child.exited.then((code) => {
        this.closeTerminal();
        return { code, out, err: "" };
      });
      return;
    }
    const stderr = errorsTo === undefined ? "pipe" : Bun.file(errorsTo);
    const child = Bun.spawn(argv, { ...common, stdio: ["ignore", "pipe", stderr], detached: shell === "pipes" });
    this.#child = child;
    const err = child.stderr instanceof ReadableStream ? child.stderr.text() : Promise.resolve("");
    this.ended = Promise.all([child.stdout.text(), err, child.exited]).then(([out, err, code]) => ({ code, out, err }));
  }

  get pid(): number {
    return this.#child.pid;
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Signals every process of its group at once, as `timeout` and systemd do. Needs `shell`. */
  killGroup(signal: NodeJS.Signals): void {
    process.kill(-this.pid, signal);
  }

  /** Needs `shell: "terminal"`. */
  type(keys: string): void {
    this.#child.terminal!.write(keys);
  }

  closeTerminal(): void {
    if (this.#child.terminal?.closed === false) this.#child.terminal.close();
  }
}

/** `bun run ARGS` to its end, in this repository or another folder that has scripts/run.ts. */
export function command(args: readonly string[], cwd = root, env: Record<string, string> = {}): Promise<Ended> {
  return new CommandProcess(args, { cwd, env }).ended;
}

/** Events that a command listens to. `commandHere` removes the command's listeners: a test file's own process must not keep them. */
const LISTENED = ["uncaughtException", "unhandledRejection", "SIGINT", "SIGTERM", "SIGHUP"] as const;

/**
 * `bun run ARGS` in this process: help, refusals, and runs with --actors one-thread. A process for each takes time to start, and compiles
 * again what the file has compiled. Commands that read standard input or that are sent signals need a process.
 *
 * @param env  set while the command runs
 */
export async function commandHere(
  [name, ...args]: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Ended> {
  const [log, error, before, write] = [console.log, console.error, { ...process.env }, process.stderr.write];
  const modules = new Set(envModules());
  const listeners = LISTENED.map((event) => [event, new Set(process.listeners(event))] as const);
  let [out, err] = ["", ""];
  console.log = (...values) => {
    out += `${format(...values)}\n`;
  };
  console.error = (...values) => {
    err += `${format(...values)}\n`;
  };
  process.stderr.write = (text: string | Uint8Array) => {
    err += typeof text === "string" ? text : new TextDecoder().decode(text);
    return true;
  };
  Object.assign(process.env, env);
  try {
    return { code: await runCommand(name!, args), out, err };
  } finally {
    [console.log, console.error] = [log, error];
    process.stderr.write = write;
    // Errors about unknown tags name the nearest of all tags, so a later test must not see the envs of this command.
    for (const module of envModules()) if (!modules.has(module)) removeEnvs(module);
    for (const [event, known] of listeners)
      for (const listener of process.listeners(event)) if (!known.has(listener)) process.off(event, listener);
    for (const key of Object.keys(env)) {
      if (before[key] === undefined) delete process.env[key];
      else process.env[key] = before[key];
    }
  }
}

/** Expects success; a failure shows what the command said. */
export function expectSuccess({ code, err }: Ended): void {
  expect({ code, err: code === 0 ? "" : err }).toEqual({ code: 0, err: "" });
}

/** Expects a command that ends with `expected`, says nothing but one line of error, and that the line has this text. */
export function expectRefusal({ code, out, err }: Ended, told: RegExp, expected = 2): void {
  expect({ code, out, lines: err.trimEnd().split("\n").length }).toEqual({ code: expected, out: "", lines: 1 });
  expect(err).toMatch(told);
}

/** `bun run ARGS` to its end, on a terminal. */
export function onTerminal(args: readonly string[]): Promise<Ended> {
  return new CommandProcess(args, { shell: "terminal" }).ended;
}
