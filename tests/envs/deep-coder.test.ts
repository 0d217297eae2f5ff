import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { evaluatePlayer } from "../../envs/analysis/evaluate.ts";
import { DeepCoderGame } from "../../envs/deep-coder/game.ts";
import { readProblems, taskOf, wholeProgram } from "../../envs/deep-coder/problem.ts";
import { missingForSandbox, runSandboxed, type SandboxLimits } from "../../envs/deep-coder/sandbox.ts";
import { verdict } from "../../envs/deep-coder/verdict.ts";
import { openEpisode } from "../../envs/episode.ts";
import { limiter } from "../../envs/outside/json-server.ts";
import { envTag } from "../../envs/registry.ts";
import { describeWhere } from "../needs.ts";
import { temporaryFolder } from "../scripts/temporary.ts";

const dataPath = join(import.meta.dir, "data", "deepcoder.jsonl");
const [sum, squares, reverse, even] = readProblems(dataPath, 10, "all");

const lack = missingForSandbox();

const LIMITS: SandboxLimits = {
  cpuSecondsMax: 1,
  wallMsMax: 20_000,
  memoryBytesMax: 256 * 2 ** 20,
  processesMax: 4,
  filesBytesMax: 2 ** 20,
  filesMax: 100,
  outputBytesMax: 2 ** 20,
};

/** Runs a program that reads its input, on one input. Gives the reason for a stop, and the results. */
async function outcome(code: string, limits: Partial<SandboxLimits> = {}, input = "") {
  const task = { code, function: null, tests: [{ input }] };
  const { lines, stopped } = await runSandboxed(task, { ...LIMITS, ...limits }).ended;
  const [ready, ...results] = lines;
  expect(ready).toBe('{"ready": true}');
  return { stopped, results: results.join("\n") };
}

