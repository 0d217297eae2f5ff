/** test, bench, check, doctor and setup, each as a process; the first three on a small project of their own. */
import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { totalmem } from "node:os";
import { join } from "node:path";
import { envModules } from "../../envs/registry.ts";
import { isAlive } from "../../scripts/chaos/watch.ts";
import { CommandProcess, command, commandHere, root } from "./command.ts";
import { smallProject } from "./project.ts";

const lastLine = (text: string) => text.trimEnd().split("\n").at(-1);

describe("bun run test", async () => {
  const about = (body: string) => `import { expect, test } from "bun:test"; ${body}`;
  const folder = await smallProject(
    {
      "tests/good.test.ts": about("test('one', () => expect(1).toBe(1)); test('two', () => expect(2).toBe(2));"),
      "tests/bad.test.ts": about(
        "test('three', () => expect(1).toBe(2)); test.skip('four (skipped: no fifth)', () => {});",
      ),
      "tests/timings.json": JSON.stringify({
        version: 1,
        files: { "tests/good.test.ts": 1000, "tests/bad.test.ts": 1001, "tests/fallen.test.ts": 5000 },
      }),
      "tests/fallen.test.ts": "throw new Error('before any test');",
    },
    ["scripts/test.ts", "actors/process/lines.ts"],
  );
  await command(["hello"], folder);

  test("ends standard output with the counts, and with bun test's exit code", async () => {
    const { code, out, err } = await command(["test"], folder);
    expect([code, lastLine(out)]).toEqual([1, "2 passed, 2 failed, 1 skipped"]);
    expect(err).toContain("(fail) three");
    expect(out).toContain("not tested here: no fifth (1 tests)");
  });

  test("hands arguments on", async () => {
    const one = await command(["test", "good", "-t", "two"], folder);
    expect([one.code, lastLine(one.out)]).toEqual([0, "1 passed, 0 failed, 0 skipped"]);
    const fallen = await command(["test", "fallen"], folder);
    expect([fallen.code, lastLine(fallen.out)]).toEqual([1, "0 passed, 1 failed, 0 skipped"]);
  });

  test("--quick leaves out files that take more than a second, and takes no name", async () => {
    const quick = await command(["test", "--quick"], folder);
    expect(quick.out).toContain(
      "--quick left out 2 files; `bun run test` runs them all\n2 passed, 0 failed, 0 skipped\n",
    );
    const one = await command(["test", "--quick", "-t", "two"], folder);
    expect([one.code, lastLine(one.out)]).toEqual([0, "1 passed, 0 failed, 0 skipped"]);
    const { code, err } = await command(["test", "--quick", "good"], folder);
    expect([code, err]).toEqual([2, 'error: --quick chooses the files itself; leave out --quick, or "good"\n']);
  });

  test.each([
    [["--nope"], "test has no flag --nope; `bun test --help` lists the flags"],
    [["good", "--bial=2"], "test has no flag --bial; did you mean --bail?"],
    [["--quick", "-x"], "test has no flag -x; `bun test --help` lists the flags"],
  ])("%p is refused, because bun test would run all tests", async (args, message) => {
    expect(await command(["test", ...args], folder)).toEqual({ code: 2, out: "", err: `error: ${message}\n` });
  });

  test("hands on a pattern that begins with a hyphen, and flags in each form", async () => {
    const { code, err } = await command(["test", "good", "-t", "--two", "--only-failures", "--retry=1"], folder);
    expect([code, err]).toEqual([1, expect.stringContaining("--two")]);
    const one = await command(["test", "good", "--test-name-pattern=two", "--bail", "--seed", "3"], folder);
    expect([one.code, lastLine(one.out)]).toEqual([0, "1 passed, 0 failed, 0 skipped"]);
  });

  test("fails if nothing ran", async () => {
    const { code, err } = await command(["test", "nowhere"], folder);
    expect([code, lastLine(err)]).toEqual([1, "error: no test ran: `bun test` ended with 1 (see above)"]);
  });

  test("ends with its workers on SIGTERM", async () => {
    const file = join(folder, "pid");
    const body = `require("fs").writeFileSync(${JSON.stringify(file)}, String(process.pid)); return new Promise(() => {});`;
    await Bun.write(join(folder, "tests/waits.test.ts"), about(`test("waits", () => { ${body} });`));
    const run = new CommandProcess(["test", "waits"], { cwd: folder });
    const worker = () => (existsSync(file) ? Number(readFileSync(file, "utf8")) : 0);
    while (worker() === 0) await Bun.sleep(10);
    run.kill("SIGTERM");
    expect([(await run.ended).code, isAlive(worker())]).toEqual([143, false]);
  });
});

