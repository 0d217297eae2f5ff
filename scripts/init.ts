/** `bun run init`: writes a project with an env, its test and a config. docs/tutorial.md explains the next steps. */
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parsedJson, saveJson } from "../actors/checkpoint/json.ts";
import { isTree } from "../actors/config/layers.ts";
import { messageOf } from "../actors/errors.ts";
import { isPackage } from "./cli/install.ts";
import { makeFolder } from "./cli/make-folder.ts";
import { type Command, flag, type Parsed, UsageError } from "./cli/options.ts";
import { say } from "./cli/print.ts";
import { shellWord } from "./cli/texts.ts";

export const command = {
  words: { show: "FOLDER", text: "Folder of the project (default: the current folder)", max: 1 },
  flags: { "no-install": flag.switch("Write the files only") },
  examples: ["bun run init ../my-agent"],
} as const satisfies Command;

const root = fileURLToPath(new URL("..", import.meta.url));
const template = join(root, "library/template");

/** Commands of the new project, so that `bun run NAME` works in a project as in a clone. */
const COMMANDS = "cluster eval page new-env play replay serve export compare diagnose curves config help".split(" ");

/** The version of @types/bun that Bunraku itself uses. */
const BUN_TYPES = "1.4.4";

export async function main({ words, flags }: Parsed<typeof command>): Promise<number> {
  const folder = resolve(words[0] ?? ".");
  const files = readdirSync(template, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const written = files.map(({ parentPath, name }) => join(folder, parentPath.slice(template.length), name));
  const taken = written.find((file) => existsSync(file));
  if (taken !== undefined) throw new UsageError(`${taken} exists already; name a new folder`);
  const manifest = join(folder, "package.json");
  const kept = existsSync(manifest) ? parsedJson(readFileSync(manifest, "utf8")) : {};
  if (!isTree(kept)) throw new UsageError(`${manifest} holds no JSON object; correct the file, or name a new folder`);
  const ignored = join(folder, ".gitignore");
  if (!existsSync(ignored)) written.push(ignored);
  const isNew = !existsSync(folder);
  for (const file of written) makeFolder(dirname(file));
  try {
    cpSync(template, folder, { recursive: true });
    if (written.includes(ignored)) writeFileSync(ignored, "node_modules/\nruns/\n");
    saveJson(manifest, manifestOf(basename(folder), kept));
  } catch (error) {
    for (const path of isNew ? [folder] : [...written, `${manifest}.new`])
      rmSync(path, { recursive: true, force: true });
    throw new Error(
      `cannot write the project in ${folder}: ${messageOf(error)}; the command has removed its files. Make room, or name another folder`,
    );
  }
  if (!flags["no-install"]) {
    const install = [process.execPath, "install", "--ignore-scripts"];
    const code = await Bun.spawn(install, { cwd: folder, stdio: ["ignore", 2, 2] }).exited;
    if (code !== 0) throw new Error(`cannot install the packages of ${folder}; run \`bun install\` there`);
  }
  say(`next: cd ${shellWord(folder)}; bun test; bun run cluster`);
  return 0;
}

type Part = Readonly<Record<string, string>>;

/** @param kept  the existing manifest; its entries override the new entries */
function manifestOf(folder: string, kept: { scripts?: Part; dependencies?: Part; devDependencies?: Part }): object {
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  return {
    name:
      folder
        .toLowerCase()
        .replaceAll(/[^a-z0-9._-]+/g, "-")
        .replace(/^[._-]+/, "") || "agent",
    private: true,
    type: "module",
    ...kept,
    scripts: { ...Object.fromEntries(COMMANDS.map((name) => [name, `bunraku ${name}`])), ...kept.scripts },
    // In a clone the project uses the clone itself.
    dependencies: { bunraku: isPackage ? version : `link:${root}`, ...kept.dependencies },
    devDependencies: { "@types/bun": BUN_TYPES, ...kept.devDependencies },
  };
}