describeWhere(lack, "the sandbox", () => {
  test("runs a program on its input", async () => {
    expect(await outcome("print(int(input()) * 2)", {}, "21\n")).toEqual({
      stopped: null,
      results: '{"test": 0, "ok": true, "out": "42\\n"}',
    });
  });

  test("gives what competitors use: sys.stdin.buffer, sys.exit, a thread with a large stack", async () => {
    const code = `
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(64 * 2**20)
def main():
    print(sum(map(int, sys.stdin.buffer.read().split())))
thread = threading.Thread(target=main)
thread.start()
thread.join()
sys.exit(0)`;
    expect((await outcome(code, {}, "1 2 3")).results).toContain('"out": "6\\n"');
  });

  test.each([
    ["open(0)", "with open(0) as given:\n    print(given.read())"],
    ["os.read of its size", "import os\nprint(os.read(0, os.fstat(0).st_size).decode())"],
    ["sys.stdin.fileno()", "import os, sys\nprint(os.read(sys.stdin.fileno(), 100).decode())"],
    ["a file of its own", "open('own', 'w').write(input())\nprint(open('own').read())"],
  ])("gives each test its input, also to %s", async (_, code) => {
    const task = { code, function: null, tests: [{ input: "1 2" }, { input: "ß 3" }, { input: "45" }] };
    const { lines } = await runSandboxed(task, { ...LIMITS, filesMax: 1 }).ended;
    expect(lines.slice(1).map((line) => JSON.parse(line).out)).toEqual(["1 2\n", "ß 3\n", "45\n"]);
  });

  test.each([
    ["its own wrapper of sys.stdout.buffer", "sys.stdout = wrapped()\nprint(int(input()) + 1, 'ß')"],
    ["a wrapper that it keeps", "out = sys.stdout = wrapped()\nprint(int(input()) + 1, 'ß')"],
    [
      "its own wrapper of what it detached",
      "sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')\nprint(int(input()) + 1, 'ß')",
    ],
    ["sys.stdout, and closes it", "print(int(input()) + 1, 'ß')\nsys.stdout.close()"],
  ])("takes what a program prints to %s", async (_, code) => {
    const head = "import io, sys\ndef wrapped():\n    return io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\n";
    const task = { code: head + code, function: null, tests: [{ input: "1" }, { input: "2" }] };
    const { lines } = await runSandboxed(task, LIMITS).ended;
    expect(lines.slice(1).map((line) => JSON.parse(line))).toEqual([
      { test: 0, ok: true, out: "2 ß\n" },
      { test: 1, ok: true, out: "3 ß\n" },
    ]);
  });

  test("gives an input that exceeds the limit of files to sys.stdin", async () => {
    const long = await outcome("print(len(input()))", { filesBytesMax: 2 ** 16 }, "x".repeat(2 ** 17));
    expect(long.results).toContain('"out": "131072\\n"');
  });

  test("orders sets alike in every run", async () => {
    const code = "print({'ant', 'bee', 'cat', 'dog', 'emu', 'fox'})";
    expect(await outcome(code)).toEqual(await outcome(code));
  });

  test.each([
    ["the network", "import socket\nsocket.create_connection(('1.1.1.1', 53), 5)", "Network is unreachable"],
    ["this machine's ports", "import socket\nsocket.create_connection(('127.0.0.1', 22), 5)", "Connection refused"],
    [
      "a way to a virtual machine's host",
      "import socket\nsocket.socket(40, socket.SOCK_STREAM)",
      "Operation not permitted",
    ],
    [
      "the kernel's routing and ciphers",
      "import socket\nfor family in (16, 38):\n  try: socket.socket(family, 3)\n  except PermissionError: continue\n  print('open')\nraise PermissionError('both refused')",
      "both refused",
    ],
    ["names", "import socket\nprint(socket.gethostbyname('example.org'))", "gaierror"],
    ["a file outside", `print(open(${JSON.stringify(import.meta.path)}).read())`, "No such file"],
    ["passwords", "print(open('/etc/passwd').read())", "No such file"],
    ["a file in /usr", "open('/usr/hello', 'w')", "Read-only file system"],
    ["a file in the root", "open('/hello', 'w')", "Read-only file system"],
    ["a file in /dev", "open('/dev/hello', 'w')", "Read-only file system"],
    ["a large file", "open('/tmp/hello', 'wb').write(bytes(2**22))", "File too large"],
    ["many files", "for i in range(9): open(f'/tmp/{i}', 'wb').write(bytes(2**18))", "No space left"],
    [
      "many empty files",
      "for i in range(1000):\n  try: open(f'/tmp/{i}', 'w')\n  except OSError as error: raise OSError(i, error.strerror)",
      "OSError(100, 'No space left on device')",
    ],
    ["memory", "print(len(bytearray(2**30)))", "MemoryError"],
    [
      "a fork bomb's children",
      "import os, time\nfor i in range(9):\n  if os.fork() == 0: time.sleep(60)",
      "temporarily unavailable",
    ],
    ["another process", "import os\nos.kill(1, 9)\nos.kill(-1, 9)", "No such process"],
    [
      "shared memory, which no limit counts",
      "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.shmget(0, 2**20, 0o1600)\nraise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))",
      "Operation not permitted",
    ],
    [
      "secret memory, which no limit counts",
      "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.syscall(447, 0)\nraise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))",
      "Operation not permitted",
    ],
    [
      "namespaces of its own",
      "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nassert libc.unshare(0x10000000) == -1\nraise OSError(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None), 'refused')",
      "OSError(-1, 'refused')",
    ],
  ])("refuses %s", async (_, code, error) => {
    const { results } = await outcome(code);
    expect(results).toContain('"ok": false');
    expect(results).toContain(error);
  });

  test("shows nothing of this process: its environment, its user, its files, its processes", async () => {
    process.env["SANDBOX_TEST_SECRET"] = "do not tell";
    const { results } = await outcome(
      "import os\nprint(sorted(os.environ), os.getuid(), os.getppid(), sorted(os.listdir('/')))",
    );
    delete process.env["SANDBOX_TEST_SECRET"];
    const environment = "['HOME', 'LC_CTYPE', 'PWD', 'PYTHONHASHSEED']";
    const files = "['bin', 'dev', 'lib', 'lib64', 'tmp', 'usr']";
    expect(JSON.parse(results).out.trim()).toBe(`${environment} 65534 1 ${files}`);
  });

  test("ends an endless loop by its processor time, whatever the clock says", async () => {
    expect(await outcome("while True: pass")).toEqual({ stopped: null, results: "" });
  });

  test("kills programs that sleep, fork endlessly or catch every exception, with all of their processes", async () => {
    const forks = "import os\nwhile True:\n  try: os.fork()\n  except BaseException: pass";
    const sleeps = "import time\nwhile True:\n  try: time.sleep(1000)\n  except BaseException: pass";
    // A size that no other sandbox of this machine has, to know ours by.
    const filesBytesMax = 2 ** 20 + process.pid;
    for (const code of [forks, sleeps]) {
      const limits = { wallMsMax: 1500, cpuSecondsMax: 60, filesBytesMax };
      expect(await outcome(code, limits)).toEqual({ stopped: "time", results: "" });
    }
    const { stdout } = Bun.spawnSync(["ps", "-eo", "args"]);
    expect(stdout.toString().includes(`--fsize=${filesBytesMax}`)).toBe(false);
    expect(stdout.toString().includes("ps -eo args")).toBe(true);
  });

  test("ends who writes too much, past the harness or through it", async () => {
    expect((await outcome("import os\nwhile True: os.write(1, b'x' * 65536)")).stopped).toBe("output");
    expect((await outcome("print('x' * 2**21)")).stopped).toBe("output");
  });

  // As `yes` prints: two bytes a line.
  test.each([
    ["its output", [1]],
    ["the pipe of the results", [3, 4, 5, 6]],
  ])("keeps few lines of a program that prints endlessly to %s", async (_, descriptors) => {
    const code = `
import os
for fd in ${JSON.stringify(descriptors)}:
    try:
        while True: os.write(fd, b'y\\n' * 2**15)
    except OSError: pass`;
    const task = { code, function: null, tests: [{ input: "" }] };
    const { lines, stopped } = await runSandboxed(task, { ...LIMITS, outputBytesMax: 2 ** 24 }).ended;
    expect(stopped).toBe("output");
    expect(lines.length).toBeLessThanOrEqual(2);
  });

  test("is ended from outside", async () => {
    const run = runSandboxed({ code: "while True: pass", function: null, tests: [{ input: "" }] }, LIMITS);
    run.kill();
    expect((await run.ended).stopped).toBe("closed");
  });
});

