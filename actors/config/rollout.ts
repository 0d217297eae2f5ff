/** Sections `rollout`, `validate`, `sampler` and `envServer`: which episodes a run plays, and with how many processes. Types and defaults. */
import { z } from "zod";
import {
  nonnegativeInt,
  nonnegativeNumber,
  oneOf,
  partialShare,
  positiveInt,
  positiveNumber,
  positiveShare,
  seed,
} from "./kinds.ts";

const CurriculumConfig = z.strictObject({
  by: oneOf(["none", "success", "reward", "difficulty"], "none").describe(
    "Curriculum: how an update divides its groups among the envs of env.mix. none: each item of env.mix sets its number of groups by its key groups. success, reward: an env gets more groups if success (or reward) differs more between the episodes of a group. difficulty: env.mix must list the envs from easy to hard. The first env that is not learned yet (advanceAt) gets all groups except groupsMin groups for each env before it",
  ),
  advanceAt: positiveShare(0.7).describe(
    "difficulty: an env is learned if the moving average of its success is at least this value",
  ),
  smoothing: partialShare(0.8).describe(
    "Weight of earlier updates in the moving averages by which the curriculum divides the groups; with a lower weight the averages change faster",
  ),
  groupsMin: positiveInt(1).describe(
    "success, reward: minimum number of groups of each env; difficulty: number of groups of each env before the first env that is not learned",
  ),
});

export const RolloutConfig = z.strictObject({
  groups: positiveInt(16).describe(
    "Groups per update (RAGEN's P); a group plays one board. With onlineK above 1, this is the number of groups per optimizer step",
  ),
  groupSize: positiveInt(8).describe(
    "Episodes per group, all on one board (RAGEN's N); with prompt.compat strict, the game's random events differ between the episodes",
  ),
  onlineK: positiveInt(1).describe(
    "k of RAGEN's Online-k: an update plays k x rollout.groups boards and trains on them in k optimizer steps",
  ),
  curriculum: CurriculumConfig.prefault({}),
  firstSeed: seed(20_000).describe(
    "Layout seed of the first training board (a layout seed decides a board); each further group takes the next seed",
  ),
  replyTokensMax: positiveInt(24).describe("Maximum number of tokens of a reply; the sampler cuts a longer reply"),
  contextTokensMax: positiveInt(360).describe(
    "Maximum number of tokens of a context (by default a context is a whole episode); prompt.overflow says what happens at this maximum",
  ),
  temperature: positiveNumber(1).describe("Sampling temperature of training rollouts"),
  topP: positiveShare(1).describe(
    "The policy samples from the smallest set of likeliest tokens whose probabilities sum to at least this value",
  ),
  topK: nonnegativeInt(0).describe("Number of likeliest tokens from which the policy samples; 0: all tokens"),
  leaseMs: positiveInt(60_000).describe(
    "Time in which a sampler must play an episode; after this time another attempt at the episode begins. Raise this time for slow models",
  ),
  attemptsMax: positiveInt(3).describe(
    "Maximum number of attempts at an episode. If all attempts at a training episode fail, the run leaves the episode out and counts it as failed. If all attempts at a validation episode fail, the run ends",
  ),
});

export const ValidateConfig = z.strictObject({
  everyUpdates: positiveInt(10).describe("Updates between validations; the run also validates at its start and end"),
  episodes: positiveInt(256).describe(
    "Number of boards, the same in every validation; with env.mix, the number for each env",
  ),
  groupSize: positiveInt(1).describe("Episodes per board; with 2 or more, the run estimates pass@k"),
  firstSeed: seed(123).describe("Layout seed of the first validation board; each further board takes the next seed"),
  temperature: nonnegativeNumber(0.5).describe("Sampling temperature of validation; 0: greedy"),
});

export const SamplerConfig = z.strictObject({
  count: nonnegativeInt(2).describe("Sampler processes on this machine; 0: other machines lend samplers"),
  slots: positiveInt(64).describe("Maximum number of episodes that one sampler decodes in one batch"),
  engine: oneOf(["own", "vllm", "sglang"], "own").describe(
    "own: the engine of engine.name; vllm, sglang: a server at engine.url, on the sampler's machine, writes the replies with the learner's LoRA adapters",
  ),
  threads: positiveInt(1).describe("Threads of one sampler's engine"),
  precision: oneOf(["full", "half"], "full").describe(
    "half: samplers use weights in half precision, and other machines download half as many bytes. Samplers that run Bunraku's machine code (on a CPU, Linux x64 with AVX2, sampler.threads 1) also keep keys and values in half precision, and write replies about 1.3 times as fast as with full",
  ),
  weightsBetween: oneOf(["episodes", "turns"], "episodes").describe(
    "async: when a sampler loads new weights. episodes: while the sampler plays no episode; turns: while the sampler writes no reply, so an episode may have several policy versions",
  ),
});

export const EnvServerConfig = z.strictObject({
  count: nonnegativeInt(1).describe("Env server processes on this machine; 0: other machines lend env servers"),
  episodesMax: positiveInt(4096).describe(
    "Maximum number of open episodes per server; the server refuses further episodes",
  ),
  idleMs: positiveInt(300_000).describe("The server closes an episode that has had no step for this time"),
  answerMsMax: positiveInt(25_000).describe(
    "Time for an env that runs in another process or on a server to open an episode or play a turn; after this time the attempt fails",
  ),
});

/** How long an actor waits for another actor's answer: 30 s by default. An env server waits a shorter time for an env. */
export const askDeadlineMs = ({ envServer }: { readonly envServer: z.infer<typeof EnvServerConfig> }): number =>
  1.2 * envServer.answerMsMax;
