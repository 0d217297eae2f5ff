/** `bunraku`: what a program imports. Define an env with `bunraku/env`, and test it with `bunraku/testing`. */
export type { RunConfig } from "../actors/config/config.ts";
export type { PolicyEvaluation } from "../actors/evaluate/evaluate.ts";
export type { Evaluation } from "../envs/analysis/evaluate.ts";
export type { Message } from "../model/text/dialogue.ts";
export { type BunrakuConfig, defineConfig, type Settings } from "./config.ts";
export {
  type Boards,
  evaluate,
  loadPolicy,
  type PlayerBoards,
  type PlayerName,
  type Policy,
  type PolicyBoards,
  type PolicyOptions,
  type ReplyOptions,
} from "./policy.ts";
export type { Episode, NewestPolicy, Run, RunResult, Update } from "./run.ts";
export { type TrainOptions, train } from "./train.ts";
