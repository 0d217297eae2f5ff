/**
 * Follows docs/tutorial.md and docs/new-env.md in the project that `bun run init` writes, with an empty home: the pages' commands in their
 * order, the pages' files as they are shown. To each command of a run the test appends a smaller policy, a smaller warm start and fewer
 * updates, so that the run takes seconds.
 */

import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { RunConfig } from "../../actors/config/config.ts";
import { readStarts } from "../../actors/record/starts.ts";
import { childEnv, commandHere, root } from "./command.ts";
import { temporaryFolder } from "./temporary.ts";

const LONG = 240_000;
const QUICK = [
  "--learner.updates=1",
  "--metrics.port=0",
  "--model.width=32",
  "--model.layers=1",
  "--model.heads=2",
  "--model.kvHeads=1",
  "--model.hidden=64",
  "--rollout.groups=4",
  "--rollout.groupSize=2",
  "--validate.episodes=8",
  "--warmStart.boards=8",
  `--warmStart.stages=${JSON.stringify([{ name: "learn", steps: 2, batch: 8, learningRate: 1e-3, finalFraction: 1, warmUpSteps: 0 }])}`,
];

/** `bun run init`, with the packages of this clone. */
async function project(): Promise<string> {
  const folder = join(temporaryFolder(), "my-agent");
  expect((await commandHere(["init", "--no-install", folder])).code).toBe(0);
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(root, join(folder, "node_modules/bunraku"));
  return folder;
}