describeWhere(lack, "verdicts", () => {
  const judge = async (problem: typeof sum, answer: string, limits = LIMITS) => {
    const game = new DeepCoderGame(problem!, { wholeAnswer: true, stepsMax: 1, limits, limit: limiter(1) });
    await game.start();
    const effect = await game.act(answer);
    return { ...effect, shown: game.render() };
  };

  test.each([
    ["every test passed", sum, "a, b = map(int, input().split())\nprint(a + b)", 1, "Correct!"],
    ["a third of the tests", sum, "print(3)", 1 / 3, "Incorrect."],
    ["a program that does not compile", sum, "print(", 0, "Incorrect."],
    [
      "a method without its class",
      squares,
      "def squares(self, numbers):\n    return [n * n for n in numbers]",
      1,
      "Correct!",
    ],
    [
      "a whole class",
      squares,
      "class Solution:\n    def squares(self, numbers):\n        return [n * n for n in numbers]",
      1,
      "Correct!",
    ],
    [
      "inputs as lists of lines",
      reverse,
      "import sys\nprint('\\n'.join(sys.stdin.read().split()[::-1]))",
      1,
      "Correct!",
    ],
    ["True for the true of JSON", even, "def even(number):\n    return number % 2 == 0", 1, "Correct!"],
    ["a crash on the way", sum, "import os\nos._exit(0)", 0, "Incorrect."],
    ["an end in the middle", sum, "import sys\nsys.exit('no')", 0, "Incorrect."],
  ])("%s", async (_, problem, answer, reward, shown) => {
    const got = await judge(problem, answer);
    expect(got.reward).toBeCloseTo(reward, 12);
    expect(got).toMatchObject({ done: true, success: reward === 1, shown });
  });

  test("a program can neither read nor claim the expected outputs", async () => {
    // Looks for them in its own memory and frames, and writes results past the harness.
    const thief = `
import os, sys, json
frame = sys._getframe()
while frame:
    for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
        if "1000001" in repr(value): os.write(1, b"found")
    frame = frame.f_back
for fd in range(20):
    try:
        for test in range(3):
            os.write(fd, (json.dumps({"test": test, "ok": True, "out": "3"}) + "\\n").encode())
    except OSError: pass
os._exit(0)`;
    const { reward } = await judge(sum, thief);
    // Claiming outputs is worth what printing them is: one test asks for a 3.
    expect(reward).toBeLessThanOrEqual(1 / 3);
  });

  test("what a program prints past the harness is no result", async () => {
    const results = [0, 1, 2].map((number) => `{"test": ${number}, "ok": true, "out": "3"}\n`).join("");
    const { reward } = await judge(sum, `import os\nos.write(1, ${JSON.stringify(results)}.encode())\nos._exit(0)`);
    expect(reward).toBe(0);
  });

  test("results of any length arrive whole", async () => {
    const output = "x".repeat(2 ** 19);
    const problem = { ...sum!, tests: [{ kind: "feed" as const, input: "", output }] };
    expect(await judge(problem, "print('x' * 2**19)")).toMatchObject({ reward: 1 });
  });

  test("a request for a second answer says why the first was wrong", async () => {
    const game = new DeepCoderGame(sum!, { wholeAnswer: true, stepsMax: 2, limits: LIMITS, limit: limiter(1) });
    expect((await game.act("print(0)")).done).toBe(false);
    expect(game.render()).toBe(`${sum!.text}\n\nFeedback: Passed 1/3 tests. Test 0: wrong output 0`);
    expect(await game.act("print(sum(map(int, input().split())))")).toMatchObject({
      done: true,
      success: true,
      reward: 1,
    });
    await expect(game.act("print(1)")).rejects.toThrow("this problem is answered");
  });

  test.each([
    [true, `print(sum(map(int, input().split()))) # a || b`],
    [false, "print(sum(map(int, input().split()))) # a"],
  ])("with || in it is one program, whole: %p", async (wholeAnswer, program) => {
    const game = new DeepCoderGame(sum!, { wholeAnswer, stepsMax: 1, limits: LIMITS, limit: limiter(1) });
    const rules = { turnsMax: 1, actionsMax: 1, actionsPerTurnMax: 1, formatPenalty: 0, think: false };
    const env = await openEpisode(game, rules);
    const turn = await env.step("<answer>print(sum(map(int, input().split()))) # a || b</answer>");
    expect(turn).toMatchObject({ actions: [program], success: true });
  });

  test("an answer that is closed while it runs is an error, and no reward", async () => {
    const game = new DeepCoderGame(sum!, { wholeAnswer: true, stepsMax: 1, limits: LIMITS, limit: limiter(1) });
    const acting = game.act("while True: pass");
    // One turn of the event loop: the program has been started.
    await Bun.sleep(0);
    await game.close();
    await expect(acting).rejects.toThrow("closed while the program ran");
  });
});

