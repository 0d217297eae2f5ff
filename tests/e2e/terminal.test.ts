/** What a run shows on a terminal: one status line that moves, and lines that stay. The terminal is a real one (a pty). */
import { afterAll, expect, test } from "bun:test";
import { root } from "../scripts/command.ts";
import { removeTemporaryFolders } from "../scripts/temporary.ts";
import { LONG, Runs } from "./run-process.ts";

const runs = new Runs();
afterAll(removeTemporaryFolders);

const COLUMNS = 60;
const CLEAR = "\r\u001b[2K";

/** Everything a run writes to a terminal, standard output included. */
async function onTerminal(args: readonly string[]): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  const child = Bun.spawn([process.execPath, "scripts/run.ts", "cluster", ...args], {
    cwd: root,
    terminal: {
      cols: COLUMNS,
      rows: 30,
      data: (_, bytes) => {
        text += decoder.decode(bytes, { stream: true });
      },
    },
  });
  expect(await child.exited).toBe(0);
  child.terminal?.close();
  return text;
}

/** The lines as a person sees them: what was cleared is gone. */
const shown = (text: string) => text.split("\r\n").map((line) => line.split(CLEAR).at(-1)!);

test(
  "a terminal shows every update on one line that fits it, and keeps what should stay",
  async () => {
    const text = await onTerminal(runs.fresh({ learner: { updates: 4, filter: { strategy: "all" } } }).args);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: a terminal's escapes are what is looked for.
    const passing = text.split(/\r\n|\r\u001b\[2K/);
    for (let update = 1; update <= 4; update++) {
      const [line] = passing.filter((one) => one.startsWith(`update ${update}/4 · success `));
      expect(line!.length).toBeLessThan(COLUMNS);
    }
    const lines = shown(text);
    expect(lines.filter((line) => /^(update \d\/4 ·|warm start)/.test(line))).toEqual([]);
    expect(lines.filter((line) => line.startsWith("page: http://127.0.0.1:")).length).toBe(1);
    expect(lines.filter((line) => line.startsWith("v3 at temperature 0.5: success ")).length).toBe(1);
    expect(lines.filter((line) => line.startsWith("best possible ")).length).toBe(1);
  },
  LONG,
);

test(
  "--quiet leaves the result alone on it",
  async () => {
    const { args } = runs.fresh({ learner: { updates: 1, filter: { strategy: "all" } } });
    const lines = shown(await onTerminal([...args, "--quiet"]));
    expect(lines.slice(0, 2)).toEqual(["", `${"success".padEnd(13)} ${"T 0.5".padStart(8)} ${"T 1".padStart(8)}`]);
  },
  LONG,
);
