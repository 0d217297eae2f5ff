/** What a run shows. tests/e2e/terminal.test.ts has a real terminal. */
import { expect, test } from "bun:test";
import { mkdirSync, readFileSync, rmdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { SupervisorEvent } from "../../../actors/supervisor/supervision.ts";
import { RunView, type RunViewOptions } from "../../../scripts/cli/run-view.ts";
import { configOf } from "../../actors/training/stage.ts";
import { temporaryFolder } from "../temporary.ts";

function viewOf(options: Partial<RunViewOptions> = {}, settings = {}) {
  let text = "";
  const folder = temporaryFolder();
  const write = (part: string) => {
    text += part;
  };
  const plain = { quiet: false, terminal: false, write, columns: () => 40 };
  const view = new RunView({ config: configOf(settings), folder, ...plain, ...options });
  const line = (actor: string, level: string, kind: string, text: string, more = {}) =>
    view.line(actor, JSON.stringify({ level, kind, text, ...more }));
  return { view, folder, line, shown: () => text };
}

const GATE = "--join ws://127.0.0.1:7 --token-file t";

test.each([
  [{}, ""],
  [{ join: { listen: "ws://127.0.0.1:7" } }, `others may join: bun run sampler ${GATE}\n`],
  [{ sampler: { count: 0 } }, `the run starts no sampler, and waits until others lend one: bun run sampler ${GATE}\n`],
  [
    { sampler: { count: 0 }, envServer: { count: 0 } },
    `the run starts no sampler and no env-server, and waits until others lend one: bun run sampler ${GATE}; bun run env-server ${GATE}\n`,
  ],
])("where others may join: %j", (settings, text) => {
  const { view, shown } = viewOf({}, settings);
  view.event({ kind: "open", child: "gate", address: "ws://127.0.0.1:7", tokenFile: "t" });
  expect(shown()).toBe(text);
});

test.each<[SupervisorEvent, string]>([
  [{ kind: "exited", child: "learner", pid: 1, asked: false, code: 3, signal: null }, "learner died (exit code 3)\n"],
  [
    { kind: "exited", child: "learner", pid: 1, asked: false, code: null, signal: "SIGKILL" },
    "learner died (SIGKILL)\n",
  ],
  [{ kind: "exited", child: "learner", pid: 1, asked: true, code: 3, signal: null }, ""],
  [{ kind: "exited", child: "learner", pid: 1, asked: false, code: 0, signal: null }, ""],
  // The learner says which samplers come and go.
  [{ kind: "joined", child: "guest/1", role: "sampler" }, ""],
  [{ kind: "joined", child: "guest/1", role: "env-server" }, "guest/1 joined\n"],
  [{ kind: "left", child: "guest/1", role: "sampler", reason: "silent" }, ""],
  [{ kind: "left", child: "guest/1", role: "env-server", reason: "silent" }, "guest/1 left: silent\n"],
])("of %j", (event, text) => {
  const { view, shown } = viewOf();
  view.event(event);
  expect(shown()).toBe(text);
});

test("without a terminal every tenth update and every fifth step of the warm start are lines", () => {
  const { line, shown } = viewOf();
  for (let i = 0; i < 11; i++) for (const kind of ["warm", "update"]) line("learner", "info", kind, `${kind} ${i}`);
  expect(shown()).toBe("warm 0\nupdate 0\nwarm 5\nwarm 10\nupdate 10\n");
});

test("lines of the learner, the page and warnings of all actors are shown; with --quiet warnings only", () => {
  const show = (quiet: boolean) => {
    const { view, line, shown } = viewOf({ quiet });
    line("learner", "info", "phase", "reinforcement begins");
    line("learner", "debug", "phase", "a detail");
    line("sampler-0", "info", "phase", "sampler is ready");
    line("sink", "info", "page", "http://127.0.0.1:7/");
    line("sampler-0", "warning", "weights", "old\n  weights");
    view.line("env-server-0", "panic: \u001b[31m");
    expect(view.pageUrl).toBe("http://127.0.0.1:7/");
    return shown();
  };
  const warnings = "warning: sampler-0: old weights\nenv-server-0: panic: ‹1B›[31m\n";
  expect(show(true)).toBe(warnings);
  expect(show(false)).toBe(`reinforcement begins\npage: http://127.0.0.1:7/\n${warnings}`);
});

test("of warnings that differ in their numbers only, the first three and every tenth are lines", () => {
  const { line, shown, folder } = viewOf();
  for (let update = 1; update <= 25; update++) {
    line("learner", "warning", "filter", `update ${update}: 0 of 8 groups kept`);
    if (update === 5) line("learner", "warning", "filter", "another one");
  }
  expect(shown().split("\n")).toEqual([
    "warning: learner: update 1: 0 of 8 groups kept",
    "warning: learner: update 2: 0 of 8 groups kept",
    "warning: learner: update 3: 0 of 8 groups kept",
    "warning: learner: another one",
    "warning: learner: update 10: 0 of 8 groups kept (10 such warnings so far)",
    "warning: learner: update 20: 0 of 8 groups kept (20 such warnings so far)",
    "",
  ]);
  expect(readFileSync(join(folder, "log.jsonl"), "utf8").trim().split("\n")).toHaveLength(26);
});

test("on a terminal the lines at the foot are removed before a line, and are as narrow as the terminal", () => {
  const { view, line, shown } = viewOf({ terminal: true });
  // An empty foot, then one line, then two: 39 characters fit 40 columns without a break.
  line("learner", "info", "warm", "warm start ".repeat(9));
  line("learner", "info", "metrics", "", { step: 0, "train/entropy": 0.5 });
  line("sampler-0", "info", "metrics", "", { step: 0, "train/entropy": 0.75 });
  view.note("said");
  const phase = "warm start ".repeat(9).slice(0, 39);
  expect(shown()).toBe(`${phase}\r\u001b[J${phase}\nentropy 0.500\r\u001b[1A\u001b[Jsaid\n${phase}\nentropy 0.500`);
});

test("an alarm stays at the foot until the run is healthy again", () => {
  const { view, line, shown } = viewOf({ terminal: true });
  line("learner", "warning", "health", "collapsed");
  expect(shown().split("\n").at(-1)).toBe("ALARM collapsed");
  line("learner", "info", "health", "healthy");
  view.note("end");
  expect(shown().split("\n").at(-1)).toBe("");
});

test("a log that cannot be written is one warning, until it could be written again", () => {
  const { view, folder, line, shown } = viewOf();
  const log = join(folder, "log.jsonl");
  const said = () => shown().match(/^warning: lines are missing in .*log\.jsonl: EISDIR/gm)?.length ?? 0;
  mkdirSync(log);
  for (const text of ["one", "two"]) line("learner", "debug", "phase", text);
  expect(said()).toBe(1);
  rmdirSync(log);
  line("learner", "debug", "phase", "three");
  expect(readFileSync(log, "utf8")).toBe('{"level":"debug","kind":"phase","text":"three"}\n');
  rmSync(log);
  mkdirSync(log);
  line("learner", "debug", "phase", "four");
  expect(said()).toBe(2);
  const other = viewOf({ folder: join(folder, "none") });
  other.view.crashed(new Error("a stone"));
  expect(other.shown()).toContain("warning: lines are missing");
  view.clear();
});
