/** `bun run sampler` or `bun run env-server` as a process. */
import { join } from "node:path";
import { childEnv } from "../scripts/command.ts";

export class Guest {
  readonly #child: Bun.Subprocess<"ignore", "pipe", "pipe">;
  readonly ended: Promise<{ code: number; out: string; err: string }>;
  #err = "";
  #wake = () => {};

  /** @param wrap  words before the command, such as `ip netns exec HOST`. */
  constructor(
    command: "sampler" | "env-server",
    args: readonly string[],
    env: Record<string, string> = {},
    wrap: readonly string[] = [],
  ) {
    this.#child = Bun.spawn([...wrap, process.execPath, "scripts/run.ts", command, ...args], {
      cwd: join(import.meta.dir, "../.."),
      stdio: ["ignore", "pipe", "pipe"],
      env: childEnv(env),
    });
    const { stdout, exited } = this.#child;
    this.ended = Promise.all([stdout.text(), this.#read(), exited]).then(([out, err, code]) => ({ out, err, code }));
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** Resolves with the guest's name in the run. @throws {Error} with the guest's messages, if it ends before it has joined. */
  async joined(): Promise<string> {
    for (;;) {
      const name = /^joined \S+ at \S+ as (\S+)$/m.exec(this.#err)?.[1];
      if (name !== undefined) return name;
      if (this.#child.exitCode !== null) throw new Error(`the guest did not join:\n${this.#err}`);
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
    }
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async #read(): Promise<string> {
    for await (const bytes of this.#child.stderr) {
      this.#err += new TextDecoder().decode(bytes);
      this.#wake();
    }
    this.#wake();
    return this.#err;
  }
}
