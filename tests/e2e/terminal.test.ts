/** What a run shows on a terminal: a few lines at its foot that move, and lines that stay. The terminal is a real one (a pty). */
import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { isAlive } from "../../scripts/chaos/watch.ts";
import { COLUMNS, onTerminal } from "../scripts/command.ts";
import { LONG, RunProcess, Runs } from "./run-process.ts";

setDefaultTimeout(LONG);

const runs = new Runs("own");

async function trained(args: readonly string[]): Promise<string> {
  const { code, out } = await onTerminal(["cluster", ...args, "--exit"]);
  expect(code).toBe(0);
  return out;
}

/** What a terminal shows of it, at every moment that something was cleared, and at the end. */
function screens(text: string): string[][] {
  const seen: string[][] = [];
  const screen = [""];
  let row = 0;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: a terminal's controls are what is looked for.
  for (const [piece, up] of text.matchAll(/\u001b\[(\d+)A|\u001b\[J|\r|\n|[^\r\n\u001b]+/g)) {
    if (up !== undefined) row -= Number(up);
    else if (piece === "\u001b[J") {
      seen.push([...screen]);
      screen.splice(row, screen.length, "");
    } else if (piece === "\n") screen[++row] ??= "";
    else if (piece !== "\r") screen[row] += piece;
  }
  return [...seen, screen];
}
const shown = (text: string) => screens(text).at(-1)!;

test("a terminal shows the run at its foot, in lines that fit it, and keeps what should stay", async () => {
  // No constant group at all is an alarm too, from the second update on.
  const trap = { startUpdates: 1, patience: 1, constantGroups: 0, explainedAt: 1, solvedAt: 1 };
  const text = await trained([
    ...runs.fresh({ learner: { updates: 4, filter: { strategy: "all" } }, health: { trap } }).args,
    "--actors=one-thread",
  ]);
  const seen = screens(text);
  for (let update = 1; update <= 4; update++) {
    const screen = seen.find((lines) => lines.some((line) => line.includes(` · update ${update}/4`)))!;
    const [progress, success, learning, page] = screen.slice(-4);
    expect(progress).toMatch(new RegExp(`^[█░]{24} ${25 * update} % · update ${update}/4 · less than a `));
    expect(success).toMatch(/^success \d+\.\d % validated, \d+\.\d % trained \(random /);
    expect(learning).toMatch(/^reward -?\d+\.\d\d · in-group std \d+\.\d\d · entropy \d\.\d{3}/);
    expect(page).toMatch(
      update === 1 ? /^http:\/\/127\.0\.0\.1:\d+\/$/ : /^ALARM update 2: collapsed: groups hardly differ/,
    );
    for (const line of screen.slice(-4)) expect(line.length).toBeLessThan(COLUMNS);
  }
  const lines = shown(text);
  expect(lines.filter((line) => /^[█░]|^success \d|^update \d|^warm start \d/.test(line))).toEqual([]);
  expect(lines.filter((line) => line.startsWith("page: http://127.0.0.1:")).length).toBe(1);
  expect(lines.filter((line) => line.startsWith("v3 at temperature 0.5: success ")).length).toBe(1);
  expect(lines.filter((line) => line.startsWith("best possible ")).length).toBe(1);
});

test("--quiet leaves the result alone on it", async () => {
  const { args } = runs.fresh({ learner: { updates: 1, filter: { strategy: "all" } } });
  const lines = shown(await trained([...args, "--quiet", "--actors=one-thread"]));
  expect(lines.slice(0, 2)).toEqual(["", `${"success".padEnd(13)} ${"T 0.5".padStart(8)} ${"T 1".padStart(8)}`]);
});

test("the page stays after the run, at the same address, until Ctrl-C", async () => {
  const { folder, args } = runs.fresh({ learner: { updates: 1, filter: { strategy: "all" } } });
  const run = new RunProcess(folder, [...args, "--quiet"], { shell: "terminal" });
  const url = (await run.entry(({ kind }) => kind === "page")).text!;
  while (!existsSync(join(folder, "report.json")) || run.pids.some(isAlive)) await Bun.sleep(10);
  // biome-ignore lint/suspicious/noExplicitAny: answers of two kinds, which the test looks into.
  const ask = async (path: string): Promise<any> =>
    (await fetch(`${url}api/${path}`).catch(() => null))?.json() ?? null;
  let answer = await ask("run");
  while (answer === null) answer = await ask("run");
  expect(answer).toMatchObject({ phase: "finished", update: 1 });
  const { starts, settings } = await ask("setup");
  const { versions, command } = starts[0];
  expect([starts.length, command, versions.bun]).toEqual([
    1,
    ["bun run cluster", ...args, "--quiet"].join(" "),
    Bun.version,
  ]);
  expect(settings).toContainEqual({ path: "learner.updates", value: 1, default: 200 });
  run.process.type("\u0003");
  const { code, out } = await run.ended;
  expect([code, out.includes(`the page of the run stays at ${url} until Ctrl-C`)]).toEqual([0, true]);
});
