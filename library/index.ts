/** `bunraku`: what a program imports. Envs are defined with `bunraku/env`, tested with `bunraku/testing`. */
export type { RunConfig } from "../actors/config/config.ts";
export { type BunrakuConfig, defineConfig } from "./config.ts";
