/**
 * The documents are right: every command that they show is valid as it stands, and every file, link and key that they name exists.
 *
 * - Cheap commands are run. Commands on a recorded run are run on a tiny run, and play 8 episodes. `cluster` runs with a tiny policy for
 *   one update, unless it needs what a test does not have: a download, a GPU, a certificate, or an env that the reader of the page writes.
 *   The lines of the settings page differ in keys only, so `config` checks each line.
 * - For all other commands, the command itself parses every flag: the test appends a flag that no command has, and the command has to
 *   refuse this flag first. `config` checks keys of the config (`--section.key=value`), presets and tags. These commands are only parsed
 *   here, and tested in the files in parentheses:
 *   - what never ends by itself: `serve`, `page`, `play`, `sampler`, `env-server` (scripts/serve, browser/live-run, scripts/play, e2e/joining);
 *   - what takes minutes: `sweep`, `chaos`, `simulate`, `bench`, `test`, `check`, `setup` (scripts/sweep, e2e/chaos, scripts/simulate,
 *     scripts/commands);
 *   - what needs a model, a data set or a server from elsewhere: `cluster --model`, `cluster --device`, `cluster --env Remote`, `eval` of
 *     such envs and of hosted models (e2e/pretrained, model/engine/webgpu, envs/, scripts/eval/hosted, which bring small models, data sets
 *     and servers of their own).
 * - A flag without its command is a flag of some command's page of help.
 * - Pages that write files (tutorial.md, new-env.md) are followed step by step in scripts/tutorial.
 */
import { describe, expect, test } from "bun:test";
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { ESTIMATORS, LOSSES } from "../actors/config/algorithms.ts";
import { envTags, moduleOf as moduleOfEnv } from "../envs/registry.ts";
import { COMMANDS } from "../scripts/cli/commands.ts";
import { playRun, tinyConfig } from "./actors/supervisor/tiny-run.ts";
import { command, commandHere, expectSuccess, root } from "./scripts/command.ts";
import { temporaryFolder } from "./scripts/temporary.ts";

const documents = [
  ...readdirSync(root).filter((name) => name.endsWith(".md")),
  ...readdirSync(join(root, "docs"))
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name}`),
].sort();
/** Entries of the log as they were written: they name the paths, keys and commands of their day. */
const archived = readdirSync(join(root, "docs/log")).map((name) => `docs/log/${name}`);
const textOf = (file: string) => readFileSync(join(root, file), "utf8");
const withoutBlocks = (text: string) => text.replaceAll(/^```.*?^```$/gms, "");
/** What is set in code outside of blocks, line breaks as spaces. */
const inlineCode = (file: string) =>
  [...withoutBlocks(textOf(file)).matchAll(/`([^`]+)`/g)].map(([, code]) => code!.replaceAll("\n", " "));

const modules = temporaryFolder();

/** A module `./NAME.ts` that a page shows, in a block with its name, as a file that can be imported. */
function moduleOf(file: string, word: string): string {
  const name = /^\.\/([\w/-]+\.ts)$/.exec(word)?.[1];
  const blocks = [...textOf(file).matchAll(/^```ts(?: (\S+))?\n(.*?)^```$/gms)];
  const block = blocks.find(([, path, code]) => path === name || code!.startsWith(`// ${name}:`));
  if (name === undefined || block === undefined) return word;
  const path = join(modules, basename(name));
  writeFileSync(path, block[2]!.replaceAll('"bunraku/env"', JSON.stringify(join(root, "library/env.ts"))));
  return path;
}

interface Shown {
  readonly file: string;
  /** After `bun run`: the command's name and what it is given. */
  readonly words: readonly string[];
}

/** Lines of shell blocks and inline code, less comments, variables before the command and quotes around words. */
const shown: readonly Shown[] = documents.flatMap((file) => {
  const blocks = [...textOf(file).matchAll(/^```(?:sh|bash)\n(.*?)^```$/gms)].map(([, block]) => block!);
  return [...blocks.join("\n").replaceAll("\\\n", " ").split("\n"), ...inlineCode(file)].flatMap((line) => {
    const said = /^(?:[A-Z_]+=\S+ )*(?:npx -y )?bun(?:@[\d.]+)? run (.*?)(?:\s+[#>].*)?$/.exec(line.trim());
    const words = (said?.[1]?.match(/(?:'[^']*'|[^\s'])+/g) ?? []).map((word) => word.replaceAll("'", ""));
    // `bun run NAME` and `bun run cluster …` name no command, and no flag.
    return words.length === 0 || words[0] !== words[0]!.toLowerCase()
      ? []
      : [{ file, words: words.filter((word) => word !== "…").map((word) => moduleOf(file, word)) }];
  });
});
const lines = [...new Set(shown.map(({ words }) => words.join("\n")))].map((line) => line.split("\n"));

