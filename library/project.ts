/**
 * The project of a command: the working directory, with its bunraku.config.ts. A command executes the code of bunraku.config.ts and of the
 * modules that bunraku.config.ts names.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { ConfigError, messageOf, placeOf, schemaFaults } from "../actors/errors.ts";
import { importEnvs } from "../actors/play/env-modules.ts";
import { tagsOf } from "../envs/registry.ts";
import type { BunrakuConfig } from "./config.ts";

export const PROJECT_FILE = "bunraku.config.ts";

/** This schema does not check a run's settings. `composeWithEnvFile` checks them when a command makes the run's config. */
const Settings = z.record(z.string(), z.unknown());
const Project = z.strictObject({
  envs: z.array(z.string().min(1)).default([]),
  preset: z.string().optional(),
  run: Settings.default({}),
  presets: z.record(z.string().regex(/^[\w.-]{1,64}$/), Settings).default({}),
  runsFolder: z.string().min(1).default("runs"),
});
export type Project = z.infer<typeof Project>;

/** The project of a folder without bunraku.config.ts. */
export const NO_PROJECT: Project = Project.parse({});

/**
 * Reads the folder's bunraku.config.ts and imports its modules of envs.
 *
 * @throws {ConfigError} in one line, naming the file and what is wrong in it
 */
export async function loadProject(folder: string): Promise<Project> {
  const file = join(folder, PROJECT_FILE);
  if (!existsSync(file)) return NO_PROJECT;
  try {
    const { default: exported } = (await import(file)) as { default?: BunrakuConfig };
    const parsed = Project.safeParse(exported);
    if (!parsed.success) throw new Error(schemaFaults(parsed.error, "its default export"));
    for (const specifier of parsed.data.envs) await importEnvs(specifier, folder);
    return parsed.data;
  } catch (error) {
    throw new ConfigError(`${PROJECT_FILE}: ${messageOf(error)}${error instanceof Error ? placeOf(error) : ""}`);
  }
}

/** Matches the path of a module. */
const MODULE = /^\.{0,2}\/.*\.[mc]?[jt]sx?$/;

/**
 * In a command's words, such as "--env ./envs/street.ts,Bandit", replaces the path of an env's module by the env's tag.
 *
 * @throws {ConfigError}
 */
export async function withTagsForPaths(command: string, args: readonly string[], folder: string): Promise<string[]> {
  return Array.fromAsync(args, async (arg, i) => {
    const flag = arg.startsWith("--env=") ? "--env=" : "";
    const isEnv = flag !== "" || args[i - 1] === "--env" || command === "play";
    if (!isEnv) return arg;
    const names = arg.slice(flag.length).split(",");
    const tags = await Array.fromAsync(names, (name) => (MODULE.test(name) ? onlyTag(name, folder) : name));
    return `${flag}${tags.join(",")}`;
  });
}

async function onlyTag(path: string, folder: string): Promise<string> {
  const module = await importEnvs(path, folder).catch((error: unknown) => {
    throw new ConfigError(messageOf(error));
  });
  const tags = tagsOf(module);
  if (tags.length === 1) return tags[0]!;
  throw new ConfigError(
    `${path} defines several envs, ${tags.join(", ")}; name the module in ${PROJECT_FILE}, and one of its tags here`,
  );
}
