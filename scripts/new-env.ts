/** `bun run new-env`: writes a working env with its test and registers it. docs/new-env.md turns one into another game. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { envTags } from "../envs/registry.ts";
import { type Command, helped, parseOptions, UsageError } from "./cli/options.ts";
import { type EnvName, gameFile, tagsFile, testFile } from "./new-env/template.ts";

const root = join(import.meta.dir, "..");

const command = {
  name: "new-env",
  words: { show: "NAME", text: "its tag, such as LightsOut: letters and digits, starting with a capital", max: 1 },
  flags: {},
  examples: ["bun run new-env LightsOut", "bun run eval --env LightsOut --policy optimal"],
} as const satisfies Command;

const REGISTRY = "envs/registry.ts";

export async function main(args: string[]): Promise<number> {
  if (helped(command, args)) return 0;
  const [tag] = parseOptions(command, args).words;
  if (tag === undefined) throw new UsageError("new-env needs a NAME: bun run new-env LightsOut");
  const name = nameOf(tag);
  const files = {
    [`envs/${name.kebab}/game.ts`]: gameFile(name),
    [`envs/${name.kebab}/tags.ts`]: tagsFile(name),
    [`tests/envs/${name.kebab}.test.ts`]: testFile(name),
  };
  const there = Object.keys(files).find((path) => existsSync(join(root, path)));
  if (there !== undefined) throw new UsageError(`${there} exists already; use another name`);
  const registry = registered(readFileSync(join(root, REGISTRY), "utf8"), name);
  for (const [path, text] of Object.entries({ ...files, [REGISTRY]: registry })) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  await format([...Object.keys(files), REGISTRY]);
  console.log(Object.keys(files).join("\n"));
  console.error(
    [
      `${tag} works: bun run eval --env ${tag} --policy optimal`,
      `edit envs/${name.kebab}/, then: bun test tests/envs/${name.kebab}.test.ts tests/envs/registry.test.ts`,
    ].join("\n"),
  );
  return 0;
}

function nameOf(tag: string): EnvName {
  if (!/^[A-Z][A-Za-z0-9]{1,40}$/.test(tag)) {
    throw new UsageError(
      `a NAME has letters and digits and starts with a capital, such as LightsOut; got ${JSON.stringify(tag)}`,
    );
  }
  const taken = envTags().find((other) => other.toLowerCase() === tag.toLowerCase());
  if (taken !== undefined) throw new UsageError(`the env ${taken} exists already; use another name`);
  const kebab = tag.replaceAll(/(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/g, "-").toLowerCase();
  return { tag, kebab, camel: tag[0]!.toLowerCase() + tag.slice(1) };
}

/** Adds an import and an entry to the registry. @throws {Error} if the registry has another form than expected. */
function registered(registry: string, { kebab, camel }: EnvName): string {
  const entry = `    ...${camel}Tags,\n`;
  const end = /^ {2}\]\.map\(\(source\)/m.exec(registry)?.index;
  const opening = registry.indexOf("*/\n");
  if (end === undefined || opening < 0)
    throw new Error(`cannot register the env in ${REGISTRY}: its form has changed; add ${camel}Tags by hand`);
  const imports = opening + "*/\n".length;
  const added = `import { ${camel}Tags } from "./${kebab}/tags.ts";\n`;
  return registry.slice(0, imports) + added + registry.slice(imports, end) + entry + registry.slice(end);
}

/** Sorts imports and wraps lines, which depend on the env's name. */
async function format(paths: readonly string[]): Promise<void> {
  const biome = join(root, "node_modules/@biomejs/biome/bin/biome");
  const child = Bun.spawn([process.execPath, biome, "check", "--write", ...paths], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  if (code !== 0) throw new Error(`cannot format ${paths.join(", ")}: ${err || out}`);
}