describe("bun run bench", async () => {
  const folder = await smallProject(
    {
      "bench/sum.bench.ts":
        "export const summary = 'adds'; let runs = 0;\n" +
        "export async function run({ a = '1', b = '2' }) {\n" +
        "  console.log('adding');\n" +
        "  const comparisons = [{ what: 'sum of two', ours: '2 ms', reference: 'peer 3 ms', speed: 1.5, goal: 2 }];\n" +
        "  return { name: 'sum', comparisons, sum: Number(a) + Number(b), runs: ++runs }; }",
      "bench/falls.bench.ts":
        "export const summary = 'falls'; export async function run({ why = 'no engine' }) { throw new Error(why); }",
    },
    ["scripts/bench.ts", "scripts/cli/texts.ts", "actors/process/lines.ts", "actors/errors.ts"],
  );
  await command(["hello"], folder);
  const bench = (...args: string[]) => command(["bench", ...args], folder);
  const comparisons = [{ what: "sum of two", ours: "2 ms", reference: "peer 3 ms", speed: 1.5, goal: 2 }];

  test("lists what there is", async () => {
    expect(await bench()).toEqual({ code: 0, out: "  falls  falls\n  sum    adds\n", err: "" });
    const err = "error: --sum.a=4: name the benchmark to run\n";
    expect(await bench("--sum.a=4")).toEqual({ code: 2, out: "", err });
  });

  test("passes the benchmark's lines on, and ends with its object under --json", async () => {
    const { code, out } = await bench("sum", "--json", "--sum.b=5");
    expect([code, out.split("\n")[0]]).toEqual([0, "adding"]);
    expect(JSON.parse(lastLine(out)!)).toEqual({ name: "sum", comparisons, sum: 6, runs: 1 });
  });

  test("ends with a table of all comparisons, even if one benchmark fails", async () => {
    const { code, out, err } = await bench("all");
    expect(out.split("\n").slice(-3)).toEqual([
      "benchmark   Bunraku  peer or limit  times as fast  goal",
      "sum of two     2 ms      peer 3 ms           1.50  2.00  missed",
      "",
    ]);
    expect([code, err]).toEqual([1, "error: no engine\nerror: benchmark falls ended with 1; see above\n"]);
  });

  test("runs each in a process of its own", async () => {
    const { out } = await bench("sum", "sum", "--json");
    const result = { name: "sum", comparisons, sum: 3, runs: 1 };
    expect(JSON.parse(lastLine(out)!)).toEqual({ results: [result, result] });
  });

  test("gives each benchmark its own options, and refuses those of one that does not run", async () => {
    const { out, err } = await bench("all", "--sum.a=4", "--falls.why=broken", "--json");
    expect(JSON.parse(lastLine(out)!).results).toEqual([expect.objectContaining({ sum: 6 })]);
    expect(err).toBe("error: broken\nerror: benchmark falls ended with 1; see above\n");
    expect((await bench("sum", "sum", "--here")).err).toBe("error: --here takes one NAME, got 2\n");
    const message = "--falls.why=broken belongs to no chosen benchmark; chosen: sum";
    expect(await bench("sum", "--falls.why=broken")).toEqual({ code: 2, out: "", err: `error: ${message}\n` });
  });

  test("suggests the nearest name, and fails when a benchmark does", async () => {
    expect(await bench("sun")).toEqual({ code: 2, out: "", err: 'error: no benchmark "sun"; did you mean sum?\n' });
    const { code, out, err } = await bench("falls", "--json");
    expect([code, out, err]).toEqual([1, "", "error: no engine\nerror: benchmark falls ended with 1; see above\n"]);
  });
});

test.each([
  ["scale", "sample=10", "bench scale has no option sample; its options are seconds, samplers"],
  ["scale", "seconds=soon", 'scale.seconds must be a whole number of at least 1, got "soon"'],
  ["scale", "samplers=10,ten", 'scale.samplers must be whole numbers of at least 1, separated by commas, got "10,ten"'],
  ["envs", "rounds=3", "bench envs has no option rounds; its options are none"],
])("bench %s refuses %s", async (name, option, message) => {
  const { out, err } = await commandHere(["bench", name, "--here", `--${name}.${option}`]);
  expect([out, err]).toEqual(["", `error: ${message}\n`]);
});

