/** `bunraku/config`: the form of bunraku.config.ts, which every command reads from the folder that it runs in. */
import type { z } from "zod";
import type { RunConfig } from "../actors/config/config.ts";

/** Settings of a run. A setting that is left out has its default. `bun run config` lists all settings. */
export type Settings = z.input<typeof RunConfig>;

export interface BunrakuConfig {
  /** Modules of envs: paths from the folder of bunraku.config.ts that start with "./", or names of packages. */
  readonly envs?: readonly string[];
  /** The preset that `run` overrides. If omitted, the command chooses its default preset. */
  readonly preset?: string;
  /** Settings of every run, except a run whose `--preset` names a built-in preset. */
  readonly run?: Settings;
  /** More presets for --preset. The settings of a preset override the settings of `run`. */
  readonly presets?: Readonly<Record<string, Settings>>;
  /** Folder of new runs. Default: runs. */
  readonly runsFolder?: string;
}

/** Returns its argument. TypeScript checks the type of the argument. */
export const defineConfig = (config: BunrakuConfig): BunrakuConfig => config;