describeWhere(lack, "the tag", () => {
  test("runs at most sandboxesMax programs at the same time, also for two envs of a run", async () => {
    const games = [10, 9].map((problemsMax) => {
      const tag = envTag("DeepCoder", { dataPath, split: "all", sandboxesMax: 1, problemsMax });
      return tag.open({ layout: 1, dynamics: 1 }) as DeepCoderGame;
    });
    const ended: string[] = [];
    const acted = ["import time\ntime.sleep(0.5)", "print(1)"].map(async (program, i) => {
      await games[i]!.act(program);
      ended.push(program);
    });
    await Promise.all(acted);
    expect(ended.at(-1)).toBe("print(1)");
  });

  test("plays 64 random episodes: no program of chance solves these problems, some pass a test", async () => {
    const tag = envTag("DeepCoder", { dataPath, split: "all" });
    expect(tag.missing?.()).toBeNull();
    const played = await evaluatePlayer(tag, tag.random, { episodes: 64, seed: 123 });
    expect(played.success).toBe(0);
    expect(played.meanReward).toBeWithin(0.001, 0.3);
    expect(played.meanActions).toBe(1);
  });
});

describe("verdict", () => {
  test("throws where the sandbox failed before the program", () => {
    expect(() => verdict(sum!, { lines: [], stopped: null })).toThrow("the sandbox ended before the program started");
  });

  test.each([
    ["time", "Test 1 did not end: it took too long."],
    ["output", "Test 1 did not end: it wrote too much."],
    [null, "Test 1 did not end: the program crashed or was killed."],
  ] as const)("counts nothing of a run that was stopped by %p", (stopped, detail) => {
    const lines = ['{"ready": true}', '{"test": 0, "ok": true, "out": "3"}'];
    expect(verdict(sum!, { lines, stopped })).toEqual({
      passed: 0,
      total: 3,
      runnable: false,
      detail: `Passed 0/3 tests. ${detail}`,
    });
  });
});

describe("forged results", () => {
  const one = { ...squares!, tests: [{ kind: "call" as const, input: [1], output: [1] }] };
  const passed = (result: string) => verdict(one, { lines: ['{"ready": true}', result], stopped: null }).passed;
  const brackets = "[".repeat(100_000) + "]".repeat(100_000);

  test.each([
    ["an equal value", '{"test": 0, "ok": true, "out": "x", "json": "[1]"}', 1],
    ["an output with quotes and brackets", '{"test": 0, "ok": true, "out": "\\\\\\"[{", "json": "[1]"}', 1],
    ["a nested value beside the result", `{"test": 0, "ok": true, "out": "x", "json": "[1]", "more": ${brackets}}`, 0],
    ["an object in the line", '{"test": 0, "ok": true, "out": "x", "json": "[1]", "more": {}}', 0],
    ["an equal value among much space", `{"test": 0, "ok": true, "out": "x", "json": "[1${" ".repeat(2000)}]"}`, 0],
    ["deep brackets as the value", `{"test": 0, "ok": true, "out": "x", "json": "${brackets}"}`, 0],
  ])("%s", (_, line, expected) => {
    expect(passed(line)).toBe(expected);
  });
});

