/** A refusal is one line that says what to do. The exit code is 2 for wrong usage, and 1 for other refusals. */
import { beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { jsonService } from "../envs/outside/json-service.ts";
import { describeWhere } from "../needs.ts";
import { CommandProcess, command, commandHere, root } from "../scripts/command.ts";
import { temporaryFolder } from "../scripts/temporary.ts";
import { LONG, RunProcess, Runs } from "./run-process.ts";

setDefaultTimeout(LONG);

const runs = new Runs("shared");
const place = temporaryFolder();
const there = join(place, "there");
const wanted = join(place, "wanted");
const finished = join(place, "finished");

beforeAll(async () => {
  for (const folder of [there, finished]) mkdirSync(folder);
  const { out } = await commandHere(["config", "--json"]);
  writeFileSync(join(finished, "config.json"), out);
  writeFileSync(join(finished, "report.json"), JSON.stringify({ updates: 200, minutes: 9 }));
});

/** For what is refused only after the page's port was looked at: another program may have the default one. */
const ANY_PORT = "--metrics.port=0";
/** For a run whose actors need no processes. */
const ONE_THREAD = "--actors=one-thread";

const usage: [string[], string][] = [
  [["--updatez", "3"], "cluster has no flag --updatez; did you mean --updates?"],
  [["--updates", "many"], '--updates takes a whole number, 0 or more, got "many"'],
  [["fast"], 'cluster does not understand "fast": it takes flags only'],
  [
    ["--learner.learningRat=1"],
    "--learner.learningRat=1: unknown key learner.learningRat; did you mean learner.learningRate?",
  ],
  [
    ["--learner.learningRate=-1"],
    "--learner.learningRate=-1: learner.learningRate: Too small: expected number to be >0, got -1",
  ],
  [["--learner.updates=0"], "--learner.updates=0: learner.updates: Too small: expected number to be >0, got 0"],
  [["--preset", "quikstart"], 'no preset "quikstart"; did you mean quickstart?'],
  [
    ["--engine", "compield"],
    '--engine compield: engine.name: must be one of auto, compiled, tensorflow, eager, tinker; got "compield"; did you mean compiled?',
  ],
  [
    ["--engine", "eager", "--device", "cuda"],
    "--device cuda: engine.device: engine eager computes on the CPU only; for cuda, set engine.name to auto",
  ],
  [
    ["--engine", "tensorflow", "--device", "webgpu"],
    "--device webgpu: engine.device: engine tensorflow computes on cpu or cuda; for webgpu, set engine.name to compiled or auto",
  ],
  [
    ["--config", "/nowhere.yaml"],
    "cannot read --config /nowhere.yaml: ENOENT: no such file or directory, open '/nowhere.yaml'",
  ],
  [
    ["--preset", "starpo-s-bandit"],
    "this config needs a pretrained model: the built-in policy cannot learn Bandit; set model.path (--model DIR; docs/models.md) or model.checkpoint (--from RUN), or model.pretrainedOnly to false",
  ],
  [["--run-dir", there, ANY_PORT], `${there} exists; choose another --run-dir, or resume it: --resume ${there}`],
  [
    ["--run-dir", join(place, "x".repeat(65)), ANY_PORT],
    `the name of a run has at most 64 characters, but ${"x".repeat(65)} has 65; choose a shorter name`,
  ],
  [["--resume", wanted], `no run in ${wanted}: there is no config.json`],
  [
    ["--resume", finished],
    `the run in ${finished} is finished; to continue it, give --updates N above 200, or start a new run`,
  ],
  [
    ["--from", join(finished, "checkpoints", "u000009")],
    `--from ${join(finished, "checkpoints", "u000009")}: there is no such checkpoint; name another checkpoint, or name the run to use its newest checkpoint`,
  ],
  [["--resume", finished, "--preset", "quickstart"], "a resumed run keeps its config; leave --preset out"],
  [["--resume", there, "--from", finished], "--from starts a new run; leave --resume out"],
  [["--resume", there, "--run-dir", wanted], "--resume names the folder; leave --run-dir out"],
];

describe("wrong usage", () => {
  test.each(usage)("%p", async (args, message) => {
    const given = args.includes("--run-dir") || args.includes("--resume") ? args : [...args, "--run-dir", wanted];
    const { code, out, err } = await commandHere(["cluster", ...given]);
    expect({ code, out, err }).toEqual({ code: 2, out: "", err: `error: ${message}\n` });
    expect(readdirSync(place).sort()).toEqual(["finished", "there"]);
    expect(readdirSync(there)).toEqual([]);
  });

  test("a mistyped env: the three nearest, the one that was meant first", async () => {
    const { code, err } = await commandHere(["cluster", "--env", "FrozenLak", "--run-dir", wanted]);
    const message = /^error: --env FrozenLak: env\.tag: unknown env tag "FrozenLak"; nearest: FrozenLake(, \w+){2}\n$/;
    expect({ code, err }).toEqual({ code: 2, err: expect.stringMatching(message) });
  });

  test("a resumed run keeps its config, except for its length and where it can be reached", async () => {
    const folder = join(runs.folder, "unfinished");
    mkdirSync(folder);
    writeFileSync(join(folder, "config.json"), (await commandHere(["config", "--json"])).out);
    const { code, err } = await commandHere(["cluster", "--resume", folder, "--seed", "3"]);
    const message =
      "--seed 3: a resumed run keeps its config, except for --updates, --minutes, metrics.*, transport.*, join.* and engine.url; leave seed out, or start a new run";
    expect({ code, err }).toEqual({ code: 2, err: `error: ${message}\n` });
    const open = await commandHere(["cluster", "--resume", folder, "--metrics.host=0.0.0.0"]);
    expect([open.code, open.err]).toEqual([2, expect.stringContaining("set metrics.token")]);
    await using taken = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response() });
    const lost = await command(["cluster", "--resume", folder, `--metrics.port=${taken.port}`]);
    expect(lost.err).toStartWith(
      `warning: ${folder} has no run.sqlite: a new record starts, without the earlier episodes\nerror: `,
    );
  });
});