/** A line of a page as it is typed in the project. */
async function typed(line: string, folder: string): Promise<void> {
  const [, verb, ...words] = line.split(" ");
  const env = childEnv({ HOME: folder, FORCE_COLOR: "0", NO_COLOR: "1" });
  const entry = verb === "test" ? ["test", ...words] : [join(root, "library/bin.js"), ...words];
  // The page's first run has processes, as by default.
  const how = words.includes("runs/first") ? [] : ["--actors=one-thread"];
  const quick = words[0] === "cluster" ? [...QUICK, ...how] : [];
  const child = Bun.spawn([process.execPath, ...entry, ...quick], {
    cwd: folder,
    env,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  expect({ line, code, err: code === 0 ? "" : `${err}${out}` }).toEqual({ line, code: 0, err: "" });
}

const pageOf = (name: string) => readFileSync(join(root, "docs", name), "utf8");
const blocksOf = (page: string) =>
  [...page.matchAll(/^```(?:sh|ts (\S+))\n(.*?)^```$/gms)].map(([, path, text]) => ({ path, text: text! }));

test(
  "the tutorial, from the top to the end; then the page of a new env",
  async () => {
    const folder = await project();
    for (const { path, text } of [...blocksOf(pageOf("tutorial.md")), ...blocksOf(pageOf("new-env.md"))]) {
      if (path !== undefined) await Bun.write(join(folder, path), text);
      const lines = path === undefined ? text.trim().split("\n") : [];
      // A module may be named by its path too.
      const byPath = (line: string) => line.replace(/(?<=^bun run cluster --env )Street/, "./envs/street.ts");
      for (const line of lines) if (!/^bun run (play|init)|^cd /.test(line)) await typed(byPath(line), folder);
    }
    expect(existsSync(join(folder, "street.svg"))).toBe(true);
    const [start] = readStarts(join(folder, "runs/long-street"));
    expect(start!.command).toStartWith("bun run cluster --env ./envs/street.ts --env.options.houses=15 ");
    await typed("bun run config --preset small", folder);
    // Each process imported the env by itself, and each trajectory has its digest.
    const { env } = await Bun.file(join(folder, "runs/first/config.json")).json();
    expect(Object.keys(env.modules)).toEqual([join(folder, "envs/street.ts")]);
    using store = new Database(join(folder, "runs/first/run.sqlite"), { readonly: true });
    expect(store.query("SELECT DISTINCT env_digest FROM bodies").values()).toEqual([Object.values(env.modules)]);
    // A run whose env has changed is refused.
    await Bun.write(
      join(folder, "envs/street.ts"),
      `${readFileSync(join(folder, "envs/street.ts"), "utf8")}\n// changed\n`,
    );
    const entry = join(root, "library/bin.js");
    const child = Bun.spawn([process.execPath, entry, "cluster", "--resume", "runs/first", "--updates", "2"], {
      cwd: folder,
      stdio: ["ignore", "pipe", "pipe"],
    });
    const [err, code] = await Promise.all([child.stderr.text(), child.exited]);
    expect({ code, err }).toEqual({ code: 2, err: expect.stringContaining("Restore that version of the file") });
  },
  LONG,
);

test("a player plays the env of the project, or of a run beside it", async () => {
  const folder = await project();
  const config = join(folder, "bunraku.config.ts");
  writeFileSync(
    config,
    readFileSync(config, "utf8").replace('tag: "Street"', 'tag: "Street", options: { houses: 15 }'),
  );
  const table = async (...words: string[]) => {
    const entry = [join(root, "library/bin.js"), "eval", "--episodes", "16", ...words];
    const child = Bun.spawn([process.execPath, ...entry], { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
    const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
    return { code, err, out };
  };
  const { out, ...ended } = await table("--policy", "random");
  expect(ended).toEqual({ code: 0, err: "" });
  expect(out).toStartWith("Street, 16 boards from seed 123, at most 10 actions each");
  expect((await table("--policy", "random", "--env", "Street", "--env.options.houses=15")).out).toBe(out);
  const run = join(folder, "run");
  mkdirSync(run);
  const played = { tag: "Bandit", options: {}, actionsMax: 1, mix: [] };
  const other = RunConfig.parse({ env: played, warmStart: { cacheDir: "cache" } });
  writeFileSync(join(run, "config.json"), JSON.stringify(other));
  // The run has no checkpoint, so only the players before it play.
  expect((await table("--policy", `random,${run}`)).out).toStartWith("Bandit, 16 boards");
}, 60_000);

test("a compiler finds the types of a project of this clone", async () => {
  const folder = await project();
  symlinkSync(join(root, "node_modules/@types"), join(folder, "node_modules/@types"));
  const tsc = [process.execPath, join(root, "node_modules/.bin/tsc"), "-p", folder];
  const child = Bun.spawn(tsc, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  const [out, code] = await Promise.all([child.stdout.text(), child.exited]);
  expect({ code, out }).toEqual({ code: 0, out: "" });
}, 120_000);

test("init leaves what is there alone", async () => {
  const folder = await project();
  const { code, err } = await commandHere(["init", "--no-install", folder]);
  expect({ code, err }).toEqual({ code: 2, err: expect.stringContaining("exists already; name a new folder") });
});

test("init keeps what a folder has of its own: settings, commands, what git ignores", async () => {
  const folder = join(temporaryFolder(), "_My Agent!");
  mkdirSync(folder);
  writeFileSync(join(folder, ".gitignore"), "mine\n");
  const kept = { type: "commonjs", scripts: { eval: "mine" }, dependencies: { bunraku: "9.9.9" } };
  writeFileSync(join(folder, "package.json"), JSON.stringify(kept));
  const { code, err } = await commandHere(["init", "--no-install", folder]);
  expect([code, err]).toEqual([0, `next: cd '${folder}'; bun test; bun run cluster\n`]);
  expect(readFileSync(join(folder, ".gitignore"), "utf8")).toBe("mine\n");
  const { name, type, scripts, dependencies } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  expect([name, type, scripts.eval, scripts.cluster]).toEqual(["my-agent-", "commonjs", "mine", "bunraku cluster"]);
  expect(dependencies).toEqual({ bunraku: "9.9.9" });
  const nameless = join(temporaryFolder(), "__");
  await commandHere(["init", "--no-install", nameless]);
  expect(JSON.parse(readFileSync(join(nameless, "package.json"), "utf8")).name).toBe("agent");
  expect(readFileSync(join(nameless, ".gitignore"), "utf8")).toBe("node_modules/\nruns/\n");
});

test("new-env takes a name of 41 letters, and no longer one", async () => {
  const folder = temporaryFolder();
  const made = (letters: number) => commandHere(["new-env", join(folder, `${"a".repeat(letters)}.ts`)]);
  expect(await made(41)).toMatchObject({ code: 0 });
  expect((await made(42)).err).toContain(
    "a tag has 2 to 41 letters and digits, but this tag has 42; name another file",
  );
});

test("init writes nothing beside a package.json that it cannot read", async () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, "package.json"), '{ "name": "mine", }');
  const { code, err } = await commandHere(["init", "--no-install", folder]);
  expect({ code, err }).toEqual({ code: 2, err: expect.stringContaining("package.json holds no JSON object") });
  expect(readdirSync(folder)).toEqual(["package.json"]);
});

test.each([
  ["init", ["--no-install", "taken"], "taken"],
  ["init", ["--no-install", "taken/mine"], "taken/mine"],
  ["init", ["--no-install", "."], "envs"],
  ["new-env", ["taken/maze.ts"], "taken"],
])("%s %j says in one line that a file has the name of a folder, and writes nothing", async (name, words, taken) => {
  const folder = temporaryFolder();
  for (const file of ["taken", "envs"]) writeFileSync(join(folder, file), "");
  const args = words.map((word) => (word.startsWith("--") ? word : join(folder, word)));
  const { code, err } = await commandHere([name, ...args]);
  expect({ code, err }).toEqual({
    code: 2,
    err: expect.stringMatching(
      new RegExp(`^error: cannot make the folder ${join(folder, taken)}: .*; name another one\n$`),
    ),
  });
  expect(readdirSync(folder).sort()).toEqual(["envs", "taken"]);
});

test("new-env says in one line that it cannot write its file", async () => {
  const file = join(temporaryFolder(), "maze.ts");
  // Writing through a link that leads nowhere fails, as in a folder without the right to write.
  symlinkSync("/nowhere/maze.ts", file);
  const { code, err } = await commandHere(["new-env", file]);
  expect({ code, err }).toEqual({
    code: 2,
    err: expect.stringMatching(new RegExp(`^error: cannot write ${file}: .*; name another file\n$`)),
  });
});

test("new-env writes an env whose test passes and which commands take by its path; it overwrites nothing", async () => {
  const folder = await project();
  for (const line of [
    "bun run new-env envs/my-maze.ts",
    "bun test ./envs/my-maze.test.ts",
    "bun run eval --env ./envs/my-maze.ts --policy random --episodes 16",
  ])
    await typed(line, folder);
  for (const [file, message] of [
    [join(folder, "envs/my-maze.ts"), "exists already; name another file"],
    ["envs/My Maze.ts", "new-env takes a file like envs/my-maze.ts"],
    [
      join(folder, "envs/bandit.ts"),
      "would define the env Bandit: a built-in env or an env of this project has this tag",
    ],
    [
      join(folder, "envs/a.ts"),
      "would define the env A: a tag has 2 to 41 letters and digits, but this tag has 1; name another file",
    ],
    [join(folder, "envs/pcg64.ts"), "would define the env Pcg64: the module imports this name; name another file"],
    [
      join(folder, "envs/array.ts"),
      "would define the env Array: the module uses JavaScript's Array; name another file",
    ],
    [
      join(folder, "envs/error.ts"),
      "would define the env Error: the module uses JavaScript's Error; name another file",
    ],
  ] as const) {
    const { code, err } = await commandHere(["new-env", file]);
    expect({ code, err }).toEqual({ code: 2, err: expect.stringContaining(message) });
  }
}, 60_000);