test("the results of a stopped program do not count", () => {
  const results = sum!.tests.map(({ output }, test) => JSON.stringify({ test, ok: true, out: output }));
  const lines = ['{"ready": true}', ...results];
  expect(verdict(sum!, { lines, stopped: null })).toMatchObject({ passed: 3 });
  expect(verdict(sum!, { lines, stopped: "time" })).toEqual({
    passed: 0,
    total: 3,
    runnable: false,
    detail: "Passed 0/3 tests. The program did not end: it took too long.",
  });
});

describe("problems", () => {
  test("keep every digit of a large integer, which no number holds", async () => {
    const path = join(temporaryFolder(), "large.jsonl");
    const cases = '[{"input": [9007199254740993], "output": [9007199254740993, 1], "testtype": "functional"}]';
    const rest = '"problem": "p", "metadata": {"func_name": "f"}';
    await Bun.write(path, `{"tests": ${cases}, ${rest}}\n{"tests": ${JSON.stringify(cases)}, ${rest}}\n`);
    for (const problem of readProblems(path, 10, "all")) {
      expect(JSON.stringify(taskOf(problem, ""))).toContain('"arguments":[9007199254740993]');
      const result = (json: string) => JSON.stringify({ test: 0, ok: true, out: "x", json });
      const passed = (json: string) =>
        verdict(problem, { lines: ['{"ready": true}', result(json)], stopped: null }).passed;
      expect([passed("[9007199254740993, 1]"), passed("[9007199254740992, 1]")]).toEqual([1, 0]);
    }
  });

  test("name the row and the column that is not JSON", async () => {
    const path = join(temporaryFolder(), "cut.jsonl");
    const row = (tests: string) => JSON.stringify({ problem: "p", tests });
    await Bun.write(path, `${row('[{"input": "", "output": ""}]')}\n${row("[{")}\n`);
    expect(() => readProblems(path, 10, "all")).toThrow("cut.jsonl, row 2: tests: is not JSON: ");
  });

  test("are read with their tests, whichever way these are written", () => {
    expect(sum!.tests[1]).toEqual({ kind: "feed", input: "-5 5\n", output: "0\n" });
    expect(squares).toMatchObject({ functionName: "squares", tests: [{ kind: "call" }, { kind: "call" }] });
    expect(squares!.text).toEndWith(
      "of numbers.\n\nStarter code:\nclass Solution:\n    def squares(self, numbers: list[int]) -> list[int]:\n        ",
    );
    expect(reverse!.tests).toHaveLength(2);
  });

  test.each([
    ["", "print(1)", "print(1)"],
    ["class Solution:\n    pass", "class Solution: ...", "class Solution: ..."],
    ["class Solution:\n", "def f(self):\n\n  return 1", "class Solution:\n\n    def f(self):\n\n      return 1"],
    ["class Solution:\n    x = 1\n", "def f(self): ...", "class Solution:\n    x = 1\n\n    def f(self): ..."],
    [
      "import re\nclass Solution:\n    def f(self):\n        ",
      "def f(self): ...",
      "import re\nclass Solution:\n\n    def f(self): ...",
    ],
    ["def f(n):\n    ", "def f(n): ...", "def f(n): ..."],
    ["import math", "\nprint(math.pi)\n", "import math\n\nprint(math.pi)"],
    ["import math", "", "import math"],
  ])("%j and %j are the program %j", (starter, answer, program) => {
    expect(wholeProgram(starter, answer)).toBe(program);
  });

  test("say what is missing, and how to get it", () => {
    expect(envTag("DeepCoder").missing?.()).toStartWith(
      "DeepCoder needs a file: download one from https://huggingface.co/",
    );
    expect(() => envTag("DeepCoder", { dataPath: "/no.parquet" }).open({ layout: 0, dynamics: 0 })).toThrow(
      "there is no file /no.parquet",
    );
  });
});

test("a limiter runs as many tasks as it may, the others in the order of their calls", async () => {
  const limit = limiter(2);
  const started: number[] = [];
  const ends = [0, 1, 2, 3].map(() => Promise.withResolvers<void>());
  const tasks = ends.map(({ promise }, task) =>
    limit(async () => {
      started.push(task);
      await promise;
      if (task === 1) throw new Error("a failed task leaves its place too");
    }).catch(String),
  );
  expect(started).toEqual([0, 1]);
  ends[1]!.resolve();
  await tasks[1];
  expect(started).toEqual([0, 1, 2]);
  for (const { resolve } of ends) resolve();
  await Promise.all(tasks);
  expect(started).toEqual([0, 1, 2, 3]);
});