describe("impossible", () => {
  test("a port in use", async () => {
    const taken = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: () => new Response("mine") });
    const { port } = taken;
    const { code, out, err } = await commandHere(["cluster", `--metrics.port=${port}`, "--run-dir", wanted]);
    await taken.stop(true);
    const message =
      `cannot serve the page on 127.0.0.1:${port}: the port is in use. Stop the other program, or choose ` +
      "--port N (--port 0 for any free port).";
    expect({ code, out, err }).toEqual({ code: 1, out: "", err: `error: ${message}\n` });
    expect(existsSync(wanted)).toBe(false);
  });

  test("a config that is no config", async () => {
    const folder = join(runs.folder, "spoilt");
    mkdirSync(folder);
    writeFileSync(join(folder, "config.json"), "{");
    const { code, err } = await commandHere(["cluster", "--resume", folder]);
    expect(code).toBe(1);
    expect(err).toStartWith(`error: cannot use the config of ${folder}, ${join(folder, "config.json")}: SyntaxError`);
    expect(err.trimEnd().split("\n").length).toBe(1);
  });
});

/** Runs with mounts of its own, which are gone when it ends. Only root may have them. */
const mounted = (mount: string, args: readonly string[]) =>
  new CommandProcess(["cluster", ...args], { wrap: ["unshare", "-m", "bash", "-c", `${mount} && exec "$@"`, "bash"] })
    .ended;
const mayMount = Bun.spawnSync(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]).success;

describeWhere(mayMount ? null : "this account may not mount file systems", "on a broken system", () => {
  const short = { learner: { updates: 3, filter: { strategy: "all" } } };

  test("without shared memory, weights go through the run's folder, and the run says so", async () => {
    const { folder, args } = runs.fresh(short);
    const { code, err } = await mounted("mount -t tmpfs -o ro tmpfs /dev/shm", args);
    expect(code).toBe(0);
    const text = `/dev/shm cannot be written, so weights go through ${folder}, which is slower on a slow disk`;
    expect(err).toContain(`warning: learner: ${text}\n`);
    expect(readdirSync(folder).filter((name) => name.startsWith("bunraku-"))).toEqual([]);
  });

  test("with a full disk, the run continues, and fails in one line if the last checkpoint cannot be saved", async () => {
    const disk = join(runs.folder, "disk");
    mkdirSync(disk);
    const { args } = runs.fresh({ ...short, checkpoint: { everyUpdates: 1, keep: 100 } });
    const small = [...args.slice(0, 2), "--run-dir", join(disk, "run"), ONE_THREAD];
    const { code, out, err } = await mounted(`mount -t tmpfs -o size=1400k tmpfs ${disk}`, small);
    expect({ code, out }).toEqual({ code: 1, out: "" });
    const last = err.trimEnd().split("\n").at(-1)!;
    expect(last).toStartWith("error: the run ended: learner ");
    expect(last).toContain("the disk is full; earlier checkpoints are intact");
  });
});

