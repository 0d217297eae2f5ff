/** A command on a real terminal: a pty. */
import { root } from "../scripts/command.ts";

export const COLUMNS = 60;

/** `bun run ARGS`, and everything that it writes to its terminal, standard output included. */
export async function onTerminal(args: readonly string[]): Promise<{ code: number; text: string }> {
  const decoder = new TextDecoder();
  let text = "";
  const child = Bun.spawn([process.execPath, "scripts/run.ts", ...args], {
    cwd: root,
    // Bun itself writes errors in red.
    env: { ...process.env, NO_COLOR: "1" },
    terminal: {
      cols: COLUMNS,
      rows: 30,
      data: (_, bytes) => {
        text += decoder.decode(bytes, { stream: true });
      },
    },
  });
  const code = await child.exited;
  child.terminal?.close();
  return { code, text };
}