const after = (args: readonly string[], flag: string) => args[args.indexOf(flag) + 1] ?? "";

/** Answers within a second or so, and needs nothing but this repository. */
const isCheap = ([name, ...args]: readonly string[]) =>
  name === "help" ||
  args[0] === "--help" ||
  name === "config" ||
  name === "metrics" ||
  name === "doctor" ||
  (name === "golden" && args.length > 0) ||
  (name === "eval" &&
    /^(SimpleSokoban|FrozenLake|Bandit|SearchQAMock)$/.test(after(args, "--env")) &&
    /^(random|optimal|expert)$/.test(after(args, "--policy")));

/** About a recorded run, and ends by itself. */
const isOfRun = ([name, ...args]: readonly string[]) =>
  args.some(isRun) && ["compare", "curves", "diagnose", "eval", "export", "replay"].includes(name!);
const isRun = (word: string) => /^(runs\/\S+|RUN…?)$/.test(word);
/** Of the tiny run. */
const EPISODE = "end.t1.b15";

const onlySettings = new Set(
  shown.filter(({ file }) => file === "docs/settings.md").map(({ words }) => words.join("\n")),
);
for (const { file, words } of shown) if (file !== "docs/settings.md") onlySettings.delete(words.join("\n"));

/** A run that a test can have. */
const isShortRun = (words: readonly string[]) => {
  const [name, ...args] = words;
  return (
    name === "cluster" &&
    !onlySettings.has(words.join("\n")) &&
    !args.some((arg) => /^(--model|--device|--resume|--from|--join)/.test(arg)) &&
    !args.some((arg) => arg === "Street" || arg === "Remote")
  );
};
const stage = { steps: 2, batch: 8, babble: 0.3, noise: 0.1, learningRate: 1e-3, warmUpSteps: 0, finalFraction: 1 };
/** Makes any run one of seconds. */
const SHORT = [
  "--updates=1",
  "--metrics.port=0",
  "--rollout.groups=4",
  "--rollout.groupSize=2",
  "--learner.minibatch=8",
  "--model.width=32",
  "--model.layers=1",
  "--model.heads=2",
  "--model.kvHeads=1",
  "--model.hidden=64",
  "--validate.episodes=8",
  "--warmStart.boards=8",
  `--warmStart.stages=${JSON.stringify(["learn", "blur"].map((name) => ({ name, ...stage })))}`,
];

/** Test files and nothing else; it hands flags to `bun test`. */
const isTest = ([name]: readonly string[]) => name === "test";

const NOT_A_FLAG = "--no-such-flag-anywhere";
const SHARED_FLAGS = [
  "--preset",
  "--env",
  "--updates",
  "--minutes",
  "--samplers",
  "--env-servers",
  "--seed",
  "--engine",
  "--model",
];

/** The part of a command that is about the config, for `config`. */
function configPart(words: readonly string[]): string[] {
  return words.flatMap((word, i) =>
    SHARED_FLAGS.includes(word) ? [word, words[i + 1]!] : /^--[a-z]\w*\.[\w.]+=/i.test(word) ? [word] : [],
  );
}

/** For test.each: each line with what it was answered. */
async function answered(commands: readonly (readonly string[])[], asked: (words: readonly string[]) => string[]) {
  const rows: [string, { code: number | null; err: string }][] = [];
  for (const words of commands) {
    const { code, err } = await commandHere(asked(words));
    rows.push([words.join(" "), { code, err }]);
  }
  return rows;
}
const titled = (commands: readonly (readonly string[])[]) => commands.map((words) => [words.join(" "), words] as const);

