/**
 * Modules that define envs outside Bunraku: a user's files and packages. Every process that plays an env imports the env's module.
 *
 * - A module's digest covers the module's text and all files that the module imports by path, directly or through other files. The digest
 *   does not cover packages, whose versions a lock file fixes, nor files that the env reads.
 * - A run's config names its modules by path, with their digests. A process whose parent made the config imports the modules by these
 *   paths. A config from a folder or from another machine never makes code run: this process must already have imported the modules.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, extname, isAbsolute, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { addEnvs, type EnvModule, envModules, neededModules } from "../../envs/registry.ts";
import { TagError, type TagSource } from "../../envs/tag.ts";
import type { RunConfig } from "../config/config.ts";
import { messageOf, placeOf } from "../errors.ts";
import { playedEnvs } from "./envs-of-run.ts";

/** Limit on the number of files of a module, the module's own file included. */
const FILES_MAX = 10_000;

const CODE = ["ts", "tsx", "js", "jsx"];

/**
 * Imports a module, and adds its envs to those of this process. If this process has imported the module earlier, this function only returns it.
 *
 * @param specifier  an absolute path, a file URL, a path from `folder` that starts with "./", or the name of a package that `folder` can import
 * @throws {TagError} that names the file, and the line of a fault in the file
 */
export async function importEnvs(specifier: string, folder: string): Promise<EnvModule> {
  let path: string;
  try {
    path = specifier.startsWith("file:") ? fileURLToPath(specifier) : Bun.resolveSync(specifier, folder);
  } catch {
    const hint = /^(\.|\/)/.test(specifier)
      ? ""
      : '; a path starts with "./", and a package is installed with `bun add`';
    throw new TagError(`no env module ${specifier} was found from ${folder}${hint}`);
  }
  const earlier = envModules().find((module) => module.path === path);
  if (earlier !== undefined) return earlier;
  return importing.getOrInsertComputed(path, () => addModule(path, specifier).finally(() => importing.delete(path)));
}

/** Imports that have not ended, by path: runs that start together may name the same module. */
const importing = new Map<string, Promise<EnvModule>>();

async function addModule(path: string, specifier: string): Promise<EnvModule> {
  try {
    const { default: exported } = (await import(path)) as { default?: unknown };
    const sources: unknown[] = Array.isArray(exported) ? exported : [exported];
    if (sources.length === 0 || !sources.every(isSource)) {
      throw new TagError("its default export is no env; write `export default defineEnv({ … })`");
    }
    const module = { path, digest: digestOf(path) };
    addEnvs(sources, module);
    return module;
  } catch (thrown) {
    // Bun's parser throws all faults of a file as one AggregateError.
    const error = thrown instanceof AggregateError ? thrown.errors[0] : thrown;
    throw new TagError(`cannot use the envs of ${specifier}: ${messageOf(error)}${placeOf(error)}`, { cause: error });
  }
}

const isSource = (value: unknown): value is TagSource =>
  typeof value === "object" && value !== null && "tag" in value && "make" in value && typeof value.make === "function";

/** `texts`: by path, the text of a module and of each file that it imports by path. `packages`: the packages that these files import. */
export function sourcesOf(path: string): {
  readonly texts: ReadonlyMap<string, Buffer>;
  readonly packages: Set<string>;
} {
  const texts = new Map<string, Buffer>();
  const packages = new Set<string>();
  const files = new Set([path]);
  for (const file of files) {
    if (files.size > FILES_MAX) throw new Error(`${path} imports more than ${FILES_MAX} files by path`);
    const text = readFileSync(file);
    texts.set(file, text);
    const loader = extname(file).slice(1).replace(/^[mc]/, "");
    if (!CODE.includes(loader)) continue;
    for (const { path: name } of new Bun.Transpiler({ loader: loader as "ts" }).scanImports(text)) {
      if (name.startsWith(".") || isAbsolute(name)) files.add(Bun.resolveSync(name, dirname(file)));
      else packages.add(name);
    }
  }
  return { texts, packages };
}

/** sha256 (hex) over the paths and texts of `sourcesOf`. The digest does not depend on the folder of the module. */
export function digestOf(path: string): string {
  const hash = createHash("sha256");
  for (const [file, text] of sourcesOf(path).texts) {
    hash.update(`${relative(dirname(path), file)}\0${text.length}\0`).update(text);
  }
  return hash.digest("hex");
}

/** The modules of the envs that a run plays: the digest of each module by its path. */
export function modulesOf(config: Pick<RunConfig, "env">): Record<string, string> {
  const modules = playedEnvs(config).flatMap(({ tag }) => neededModules(tag));
  return Object.fromEntries(modules.map(({ path, digest }) => [path, digest]));
}

/** Imports the modules of a config that this process's parent made. @throws {TagError} if a file has changed since the run began */
export async function importModules({ env }: Pick<RunConfig, "env">): Promise<void> {
  for (const [path, digest] of Object.entries(env.modules)) {
    const found = await importEnvs(path, "/");
    if (found.digest === digest) continue;
    throw new TagError(
      `${path} has changed since the run began: its digest is ${short(found.digest)}, the run's is ${short(digest)}; restore it, or start a new run`,
    );
  }
}

/**
 * Takes a config from a folder or another machine, and gives each module the path from which this process imported a module of equal digest.
 *
 * @throws {TagError} if this process has imported no module of equal digest
 */
export function withLocalModules<C extends Pick<RunConfig, "env">>(config: C): C {
  const here = envModules();
  const modules = Object.entries(config.env.modules).map(([path, digest]) => {
    const same = here.find((module) => module.digest === digest);
    if (same !== undefined) return [same.path, digest];
    const known = here.map((module) => `${module.path} (${short(module.digest)})`).join(", ") || "none";
    throw new TagError(
      `the run plays envs of ${path} with the digest ${short(digest)}; known here: ${known}. ` +
        "Restore that version of the file, and name it in the bunraku.config.ts of this folder, or, in a program, in the option `envs`",
    );
  });
  return { ...config, env: { ...config.env, modules: Object.fromEntries(modules) } };
}

const short = (digest: string): string => digest.slice(0, 12);