describe("bun run check", async () => {
  const folder = await smallProject(
    {
      "tsconfig.json": JSON.stringify({
        compilerOptions: { strict: true, noEmit: true, types: [] },
        include: ["part.ts"],
      }),
      "actors/dashboard/client/tsconfig.json":
        '{ "compilerOptions": { "noEmit": true, "types": [] }, "files": ["page.ts"] }',
      "actors/dashboard/client/page.ts": "export const page = 1;\n",
      "biome.json": '{\n  "files": { "includes": ["part.ts"] },\n  "formatter": { "indentStyle": "space" }\n}\n',
      "part.ts": "export const part = 1;\n",
      "tests/tidy.test.ts": "import { test } from 'bun:test'; test('tidy', () => {});",
    },
    ["scripts/check.ts"],
  );
  await command(["hello"], folder);
  for (const name of ["typescript", "@biomejs"])
    symlinkSync(join(root, "node_modules", name), join(folder, "node_modules", name));
  const states = (out: string) =>
    out
      .split("\n")
      .filter((line) => /^(ok|failed) /.test(line))
      .map((line) => line.replace(/ \(.*/, ""));

  test("passes what is in order", async () => {
    const { code, out, err } = await command(["check"], folder);
    expect({ code, states: states(out), err }).toEqual({
      code: 0,
      states: ["ok      types", "ok      types of the page's scripts", "ok      lint and format", "ok      folders"],
      err: "",
    });
  });

  test("goes through all of it, shows what is wrong and names what failed", async () => {
    await Bun.write(join(folder, "part.ts"), "export const part: string  = 1;\n");
    const { code, out, err } = await command(["check"], folder);
    expect({ code, states: states(out), err }).toEqual({
      code: 1,
      states: ["failed  types", "ok      types of the page's scripts", "failed  lint and format", "ok      folders"],
      err: "error: types, lint and format failed, as shown above; `bun x biome check --write` fixes the format\n",
    });
    expect(out).toContain("Type 'number' is not assignable to type 'string'");
  });
});

describe("bun run doctor", () => {
  interface Report {
    readonly ok: boolean;
    readonly findings: readonly { readonly name: string; readonly state: string; readonly found: string }[];
  }
  const doctor = async (args: string[], env: Record<string, string> = {}) => {
    const { code, out } = await command(["doctor", "--json", ...args], root, env);
    const report = JSON.parse(out) as Report;
    return { code, report, state: (name: string) => report.findings.find((finding) => finding.name === name)?.state };
  };

  test("finds the default engine computing a known product, and everything essential in place", async () => {
    const { code, report, state } = await doctor(["--port", "0"]);
    expect([code, report.ok]).toEqual([0, true]);
    expect(["bun", "packages", "engine compiled", "clock"].map(state)).toEqual(["ok", "ok", "ok", "ok"]);
    // A run needs 4 GiB of memory and 2 GiB of disk; what is less is low.
    const gib = (name: string) => Number.parseFloat(report.findings.find((finding) => finding.name === name)!.found);
    expect(gib("memory")).toBeLessThanOrEqual(totalmem() / 2 ** 30 + 0.1);
    expect([state("memory"), state("disk")]).toEqual([
      gib("memory") >= 4 ? "ok" : "low",
      gib("disk") >= 2 ? "ok" : "low",
    ]);
    expect(readdirSync(root).filter((name) => name.startsWith(".doctor-"))).toEqual([]);
  });

  test("ends with 1 if the page's port is in use, because a run would end with that error", async () => {
    using taken = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
    const { code, report, state } = await doctor(["--port", String(taken.port)]);
    expect([code, report.ok, state(`port ${taken.port}`)]).toEqual([1, false, "broken"]);
  });

  test("ends with 1 if a configured library is missing", async () => {
    const { code, report, state } = await doctor([], { LIBTENSORFLOW_PATH: "/nowhere/libtensorflow.so" });
    expect([code, report.ok, state("engine tensorflow")]).toEqual([1, false, "broken"]);
  });

  test("finds that no temporary file can be written, in place of ending", async () => {
    const { code, report } = await doctor(["--port", "0"], { TMPDIR: "/nowhere" });
    const found = report.findings.find(({ name }) => name === "sandbox")?.found;
    expect([code, found]).toEqual([
      0,
      expect.stringMatching(/sandbox that needs (a folder for temporary files: .*; set TMPDIR|Linux|\/)/),
    ]);
  });

  test("says in plain lines what each finding means", async () => {
    const { code, out } = await command(["doctor", "--port", "0"]);
    expect([code, lastLine(out)]).toEqual([0, "ready to run"]);
  });
});

test("bun run chaos names the folder for temporary files that is missing", async () => {
  const { code, err } = await command(["chaos"], root, { TMPDIR: "/nowhere" });
  expect([code, err]).toEqual([
    1,
    expect.stringMatching(
      /^error: cannot make a folder for temporary files: ENOENT: .*; set TMPDIR to a folder with room\n$/,
    ),
  ]);
});

test("bun run setup says that all packages are there", async () => {
  const { code, out } = await command(["setup"]);
  expect(code).toBe(0);
  expect(out).toMatch(/^packages: all \d+ have the versions of bun\.lock; nothing to install\n$/);
});

test.each([
  [["--port", "1"], "--port is the port of the tinker server; use it with setup tinker"],
  [["tensorflov"], 'setup does not know "tensorflov"; it takes cuda, tensorflow or tinker'],
])("bun run setup %j is refused", async (args, message) => {
  expect(await commandHere(["setup", ...args])).toEqual({ code: 2, out: "", err: `error: ${message}\n` });
});

test("bun run setup tinker refuses a port that its server cannot have, before it installs anything", async () => {
  using taken = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("{}") });
  const { code, err } = await command(["setup", "tinker", "--port", String(taken.port)]);
  const place = `127.0.0.1:${taken.port}`;
  expect(code).toBe(1);
  expect(err).toStartWith(`error: cannot serve the tinker server on ${place}: the port is in use. Stop the other`);
});

test("a command in a test's own process leaves no env to the tests after it", async () => {
  const args = ["config", "--env", join(root, "tests/library/doors.ts"), "--warmStart.imitate=demonstrator"];
  expect([await commandHere([...args, "--json"]), envModules()]).toMatchObject([{ code: 0, err: "" }, []]);
});