describe("commands", async () => {
  const folder = temporaryFolder();
  const recorded = join(folder, "recorded");
  await playRun(recorded, tinyConfig(recorded, { samplers: 1, warmStart: "shared" }));
  const other = join(folder, "other");
  cpSync(recorded, other, { recursive: true });

  test("are found", () => expect(lines.length).toBeGreaterThan(40));

  test.each(titled(lines.filter(isCheap)))("bun run %s", async (_, words) => {
    // scripts/run.ts answers `help` itself.
    expectSuccess(await (words[0] === "help" ? command(words) : commandHere(words)));
  });

  const ofRun = lines.filter((words) => isOfRun(words) && !isCheap(words));
  test.each(titled(ofRun))("bun run %s: on a recorded run", async (_, words) => {
    const out = words.indexOf("--out") + 1;
    const named = words.filter(isRun);
    const given = words.map((word, i) => {
      if (i > 0 && i === out) return join(temporaryFolder(), basename(word));
      if (isRun(word)) return named.indexOf(word) === 0 ? recorded : other;
      if (words[i - 1] === "--episodes") return "8";
      return /^(EPISODE|u\d+\.g\d+\.m\d+)$/.test(word) ? EPISODE : word;
    });
    expectSuccess(await commandHere(given));
    if (out > 0) expect(existsSync(given[out]!)).toBe(true);
  });

  test.each(titled(lines.filter(isShortRun)))(
    "bun run %s: in small",
    async (_, words) => {
      const place = ["--run-dir", join(temporaryFolder(), "run"), `--warmStart.cacheDir=${folder}`];
      // As it stands where it is nothing but `cluster`: processes take time to start.
      const how = words.length === 1 ? [] : ["--actors", "one-thread"];
      const run = how.length === 0 ? command : commandHere;
      expectSuccess(await run([...words, ...SHORT, ...place, ...how]));
    },
    300_000,
  );

  const parsed = lines.filter((words) => !isCheap(words) && !isTest(words) && !isOfRun(words) && !isShortRun(words));
  test.each(await answered(parsed, (words) => [...words, NOT_A_FLAG]))("bun run %s: each flag is one", (_, answer) => {
    expect(answer).toEqual({ code: 2, err: expect.stringContaining(`has no flag ${NOT_A_FLAG}`) });
  });

  // Envs that a page has its reader write are not here; a model need not be.
  const configured = lines.filter(
    ([name, ...args]) =>
      name === "cluster" && !args.includes("Street") && !args.some((arg) => arg.startsWith("--model.")),
  );
  const configOf = (words: readonly string[]) =>
    configPart(words.slice(1)).filter((word) => !/^--join\.listen=wss/.test(word));
  test.each(await answered(configured, (words) => ["config", ...configOf(words)]))(
    "bun run %s: its config is one",
    (_, answer) => expect(answer).toEqual({ code: 0, err: "" }),
  );

  test("tests that are to be run are there", () => {
    const paths = lines.filter(isTest).flatMap(([, ...args]) => args.filter((arg) => !arg.startsWith("-")));
    expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([]);
  });
});

describe("keys", async () => {
  const { out } = await commandHere(["config", "--json"]);
  const config = JSON.parse(out) as Record<string, unknown>;
  const leaves = (value: unknown): string[] =>
    typeof value !== "object" || value === null || Array.isArray(value)
      ? []
      : Object.entries(value).flatMap(([key, inner]) => [key, ...leaves(inner).map((rest) => `${key}.${rest}`)]);
  const known = new Set(leaves(config));

  test.each(documents.filter((file) => file !== "CHANGELOG.md" && file !== "docs/log.md"))(
    "%s names keys that are there",
    (file) => {
      const named = inlineCode(file).flatMap((code) => {
        const key = /^(?:--)?([a-z]\w*(?:\.[a-z]\w*)+)(?:[=:].*)?$/.exec(code)?.[1];
        return key === undefined || !Object.hasOwn(config, key.split(".")[0]!) ? [] : [key];
      });
      // What is in env.options depends on the env; a file is no key.
      const unknown = named.filter(
        (key) => !known.has(key) && !/^env\.options\.|\.(ts|js|py|md|json|safetensors)$/.test(key),
      );
      expect(unknown).toEqual([]);
    },
  );
});

describe("flags", async () => {
  const pages = await Promise.all(Object.keys(COMMANDS).map((name) => commandHere([name, "--help"])));
  const server = textOf("examples/remote-envs/env_server.py");
  const ofOthers = "bun install --ignore-scripts, docker run --security-opt";
  const texts = [...pages.map(({ out }) => out), server, ofOthers];
  const known = new Set(texts.flatMap((text) => text.match(/--[a-z][a-z-]*/g) ?? []));

  test.each(documents.filter((file) => file !== "CHANGELOG.md" && file !== "docs/log.md"))(
    "%s names flags that a command has",
    (file) => {
      const named = inlineCode(file).flatMap((code) => /^(--[a-z][a-z-]*)(?![\w.])/.exec(code)?.[1] ?? []);
      expect(named.filter((flag) => !known.has(flag))).toEqual([]);
    },
  );
});