describe("an unexpected error is one line, and its stack is in the run's log", () => {
  const crashes = (folder: string) =>
    readFileSync(join(folder, "log.jsonl"), "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as { actor?: string; kind: string; text: string; stack: string })
      .filter(({ kind }) => kind === "crash");

  test("of an actor", async () => {
    const folder = join(runs.folder, "no-store");
    // A folder where SQLite wants its journal.
    mkdirSync(join(folder, "run.sqlite-wal"), { recursive: true });
    const { out } = await commandHere(["config", "--json", "--supervisor.restartsMax=0", ANY_PORT]);
    writeFileSync(join(folder, "config.json"), out);
    const { code, err } = await command(["cluster", "--resume", folder]);
    const crash = `Error: cannot open ${join(folder, "run.sqlite")}: disk I/O error`;
    const last = `first cause: exit code 1 (${crash}); the log of the run is ${join(folder, "log.jsonl")}\n`;
    expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining(`error: metrics-sink: ${crash}\n`) });
    expect(err).toEndWith(last);
    expect(err).not.toMatch(/^\s+at |\.ts:\d/m);
    expect(crashes(folder)).toEqual([
      expect.objectContaining({
        actor: "metrics-sink",
        text: crash,
        stack: expect.stringMatching(/^at .*store\.ts:/),
      }),
    ]);
    expect(crashes(folder)[0]!.stack).toContain("\ncaused by SQLiteError: ");
  });

  test.each([
    ["while it is started", "throw new TypeError('a bug\\nof ours');"],
    ["later", "setTimeout(() => { throw new TypeError('a bug\\nof ours'); }); return spawn(...args);"],
  ])("of the supervisor, %s", async (_, fault) => {
    const { folder, args } = runs.fresh();
    const faulty = join(runs.folder, "faulty.ts");
    // The first actor to be started is the sink.
    writeFileSync(faulty, `const { spawn } = Bun; Bun.spawn = (...args) => { ${fault} };`);
    const { code, out, err } = await command(["cluster", ...args], root, { BUN_OPTIONS: `--preload ${faulty}` });
    expect({ code, out, err }).toEqual({ code: 1, out: "", err: "error: a bug of ours\n" });
    expect(crashes(folder)).toEqual([
      expect.objectContaining({
        actor: "supervisor",
        text: "TypeError: a bug of ours",
        stack: expect.stringMatching(/^at .*faulty\.ts:1/),
      }),
    ]);
  });
});

test("a run ends in one line when the system starts no process, however often it is tried", async () => {
  const { args } = runs.fresh({ supervisor: { restartsMax: 1 } });
  const faulty = join(runs.folder, "no-files.ts");
  const failure = "Object.assign(new Error('too many open files'), { code: 'EMFILE', errno: -24 })";
  writeFileSync(faulty, `Bun.spawn = () => { throw ${failure}; };`);
  const { code, err } = await command(["cluster", ...args], root, { BUN_OPTIONS: `--preload ${faulty}` });
  const reason = "Error: too many open files";
  expect({ code, err }).toEqual({
    code: 1,
    err: expect.stringContaining(`metrics-sink could not be started; trying again (${reason})\n`),
  });
  const last = err.trimEnd().split("\n").at(-1)!;
  expect(last).toStartWith("error: the run ended: metrics-sink failed 2 times in 3.");
  expect(last).toContain(`first cause: no process could be started (${reason})`);
});

test("a run whose actor cannot even start says why", async () => {
  const { args } = runs.fresh({ rollout: { replyTokensMax: 11, contextTokensMax: 12 } });
  const { code, err } = await commandHere(["cluster", ...args, ONE_THREAD]);
  expect(code).toBe(1);
  const last = err.trimEnd().split("\n").at(-1)!;
  expect(last).toContain("32 of 32 episodes could not be played");
  expect(last).toContain("leaves no room for a reply in rollout.contextTokensMax (12); raise it");
});

test("a run ends at the first refusal of its env's server, which would refuse again", async () => {
  const refuse = () => Response.json({ error: "no board for you" }, { status: 403 });
  await using server = jsonService(({ path }) =>
    path === "/health" ? { protocol: 1, envs: ["boards"] } : path === "/open" ? refuse() : {},
  );
  const { folder, args } = runs.fresh({
    env: { tag: "Remote", options: { url: server.url } },
    warmStart: { enabled: false, imitate: undefined, boards: undefined, cacheDir: undefined, stages: undefined },
  });
  const run = new RunProcess(folder, args);
  const { code, err } = await run.ended;
  const last = err.trimEnd().split("\n").at(-1)!;
  expect([code, last]).toEqual([
    1,
    expect.stringMatching(
      /^error: the run ended: learner .*Remote cannot be played: .*\/open: answers 403: no board for you/,
    ),
  ]);
  expect(run.log.filter(({ kind }) => kind === "restarted")).toEqual([]);
});

test("a start that cannot be recorded is a warning, and the run goes on", async () => {
  const folder = join(runs.folder, "no-starts");
  const first = ["cluster", "--env", "Bandit", "--smoke", "--run-dir", folder, ANY_PORT, ONE_THREAD, "--quiet"];
  expect((await commandHere(first)).code).toBe(0);
  const starts = join(folder, "starts.jsonl");
  rmSync(starts);
  mkdirSync(starts);
  const { code, err } = await commandHere(["cluster", "--resume", folder, "--updates", "3", "--quiet"]);
  expect({ code, err }).toEqual({
    code: 0,
    err: expect.stringMatching(new RegExp(`^warning: this start is missing in ${starts}: EISDIR: .*\n$`)),
  });
});
