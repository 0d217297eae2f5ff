/**
 * Documents hold: every command they show is taken as it stands, and every file, link and key that they name is there.
 *
 * - What is cheap is run. Of the rest every flag is parsed by the command itself: a flag that no command has is put behind them, and
 *   has to be the first thing it does not take. Keys of the config (`--section.key=value`), presets and tags are checked by `config`.
 * - Pages that write files (tutorial.md, new-env.md) are followed step by step in tests/scripts/.
 */
import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { command, root } from "./scripts/command.ts";

const documents = [
  ...readdirSync(root).filter((name) => name.endsWith(".md")),
  ...readdirSync(join(root, "docs"))
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name}`),
].sort();
const textOf = (file: string) => readFileSync(join(root, file), "utf8");
const withoutBlocks = (text: string) => text.replaceAll(/^```.*?^```$/gms, "");
/** What is set in code outside of blocks, line breaks as spaces. */
const inlineCode = (file: string) =>
  [...withoutBlocks(textOf(file)).matchAll(/`([^`]+)`/g)].map(([, code]) => code!.replaceAll("\n", " "));

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
      : [{ file, words: words.filter((word) => word !== "…") }];
  });
});
const lines = [...new Set(shown.map(({ words }) => words.join("\n")))].map((line) => line.split("\n"));

/** Answers within a second or so, and needs nothing but this repository. */
const isCheap = ([name, ...args]: readonly string[]) =>
  name === "help" ||
  args[0] === "--help" ||
  name === "config" ||
  (name === "eval" &&
    /^(SimpleSokoban|FrozenLake|Bandit|SearchQAMock)$/.test(after(args, "--env")) &&
    /^(random|optimal)$/.test(after(args, "--policy")));
const after = (args: readonly string[], flag: string) => args[args.indexOf(flag) + 1] ?? "";

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
];

/** The part of a command that is about the config, for `config`. */
function configPart(words: readonly string[]): string[] {
  return words.flatMap((word, i) =>
    SHARED_FLAGS.includes(word) ? [word, words[i + 1]!] : /^--[a-z]\w*\.[\w.]+=/i.test(word) ? [word] : [],
  );
}

describe("commands", () => {
  test("are found", () => expect(lines.length).toBeGreaterThan(40));

  test.each(lines.filter(isCheap).map((words) => [words.join(" "), words] as const))("bun run %s", async (_, words) => {
    const { code, err } = await command(words);
    expect({ code, err: code === 0 ? "" : err }).toEqual({ code: 0, err: "" });
  });

  test.each(
    lines.filter((words) => !isCheap(words) && !isTest(words)).map((words) => [words.join(" "), words] as const),
  )("bun run %s: each flag is one", async (_, words) => {
    const { code, err } = await command([...words, NOT_A_FLAG]);
    expect({ code, err }).toEqual({ code: 2, err: expect.stringContaining(`has no flag ${NOT_A_FLAG}`) });
  });

  const configured = lines.filter(([name]) => name === "cluster");
  test.each(configured.map((words) => [words.join(" "), configPart(words.slice(1))] as const))(
    "bun run %s: its config is one",
    async (_, words) => {
      // Envs that a page has its reader write are not here; a model need not be.
      if (after(words, "--env") === "Street" || words.some((word) => word.startsWith("--model."))) return;
      const { code, err } = await command(["config", ...words.filter((word) => !/^--join\.listen=wss/.test(word))]);
      expect({ code, err }).toEqual({ code: 0, err: "" });
    },
  );

  test("tests that are to be run are there", () => {
    const paths = lines.filter(isTest).flatMap(([, ...args]) => args.filter((arg) => !arg.startsWith("-")));
    expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([]);
  });
});

describe("keys", async () => {
  const { out } = await command(["config", "--json"]);
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

describe("links and files", () => {
  const slug = (heading: string) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\w\s-]/g, "")
      .trim()
      .replaceAll(/\s/g, "-");

  test.each(documents)("%s links to what is there", (file) => {
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
    const envs = [...textOf(file).matchAll(/^bun run new-env (\w+)$/gm)].map(([, tag]) =>
      tag!.replaceAll(/(?<=[a-z])[A-Z]/g, "-$&").toLowerCase(),
    );
    const made = envs.flatMap((env) => [`envs/${env}/game.ts`, `envs/${env}/tags.ts`, `tests/envs/${env}.test.ts`]);
    const named = inlineCode(file).filter((code) =>
      /^(actors|bench|configs|docs|envs|examples|model|scripts|tests)\/[\w./-]+\.\w+$/.test(code),
    );
    // "scripts/NAME.ts" is a pattern, and Python under scripts/ is RAGEN's.
    const ours = named.filter((path) => !/\/[A-Z]+\.|^scripts\/.*\.py$/.test(path));
    expect(ours.filter((path) => !existsSync(join(root, path)) && !made.includes(path))).toEqual([]);
  });

  test("every row of the table of faults names tests that are there, one of which prints its figure; and no other prints one", () => {
    const table = textOf("docs/operations.md").split("## The table of faults")[1]!;
    const rows = table.split("\n").filter((line) => /^\| (?!fault |---)/.test(line));
    const faults = rows.map((row) => row.split("|")[1]!.trim());
    for (const [i, row] of rows.entries()) {
      const named = [
        ...row
          .split("|")
          .at(-2)!
          .matchAll(/\b(?:actors|e2e|envs|model|scripts|simulation)\/[\w-]+/g),
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

  test("every page is reached from the README", () => {
    const seen = new Set(["README.md"]);
    for (const file of seen) {
      for (const [, target] of withoutBlocks(textOf(file)).matchAll(/\]\(([^)\s#]+\.md)[^)]*\)/g)) {
        const at = join(dirname(file), target!);
        if (documents.includes(at)) seen.add(at);
      }
    }
    expect(documents.filter((file) => !seen.has(file))).toEqual([]);
  });
});