describe("links and files", () => {
  const slug = (heading: string) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\s-]/g, "")
      .trim()
      .replaceAll(/\s/g, "-");

  test.each([...documents, ...archived])("%s links to what is there", (file) => {
    const broken = [...withoutBlocks(textOf(file)).matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, target]) => target!)
      .filter((target) => {
        if (/^(https?|mailto):/.test(target)) return false;
        const [path, anchor] = target.split("#") as [string, string?];
        const at = path === "" ? file : join(dirname(file), path);
        if (!existsSync(join(root, at))) return true;
        const headings =
          anchor === undefined ? [] : [...textOf(at).matchAll(/^#+ (.*)$/gm)].map(([, text]) => slug(text!));
        return anchor !== undefined && !headings.includes(anchor);
      });
    expect(broken).toEqual([]);
  });

  test.each(documents)("%s names files that are there", (file) => {
    // `bun run init` writes the files of the template.
    const there = (path: string) => [path, `library/template/${path}`].some((one) => existsSync(join(root, one)));
    const named = inlineCode(file).filter((code) =>
      /^(actors|bench|configs|docs|envs|examples|model|scripts|tests)\/[\w./-]+\.\w+$/.test(code),
    );
    // "scripts/NAME.ts" is a pattern, and Python under scripts/ is RAGEN's.
    const ours = named.filter((path) => !/\/[A-Z]+\.|^scripts\/.*\.py$/.test(path));
    expect(ours.filter((path) => !there(path))).toEqual([]);
  });

  test("every row of the table of faults names tests that are there, one of which prints its figure; and no other prints one", () => {
    const table = textOf("docs/faults.md").split("## The table of faults")[1]!;
    const rows = table.split("\n").filter((line) => /^\| (?!fault |---)/.test(line));
    const faults = rows.map((row) => row.split("|")[1]!.trim());
    for (const [i, row] of rows.entries()) {
      const named = [
        ...row
          .split("|")
          .at(-2)!
          .matchAll(/\b(?:actors|attack|e2e|envs|model|scripts)\/[\w/-]+/g),
      ];
      expect({ row, named: named.length > 0 }).toEqual({ row, named: true });
      const files = named.map(([name]) => `tests/${name}.test.ts`);
      expect(files.filter((file) => !existsSync(join(root, file)))).toEqual([]);
      const prints = (file: string) => textOf(file).includes("figure(") && textOf(file).includes(`"${faults[i]}"`);
      expect({ row, printed: files.some(prints) }).toEqual({ row, printed: true });
      for (const file of files) {
        const told = [...textOf(file).matchAll(/\bfigure\(\s*"([^"]+)"/g)].map(([, fault]) => fault!);
        expect({ file, unknown: told.filter((fault) => !faults.includes(fault)) }).toEqual({ file, unknown: [] });
      }
    }
    expect(rows.length).toBeGreaterThan(20);
  });

  test("every row of the faults found and fixed names tests that are there, by file and title", () => {
    const tried = textOf("docs/faults.md").split("## Faults found and fixed")[1]!.split("\n## ")[0]!;
    const rows = tried.split("\n").filter((line) => /^\| (?!what|---|\*\*)/.test(line));
    for (const row of rows) {
      let file = "";
      const named = [...row.matchAll(/(?:`(tests\/[\w./-]+)` )?"([^"]+)"/g)].map(([, path, title]) => {
        file = path ?? file;
        return { file, title, there: existsSync(join(root, file)) && textOf(file).includes(title!) };
      });
      expect({ row, tests: named.length > 0 }).toEqual({ row, tests: true });
      expect(named.filter(({ there }) => !there)).toEqual([]);
    }
    expect(rows.length).toBeGreaterThan(25);
  });

  test("algorithms.md has a row for every estimator and loss, and the README counts the built-in tags", () => {
    const rows = textOf("docs/algorithms.md");
    expect([...ESTIMATORS, ...LOSSES].filter((name) => !rows.includes(`\n| \`${name}\` `))).toEqual([]);
    const tags = envTags().filter((tag) => moduleOfEnv(tag) === null);
    expect(textOf("README.md")).toContain(` ${tags.length} tags (games with their settings) `);
  });

  test("the log is short: what its newest figures replace moves to docs/log/", () => {
    expect(textOf("docs/log.md").split("\n").length).toBeLessThanOrEqual(201);
  });

  test("every page is reached from the README", () => {
    const seen = new Set(["README.md"]);
    for (const file of seen) {
      for (const [, target] of withoutBlocks(textOf(file)).matchAll(/\]\(([^)\s#]+\.md)[^)]*\)/g)) {
        const at = join(dirname(file), target!);
        if (documents.includes(at) || archived.includes(at)) seen.add(at);
      }
    }
    expect([...documents, ...archived].filter((file) => !seen.has(file))).toEqual([]);
  });
});
