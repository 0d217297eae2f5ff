/** `bun run new-env`: writes a new env and its test, made from the files of the project template. docs/new-env.md explains the next steps. */
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { messageOf } from "../actors/errors.ts";
import { envTags } from "../envs/registry.ts";
import { makeFolder } from "./cli/make-folder.ts";
import { type Command, type Parsed, UsageError } from "./cli/options.ts";
import { say } from "./cli/print.ts";
import { shellWord } from "./cli/texts.ts";

export const command = {
  words: { show: "FILE", text: "Module to write, such as envs/maze.ts; its test goes into the same folder", max: 1 },
  flags: {},
  examples: ["bun run new-env envs/maze.ts", "bun run cluster --env ./envs/maze.ts"],
} as const satisfies Command;

const template = fileURLToPath(new URL("../library/template/envs/street", import.meta.url));

export async function main({ words: [file] }: Parsed<typeof command>): Promise<number> {
  const name = file === undefined ? "" : basename(file, ".ts");
  if (file === undefined || !file.endsWith(".ts") || !/^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(name)) {
    const found = file === undefined ? "" : `, got ${file}`;
    throw new UsageError(`new-env takes a file like envs/my-maze.ts (small letters, digits, hyphens)${found}`);
  }
  const tag = name.replaceAll(/(?:^|-)(.)/g, (_, first: string) => first.toUpperCase());
  checkTag(file, tag);
  const stem = join(dirname(resolve(file)), name);
  const written = [".ts", ".test.ts"].map((end) => ({ from: template + end, to: stem + end }));
  const taken = written.find(({ to }) => existsSync(to));
  if (taken !== undefined) throw new UsageError(`${taken.to} exists already; name another file`);
  makeFolder(dirname(stem));
  for (const { from, to } of written) {
    const text = readFileSync(from, "utf8").replaceAll("Street", tag).replaceAll("./street.ts", `./${name}.ts`);
    try {
      writeFileSync(to, text, { flag: "wx" });
    } catch (error) {
      // EEXIST: another command makes the same env at this moment, so the files belong to that command.
      const isOthers = (error as NodeJS.ErrnoException).code === "EEXIST";
      if (!isOthers) for (const { to } of written) rmSync(to, { force: true });
      throw new UsageError(`cannot write ${to}: ${messageOf(error)}; name another file`);
    }
  }
  const path = `./${relative(process.cwd(), stem)}`;
  say(
    `wrote ${path}.ts and its test; next: bun test ${shellWord(`${path}.test.ts`)}; bun run cluster --env ${shellWord(`${path}.ts`)}`,
  );
  return 0;
}

/**
 * @throws {UsageError} if the module would not define an env, because its tag is not valid, is already known, or is a name that the module
 * imports or uses
 */
function checkTag(file: string, tag: string): void {
  const text = readFileSync(`${template}.ts`, "utf8");
  const [, imported = ""] = /import \{(.*)\} from/.exec(text) ?? [];
  let fault: string | null = null;
  if (tag.length < 2 || tag.length > 41) fault = `a tag has 2 to 41 letters and digits, but this tag has ${tag.length}`;
  else if (envTags().includes(tag)) fault = "a built-in env or an env of this project has this tag";
  else if (imported.match(/\w+/g)?.includes(tag)) fault = "the module imports this name";
  else if (tag in globalThis && text.match(/\w+/g)!.includes(tag)) fault = `the module uses JavaScript's ${tag}`;
  if (fault !== null) throw new UsageError(`${file} would define the env ${tag}: ${fault}; name another file`);
}
